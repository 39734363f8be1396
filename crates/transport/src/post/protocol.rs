//! The posting protocol, for any number of posters on one queue: reserve, (write,) publish, drain.
//!
//! Word for word what the device library does (`kernels/include/warpverbs/impl`), over an abstract
//! memory, so that `model` can run it through every interleaving. Indexes are 64-bit and in ring
//! slots (WQEBBs of an SQ, WQEs of an RQ); a slot is `index & (depth - 1)`; nothing ever wraps.
//!
//! Lap parity: a slot's ready bit is flipped once per lap, from 0, so on lap `index >> log_depth`
//! it means "ready" when it differs from the lap's lowest bit. No bit has to be cleared.

use super::word::Word;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// One work queue as the protocol sees it.
pub(crate) trait Ring {
    type Counter: Word<u64>;
    type Token: Word<u32>;

    fn log_depth(&self) -> u32;
    fn reserved(&self) -> &Self::Counter;
    fn published(&self) -> &Self::Counter;
    fn completed(&self) -> &Self::Counter;
    fn ring_token(&self) -> &Self::Token;
    fn poll_token(&self) -> &Self::Token;
    /// One bit per slot.
    fn ready(&self, word: usize) -> &Self::Counter;
    /// Tells the NIC that every index below `next` is ready: doorbell record, then doorbell.
    fn announce(&self, next: u64);

    /// Rings asked for of one holder of the ring token, before they are counted from one again.
    fn most_asked(&self) -> u32 {
        1 << 30
    }

    fn depth(&self) -> u64 {
        1 << self.log_depth()
    }
}

/// Takes `n` consecutive indexes if all of them have room. `n` is at most the depth.
///
/// Nothing is taken otherwise, so a poster that gives up leaves no hole behind.
#[inline]
pub(crate) fn try_reserve<R: Ring>(ring: &R, n: u64) -> Option<u64> {
    let mut base = ring.reserved().load(Relaxed);
    while has_room(ring, base, n) {
        match ring.reserved().compare_exchange(base, base + n, Relaxed, Relaxed) {
            Ok(_) => return Some(base),
            Err(now) => base = now,
        }
    }
    None
}

/// The gate: whether the slots of `[base, base + n)` are free to be written.
#[inline]
pub(crate) fn has_room<R: Ring>(ring: &R, base: u64, n: u64) -> bool {
    // Acquire, pairs with the release in `retire`: the NIC's reads of the slot's last lap come
    // before our writes.
    base + n <= ring.completed().load(Acquire) + ring.depth()
}

/// Makes written work of `[base, base + n)` known to the NIC, or leaves that to whoever is ringing
/// now. On return somebody has rung for it or is obliged to.
#[inline]
pub(crate) fn publish<R: Ring>(ring: &R, base: u64, n: u64) {
    mark_ready(ring, base, n);
    // A poster's increment either comes before the value the holder last saw, and then acquire
    // shows the holder its ready bits on the next pass; or it makes the holder's exchange fail.
    if ring.ring_token().fetch_add(1, AcqRel) != 0 {
        return;
    }
    let mut seen = 1;
    loop {
        ring_ready(ring);
        match ring.ring_token().compare_exchange(seen, 0, AcqRel, Acquire) {
            Ok(_) => return,
            // Keeps the count from wrapping to 0 under a holder who is never let go. Who has asked
            // in between is seen by the exchange, and served by the next pass.
            Err(now) if now >= ring.most_asked() => {
                ring.ring_token().exchange(1, AcqRel);
                seen = 1;
            }
            Err(now) => seen = now,
        }
    }
}

/// Flips the ready bits of `[base, base + n)`, the last word first: `ready_until` walks upwards
/// and must not find the head of a work request ready while its tail is not.
fn mark_ready<R: Ring>(ring: &R, base: u64, n: u64) {
    let mut end = base + n;
    while end > base {
        let last = (end - 1) & (ring.depth() - 1);
        let run = (last % 64 + 1).min(end - base);
        let mask = (u64::MAX >> (64 - run)) << (last % 64 + 1 - run);
        // Release: the work request's bytes (and higher ready words) come before its ready bits.
        ring.ready((last / 64) as usize).fetch_xor(mask, Release);
        end -= run;
    }
}

/// One pass of the ring token's holder over everything that is ready.
#[inline]
fn ring_ready<R: Ring>(ring: &R) {
    // Only the holder writes `published`, and the token orders one holder after another.
    let from = ring.published().load(Relaxed);
    let to = ready_until(ring, from);
    if to != from {
        ring.announce(to);
        ring.published().store(to, Release);
    }
}

/// The first index at or after `from` that is not ready.
#[inline]
fn ready_until<R: Ring>(ring: &R, from: u64) -> u64 {
    let depth = ring.depth();
    let mut at = from;
    while at - from < depth {
        let slot = at & (depth - 1);
        let left = (64 - slot % 64).min(depth - slot);
        // Acquire, pairs with the release in `mark_ready`.
        let bits = ring.ready((slot / 64) as usize).load(Acquire);
        let lap_is_odd = at >> ring.log_depth() & 1 == 1;
        let not_ready = if lap_is_odd { bits } else { !bits };
        let run = u64::from((not_ready >> (slot % 64)).trailing_zeros()).min(left);
        at += run;
        if run < left {
            break;
        }
    }
    at
}

/// Runs `poll` unless somebody else is polling the queue's CQ.
#[inline]
pub(crate) fn elect<R: Ring, T>(ring: &R, poll: impl FnOnce() -> T) -> Option<T> {
    ring.poll_token().compare_exchange(0, 1, Acquire, Relaxed).ok()?;
    let out = poll();
    ring.poll_token().store(0, Release);
    Some(out)
}

/// Rebuilds the 64-bit index behind a CQE's 16-bit counter: the one that is in flight, if any.
/// A CQE of work that has been retired, or that nobody has rung, gives `None`.
#[inline]
pub(crate) fn in_flight<R: Ring>(ring: &R, wqe_counter: u16) -> Option<u64> {
    let completed = ring.completed().load(Relaxed);
    let index = completed + u64::from(wqe_counter.wrapping_sub(completed as u16));
    (index < ring.published().load(Acquire)).then_some(index)
}

/// Hands the slots below `upto` back to posters. Only the elected poller calls this.
#[inline]
pub(crate) fn retire<R: Ring>(ring: &R, upto: u64) {
    if upto > ring.completed().load(Relaxed) {
        // Release, pairs with the acquire in `has_room`.
        ring.completed().store(upto, Release);
    }
}
