//! The posting protocol, for any number of posters on one queue: reserve, (write,) publish, drain.
//!
//! The same steps, orders and order of stores as in the device library
//! (`kernels/include/warpverbs/impl`), over an abstract memory, so that a model checker can run it.
//! Host and kernels may post to one queue. Further steps of the device library serve latency over
//! an L2, and are left out here:
//!
//! - it reserves with a fetch-add and waits for room afterwards; here, a poster that finds no room
//!   has reserved nothing (`try_reserve` there), and so cannot leave a hole when it gives up;
//! - a lone lane takes the ring token along with its reservation;
//! - it takes the poll lock with a fetch-or, which changes nothing if the lock is held;
//! - a waiter may recognise the completion of its own work without a look at `published`.
//!
//! Indexes are 64-bit and in ring slots (WQEBBs of an SQ, WQEs of an RQ); a slot is
//! `index & (depth - 1)`; nothing ever wraps.
//!
//! Lap parity: a slot's ready bit is flipped once per lap, from 0, so on lap `index >> log_depth`
//! it means "ready" when it differs from the lap's lowest bit. No bit has to be cleared.

use super::word::Word;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use warpverbs_mlx5::export::{MOST_PASSES, PollWord, TOKEN_OFFERED as OFFERED};

/// One work queue as the protocol sees it.
pub(crate) trait Ring {
    type Counter: Word<u64>;
    type Poll: Word<u64>;
    type Token: Word<u32>;
    type Record: Word<u32>;
    type Doorbell: Word<u64>;

    fn log_depth(&self) -> u32;
    fn reserved(&self) -> &Self::Counter;
    fn published(&self) -> &Self::Counter;
    /// A [`PollWord`].
    fn poll(&self) -> &Self::Poll;
    /// 0 while nobody holds it, [`OFFERED`], or the number of times its holder was asked to ring.
    fn ring_token(&self) -> &Self::Token;
    /// One bit per slot.
    fn ready(&self, word: usize) -> &Self::Counter;
    /// This queue's half of the doorbell record, and what it says of `next`; formats without records have
    /// none.
    fn record(&self, next: u64) -> Option<(&Self::Record, u32)>;
    /// The doorbell, and what it says of `next`; a receive queue with a record has none.
    fn doorbell(&self, next: u64) -> Option<(&Self::Doorbell, u64)>;
    /// Posters count packets: the word `reserved` has the packet number of the next work request from bit
    /// [`INDEX_BITS`] on.
    fn counts_packets(&self) -> bool {
        false
    }
    /// Entries that have to stay free.
    fn unused(&self) -> u64 {
        0
    }

    /// Passes of one combiner before it offers the token to the next thread that asks.
    fn most_passes(&self) -> u32 {
        MOST_PASSES
    }

    /// While the token is offered.
    fn pause(&self) {
        std::hint::spin_loop();
    }

    fn depth(&self) -> u64 {
        1 << self.log_depth()
    }

    /// Everything below this index is done.
    #[inline]
    fn completed(&self) -> u64 {
        // Acquire, pairs with the poller's release: the NIC's reads of the slots below come before
        // our writes, and what it wrote is visible.
        PollWord(self.poll().load(Acquire)).completed()
    }
}

/// Bits of the index in the word `reserved` where posters count packets. A carry of the index beyond them
/// is in the packet number's bits, so that one addition hands out both, modulo 2^64.
pub(crate) const INDEX_BITS: u32 = 40;

/// The word `reserved` before the first work request, whose packet number is `psn`.
pub(crate) fn first_reserved(psn: u32) -> u64 {
    u64::from(psn) << INDEX_BITS
}

/// The index in such a word; `near` is less than 2^39 away from it.
pub(crate) fn index_of(word: u64, near: u64) -> u64 {
    let above = 64 - INDEX_BITS;
    near.wrapping_add(((word.wrapping_sub(near) << above) as i64 >> above) as u64)
}

/// A reservation of a poster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// The first index.
    pub(crate) base: u64,
    /// The first packet number, 24 bits, where posters count them.
    pub(crate) packet: u32,
}

/// The index up to which all are reserved.
#[inline]
pub(crate) fn reserved<R: Ring>(ring: &R, order: std::sync::atomic::Ordering) -> u64 {
    let word = ring.reserved().load(order);
    if ring.counts_packets() { index_of(word, ring.completed()) } else { word }
}

/// Takes `n` consecutive indexes if all of them have room, and `packets` packet numbers. `n` is at most the
/// depth.
///
/// Nothing is taken otherwise, so a poster that gives up leaves no hole behind.
#[inline]
pub(crate) fn try_reserve<R: Ring>(ring: &R, n: u64, packets: u32) -> Option<Reserved> {
    let amount = n + (u64::from(packets) << INDEX_BITS);
    let mut word = ring.reserved().load(Relaxed);
    loop {
        let base = if ring.counts_packets() { index_of(word, ring.completed()) } else { word };
        if !has_room(ring, base, n) {
            return None;
        }
        let next = word.wrapping_add(amount);
        match ring.reserved().compare_exchange(word, next, Relaxed, Relaxed) {
            Ok(_) => {
                let packet = (word.wrapping_sub(base) >> INDEX_BITS) as u32;
                return Some(Reserved { base, packet });
            }
            Err(now) => word = now,
        }
    }
}

/// Whether the slots of `[base, base + n)` are free to be written.
#[inline]
pub(crate) fn has_room<R: Ring>(ring: &R, base: u64, n: u64) -> bool {
    base + n <= ring.completed() + ring.depth() - ring.unused()
}

/// Work that ends on a quarter of the ring or spans one is signalled whatever its poster asked for:
/// room is made by completions alone.
#[inline]
pub(crate) fn must_signal<R: Ring>(ring: &R, base: u64, n: u64) -> bool {
    let quarter = ring.log_depth() - 2;
    base >> quarter != (base + n) >> quarter
}

/// Makes written work of `[base, base + n)` known to the NIC, or leaves that to whoever is ringing
/// now. On return somebody has rung for it or is obliged to.
#[inline]
pub(crate) fn publish<R: Ring>(ring: &R, base: u64, n: u64) {
    mark_ready(ring, base, n);
    // A poster's increment either comes before the value the combiner last saw, and then acquire
    // shows the combiner its ready bits on the next pass; or it makes the combiner's exchange fail.
    let token = ring.ring_token().fetch_add(1, AcqRel);
    if token == 0 || token == OFFERED {
        combine(ring, token + 1);
    }
}

/// The combiner, which holds the ring token: rings for everything that is ready until nobody has
/// asked again. `seen` is the token's value when the caller took it.
fn combine<R: Ring>(ring: &R, mut seen: u32) {
    let mut passes = 0;
    loop {
        ring_ready(ring);
        match ring.ring_token().compare_exchange(seen, 0, AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
        passes += 1;
        if passes % ring.most_passes() == 0 {
            if !offer_token(ring) {
                return;
            }
            seen = 1;
        }
    }
}

/// For a combiner that others never let go. A poster that asks while the token is offered finds
/// [`OFFERED`] and takes over; false then. True: nobody came, and the caller holds the token still.
///
/// Exactly one of the two changes the word, so there is one holder; and its acquire shows it all the
/// bits whose posters had asked before the offer, so their work is rung.
#[cold]
fn offer_token<R: Ring>(ring: &R) -> bool {
    ring.ring_token().exchange(OFFERED, AcqRel);
    ring.pause();
    ring.ring_token().compare_exchange(OFFERED, 1, AcqRel, Acquire).is_ok()
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

/// One pass of the combiner over everything that is ready.
#[inline]
fn ring_ready<R: Ring>(ring: &R) {
    // Only the combiner writes `published`, and the token orders one after another.
    let from = ring.published().load(Relaxed);
    let to = ready_until(ring, from);
    if to != from {
        announce(ring, to);
    }
}

/// Tells the NIC that every index below `next` may be executed. Combiner only.
#[inline]
fn announce<R: Ring>(ring: &R, next: u64) {
    let record = ring.record(next);
    let Some((doorbell, rung)) = ring.doorbell(next) else {
        ring.published().store(next, Relaxed);
        if let Some((record, value)) = record {
            record.store(value, Release);
        }
        return;
    };
    // Release: a device may read the record ahead of the doorbell, and must find the WQEs. Kernels
    // pay for that only where there is such a device; on x86-64 it is free.
    if let Some((record, value)) = record {
        record.store(value, Release);
    }
    // The doorbell's release covers `published`, which is therefore never behind what a poller sees
    // completed.
    ring.published().store(next, Relaxed);
    doorbell.store(rung, Release);
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

/// The poll lock of a queue, held. Dropping it stores `completed` and gives the lock back, also
/// when the poller panics.
pub(crate) struct Poller<'r, R: Ring> {
    ring: &'r R,
    completed: u64,
}

/// Takes the poll lock unless somebody else is polling the queue's CQ.
#[inline]
pub(crate) fn try_lock<R: Ring>(ring: &R) -> Option<Poller<'_, R>> {
    let free = PollWord(ring.poll().load(Relaxed));
    if free.locked() {
        return None;
    }
    // Acquire, pairs with the last poller's release: what that poller saw of the CQ.
    ring.poll().compare_exchange(free.0, free.0 | PollWord::LOCKED, Acquire, Relaxed).ok()?;
    Some(Poller { ring, completed: free.completed() })
}

/// Work that a completion's 16-bit counter names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Published work that is not yet counted as done.
    InFlight(u64),
    /// Work whose `published` is not to be seen yet. In a collapsed CQ also what was counted before.
    NotYet,
    /// No work that the ring could hold. In a collapsed CQ, what was counted before.
    Never,
}

impl<R: Ring> Poller<'_, R> {
    /// Everything below this index is done.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Rebuilds the 64-bit index behind a CQE's 16-bit counter.
    #[inline]
    pub(crate) fn place(&self, wqe_counter: u16) -> Place {
        let completed = self.completed;
        let index = completed + u64::from(wqe_counter.wrapping_sub(completed as u16));
        // Stored before the doorbell's release, so the CQE's acquire brings it along, unless the
        // NIC went by the record alone.
        if index < self.ring.published().load(Relaxed) {
            Place::InFlight(index)
        } else if index < completed + self.ring.depth() {
            Place::NotYet
        } else {
            Place::Never
        }
    }

    /// Hands the slots below `upto` back to posters when the lock is given back.
    #[inline]
    pub(crate) fn retire(&mut self, upto: u64) {
        self.completed = self.completed.max(upto);
    }
}

impl<R: Ring> Drop for Poller<'_, R> {
    #[inline]
    fn drop(&mut self) {
        // Release, pairs with the acquires in `completed` and `try_lock`.
        self.ring.poll().store(PollWord::new(self.completed, false).0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, AtomicU64};

    /// A queue of one thread whose doorbell may call for more work, as other posters do.
    #[derive(Default)]
    struct Alone {
        reserved: AtomicU64,
        published: AtomicU64,
        poll: AtomicU64,
        ring_token: AtomicU32,
        ready: AtomicU64,
        record: AtomicU32,
        doorbell: AtomicU64,
        /// Posts that come in the middle of a combiner's pass.
        beside: Cell<u32>,
        /// One more comes while the token is offered.
        takes_over: Cell<bool>,
        passes: Cell<u32>,
        handed_over_after: Cell<u32>,
    }

    impl Alone {
        fn post(&self) {
            // Every index is done as soon as it is published.
            self.poll.store(PollWord::new(self.published.load(Relaxed), false).0, Relaxed);
            let got = try_reserve(self, 1, 0).expect("a ring of 64 has room");
            publish(self, got.base, 1);
        }
    }

    impl Ring for Alone {
        type Counter = AtomicU64;
        type Poll = AtomicU64;
        type Token = AtomicU32;
        type Record = AtomicU32;
        type Doorbell = AtomicU64;

        fn log_depth(&self) -> u32 {
            6
        }
        fn reserved(&self) -> &AtomicU64 {
            &self.reserved
        }
        fn published(&self) -> &AtomicU64 {
            &self.published
        }
        fn poll(&self) -> &AtomicU64 {
            &self.poll
        }
        fn ring_token(&self) -> &AtomicU32 {
            &self.ring_token
        }
        fn ready(&self, _: usize) -> &AtomicU64 {
            &self.ready
        }
        fn record(&self, _: u64) -> Option<(&AtomicU32, u32)> {
            Some((&self.record, 0))
        }
        fn doorbell(&self, _: u64) -> Option<(&AtomicU64, u64)> {
            // Once in every pass, before the doorbell is rung.
            self.passes.set(self.passes.get() + 1);
            if let Some(left) = self.beside.get().checked_sub(1) {
                self.beside.set(left);
                self.post();
            }
            Some((&self.doorbell, 1))
        }
        fn pause(&self) {
            if self.takes_over.get() && self.handed_over_after.get() == 0 {
                self.handed_over_after.set(self.passes.get());
                self.post();
            }
        }
    }

    #[test]
    fn a_combiner_hands_over_after_a_bounded_number_of_passes() {
        let most = Alone::default().most_passes();
        for takes_over in [true, false] {
            let posts = 5 * most;
            let ring = Alone {
                beside: Cell::new(posts),
                takes_over: Cell::new(takes_over),
                ..Alone::default()
            };
            ring.post();
            let expected = if takes_over { most } else { 0 };
            assert_eq!(ring.handed_over_after.get(), expected);
            let all = u64::from(1 + posts + u32::from(takes_over));
            assert_eq!(ring.published.load(Relaxed), all, "work was left unrung");
            assert_eq!(ring.ring_token.load(Relaxed), 0);
        }
    }

    #[test]
    fn a_poller_that_panics_gives_the_lock_back() {
        let ring = Alone::default();
        let poll = std::panic::AssertUnwindSafe(|| {
            let mut poller = try_lock(&ring).expect("nobody polls");
            poller.retire(3);
            assert!(try_lock(&ring).is_none());
            panic!("on purpose");
        });
        std::panic::catch_unwind(poll).expect_err("it panics");
        assert_eq!(ring.completed(), 3);
        assert!(try_lock(&ring).is_some());
    }

    #[test]
    fn a_completion_is_placed_counted_later_or_refused() {
        let ring = Alone::default();
        ring.poll.store(PollWord::new(0x1_fff0, false).0, Relaxed);
        ring.published.store(0x2_0004, Relaxed);
        let poller = try_lock(&ring).expect("nobody polls");
        assert_eq!(poller.place(0xfff0), Place::InFlight(0x1_fff0));
        assert_eq!(poller.place(3), Place::InFlight(0x2_0003));
        assert_eq!(poller.place(4), Place::NotYet);
        assert_eq!(poller.place(0x2f), Place::NotYet);
        assert_eq!(poller.place(0x30), Place::Never);
        assert_eq!(poller.place(0xffef), Place::Never);
    }
}
