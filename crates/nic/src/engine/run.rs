//! Running a send queue: fetch, parse, execute, retire, in order.

use super::Core;
use super::execute::{self, Delivery, Env, Started, Stop, Work};
use super::net;
use crate::AsyncEvent;
use crate::qp::QpState;
use crate::qp::send::SendQueue;
use crate::violation::Rule;
use warpverbs_mem::{Block, SendRing};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::flags::Completion;
use warpverbs_mlx5::num::WqeIndex;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{self, Position, Wqe, WqeViolation};
use zerocopy::{IntoBytes, transmute_ref};

/// A WQE that was started and is not finished.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) ticket: Ticket,
    pub(crate) work: Work,
    pub(crate) delivery: Option<Delivery>,
    /// A READ or an atomic.
    pub(crate) reads: bool,
}

/// What retiring a WQE needs to know of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) index: u64,
    pub(crate) wqebbs: u64,
    pub(crate) opcode: SendOpcode,
    pub(crate) completion: Completion,
    pub(crate) bytes: u64,
    /// Bytes for the CQE.
    pub(crate) brought: u32,
}

impl Ticket {
    /// Of the WQE at `index`, before it is known what it brings.
    #[inline]
    pub(crate) fn of(wqe: &Wqe<'_>, index: u64) -> Self {
        Self {
            index,
            wqebbs: wqe.wqebbs() as u64,
            opcode: wqe.op.opcode(),
            completion: wqe.flags.completion,
            bytes: wqe.op.byte_len(),
            brought: 0,
        }
    }
}

/// How far a turn of a QP came.
pub(crate) struct Ran {
    pub(crate) done: u32,
    pub(crate) bytes: u64,
    /// Copies are under way.
    pub(crate) moving: bool,
}

pub(crate) enum Advance {
    /// A WQE was retired, failed or flushed.
    Done,
    /// A WQE was started and is not finished.
    Started,
    /// So many were handed to another device.
    Posted(u32),
    /// Nothing before copies end.
    Moving,
    /// Nothing before something happens.
    Nothing,
}

impl Core {
    /// One turn of the QP in `slot`, which is taken off the run list and comes back to its end if
    /// it has more to do.
    pub(crate) fn run_queue(&mut self, slot: u32, budget: u32) -> Ran {
        let from = self.moved(slot);
        let mut ran = Ran { done: self.burst(slot, budget), bytes: 0, moving: false };
        let mut started = 0;
        let again = loop {
            ran.bytes = self.moved(slot) - from;
            if ran.done + started >= budget || ran.bytes >= self.slice_bytes {
                ran.moving |= started > 0;
                break true;
            }
            match self.advance(slot, budget - ran.done - started) {
                Advance::Done => ran.done += 1,
                Advance::Started => started += 1,
                Advance::Posted(count) => started += count,
                // A connection says when it is done.
                Advance::Moving if self.sends.get(slot).is_some_and(|q| q.remote) => break false,
                Advance::Moving => {
                    ran.moving = true;
                    break true;
                }
                Advance::Nothing => break false,
            }
        };
        if let Some(q) = self.sends.get_mut(slot) {
            q.queued = again;
            if again {
                self.run.push_back(slot);
            }
        }
        ran
    }

    /// Bytes that the QP in `slot` has moved so far.
    fn moved(&self, slot: u32) -> u64 {
        self.sends.get(slot).map_or(0, |q| q.stats.bytes)
    }

    #[inline]
    fn advance(&mut self, slot: u32, budget: u32) -> Advance {
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        if !q.flight.is_empty()
            && let Some(advance) = self.advance_flight(slot)
        {
            return advance;
        }
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        match q.state {
            QpState::Rts if q.stuck || q.wake.is_some() => idle(q),
            QpState::Rts if q.poison.is_some() => self.fail_poisoned(slot),
            QpState::Rts if q.next != q.posted && q.proxied => self.carry(slot, budget),
            QpState::Rts if q.next != q.posted => self.start_next(slot),
            QpState::Err | QpState::Sqe if q.next != q.posted && q.flight.is_empty() => {
                self.flush_next(slot);
                Advance::Done
            }
            QpState::Sqd if !q.drained && (q.flight.is_empty() || self.net.is_drained(slot)) => {
                q.drained = true;
                let qpn = q.qpn.get();
                self.events.push(AsyncEvent::SqDrained { qpn });
                Advance::Nothing
            }
            _ => idle(q),
        }
    }

    /// Lets the first WQE in flight go on. `None`: it waits, and a later one may start.
    fn advance_flight(&mut self, slot: u32) -> Option<Advance> {
        let Self { sends, keys, slice_bytes, .. } = self;
        let q = sends.get_mut(slot)?;
        let first = q.flight.front_mut()?;
        match first.work.advance(*slice_bytes, keys) {
            Ok(false) => {
                // Slices of a long message take turns with other QPs.
                return (!first.work.is_issued()).then_some(Advance::Moving);
            }
            Ok(true) => {
                let Flight { ticket, delivery, .. } = q.flight.pop_front()?;
                self.release_atomic(slot);
                self.finish(slot, ticket, delivery);
            }
            Err(fault) => {
                let Flight { ticket, delivery, .. } = q.flight.pop_front()?;
                self.release_atomic(slot);
                self.fail_midway(slot, &ticket, delivery, fault);
            }
        }
        Some(Advance::Done)
    }

    pub(crate) fn release_atomic(&mut self, slot: u32) {
        if self.atomic_owner == Some(slot) {
            self.atomic_owner = None;
        }
    }

    /// Retires a WQE whose bytes are all in place.
    #[inline]
    pub(crate) fn finish(&mut self, slot: u32, ticket: Ticket, delivery: Option<Delivery>) {
        if let Some(delivery) = &delivery
            && !self.deliver(delivery)
        {
            // The receiver went away before it could answer.
            return self.fail_ticket(slot, &ticket, Syndrome::TransportRetryExc, None);
        }
        let Some(q) = self.sends.get_mut(slot) else { return };
        if q.state.flushes_sends() {
            return self.fail_ticket(slot, &ticket, Syndrome::WrFlush, None);
        }
        q.retired = ticket.index + ticket.wqebbs;
        q.stats.wqes.add(ticket.opcode, 1);
        q.stats.bytes += ticket.bytes;
        if ticket.completion.is_signaled() {
            let (qpn, upto) = (q.qpn, q.retired);
            let wqe_counter = ticket.index as u16;
            let (opcode, byte_cnt) = (ticket.opcode, ticket.brought);
            let cqe = Cqe::Requester { qpn, wqe_counter, opcode, byte_cnt };
            self.complete_send(slot, cqe, upto);
            self.raise_completion(slot, ticket.completion);
        }
    }

    /// Fetches, parses and starts the next WQE.
    #[inline]
    fn start_next(&mut self, slot: u32) -> Advance {
        let Self { sends, keys, receives, srqs, by_qpn, events, net, .. } = self;
        let Some(q) = sends.get_mut(slot) else { return Advance::Nothing };
        let Some(ring) = &q.ring else { return self.consume(slot) };
        let index = q.next;
        let block = ring.load(index);
        let (raw, parsed) = match read_wqe(q, ring, &block, index, &mut self.long) {
            Ok(read) => read,
            Err((wqebbs, rule)) => {
                return self.refuse(slot, transmute_ref!(&block), wqebbs, rule);
            }
        };
        if !q.snapshot.is_empty()
            && let Some(rule) = rewritten(q, index, raw)
        {
            self.report_send(slot, index, rule);
            return self.start_next_unwatched(slot);
        }
        let ticket = Ticket::of(&parsed, index);
        if q.remote
            && let Some(posted) = net::post(net, keys, q, &parsed)
        {
            return match posted {
                Ok(started) => self.started(slot, ticket, started),
                Err(stop) => self.stopped(slot, ticket, stop),
            };
        }
        let (scratch, atomic_owner) = (&mut *self.scratch, &mut self.atomic_owner);
        let slice = self.slice_bytes;
        let mut env = Env { keys, receives, srqs, by_qpn, events, scratch, atomic_owner, slice };
        match execute::execute(&mut env, q, &parsed) {
            Ok(started) => self.started(slot, ticket, started),
            Err(stop) => self.stopped(slot, ticket, stop),
        }
    }

    /// As [`Self::start_next`], when a rewrite was reported: hardware executes what it fetches.
    #[cold]
    fn start_next_unwatched(&mut self, slot: u32) -> Advance {
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        let snapshot = std::mem::take(&mut q.snapshot);
        let advance = self.start_next(slot);
        if let Some(q) = self.sends.get_mut(slot) {
            q.snapshot = snapshot;
        }
        advance
    }

    #[inline]
    fn started(&mut self, slot: u32, mut ticket: Ticket, started: Started) -> Advance {
        let Started { work, brought, delivery } = started;
        ticket.brought = brought;
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        q.next = ticket.index + ticket.wqebbs;
        q.restore_retries();
        if work.is_none() && q.flight.is_empty() {
            self.finish(slot, ticket, delivery);
            return Advance::Done;
        }
        let work = work.unwrap_or(Work::Nothing);
        q.flight.push_back(Flight { ticket, work, delivery, reads: brought > 0 });
        Advance::Started
    }

    /// The next WQE cannot start, now or at all.
    #[cold]
    pub(crate) fn stopped(&mut self, slot: u32, ticket: Ticket, stop: Stop) -> Advance {
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        // What is in flight comes first: completions are in order, and so are errors.
        if matches!(stop, Stop::Drain) || !q.flight.is_empty() {
            return Advance::Moving;
        }
        match stop {
            Stop::Drain => Advance::Moving,
            Stop::NoAnswer => self.retry_answer(slot, &ticket),
            Stop::Refused { peer, refusal } => self.refused(slot, &ticket, peer, refusal, None),
            Stop::Local { syndrome, rule } => {
                self.pass(slot, &ticket);
                self.report_send(slot, ticket.index, rule);
                self.fail_ticket(slot, &ticket, syndrome, Some(rule));
                Advance::Done
            }
            Stop::Copy(error) => {
                self.pass(slot, &ticket);
                self.fail_copy(slot, &ticket, &error);
                Advance::Done
            }
        }
    }

    /// The WQE counts as started.
    pub(crate) fn pass(&mut self, slot: u32, ticket: &Ticket) {
        if let Some(q) = self.sends.get_mut(slot) {
            q.next = ticket.index + ticket.wqebbs;
        }
    }

    /// The bytes of the next slot are no WQE: it fails once what is in flight has ended.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        slot: u32,
        first: &[u8; 64],
        wqebbs: u64,
        rule: Rule,
    ) -> Advance {
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        if !q.flight.is_empty() {
            return Advance::Moving;
        }
        let ticket = Ticket {
            index: q.next,
            wqebbs: wqebbs.min(q.posted - q.next),
            opcode: SendOpcode::from_value(first[3]),
            completion: Completion::Always,
            bytes: 0,
            brought: 0,
        };
        self.pass(slot, &ticket);
        self.report_send(slot, ticket.index, rule);
        let syndrome = rule.syndrome().unwrap_or(Syndrome::LocalQpOp);
        self.fail_ticket(slot, &ticket, syndrome, Some(rule));
        Advance::Done
    }

    /// The announcement itself was wrong.
    #[cold]
    fn fail_poisoned(&mut self, slot: u32) -> Advance {
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        if !q.flight.is_empty() {
            return Advance::Moving;
        }
        let Some(rule) = q.poison.take() else { return Advance::Nothing };
        // A QP that only consumes has no bytes to name an opcode.
        let block = q.ring.as_ref().map_or([0; 8], |ring| ring.load(q.next));
        let first: &[u8; 64] = transmute_ref!(&block);
        self.refuse(slot, first, 1, rule)
    }
}

fn idle(q: &SendQueue) -> Advance {
    if q.flight.is_empty() { Advance::Nothing } else { Advance::Moving }
}

/// The WQE at `index`, whose first WQEBB is `block`, and its bytes. If it is none: how many WQEBBs it
/// says it has, and what is wrong.
#[inline(always)]
pub(crate) fn read_wqe<'a>(
    q: &SendQueue,
    ring: &SendRing,
    block: &'a Block,
    index: u64,
    long: &'a mut [Block; 16],
) -> Result<(&'a [u8], Wqe<'a>), (u64, Rule)> {
    let announced = q.posted - index;
    let at = Position { qpn: q.qpn, index: WqeIndex::of(index) };
    let first: &[u8; 64] = transmute_ref!(block);
    let wqebbs = wqe::peek(first) as u64;
    let raw = match wqebbs {
        1 => first.as_slice(),
        _ => fetch(ring, index, wqebbs, long),
    };
    match wqe::parse(raw, at) {
        Ok(wqe) if wqebbs <= announced => Ok((raw, wqe)),
        Ok(_) => Err((wqebbs, Rule::BeyondAnnounced { wqebbs, announced })),
        Err(violation) => Err((wqebbs, classify(violation, block, q.depth))),
    }
}

/// The WQEBBs of a long WQE, wrap undone.
fn fetch<'a>(ring: &SendRing, index: u64, wqebbs: u64, out: &'a mut [Block; 16]) -> &'a [u8] {
    let blocks = &mut out[..wqebbs as usize];
    for (i, block) in (index..).zip(blocks.iter_mut()) {
        *block = ring.load(i);
    }
    blocks.as_bytes()
}

/// Says more of a wrong index: a slot never written, or the WQE of an earlier lap.
#[cold]
pub(crate) fn classify(violation: WqeViolation, block: &Block, depth: u64) -> Rule {
    let fill = block.as_bytes()[0];
    if matches!(fill, 0 | 0xff) && block.as_bytes().iter().all(|&byte| byte == fill) {
        return Rule::NeverWritten { fill };
    }
    if let WqeViolation::Index { value, expected } = violation {
        let age = u64::from(expected.0.wrapping_sub(value.0));
        if age % depth == 0 && age / depth <= 2 {
            let laps = (age / depth) as u16;
            return Rule::StaleSlot { found: value.0, expected: expected.0, laps };
        }
    }
    Rule::Wqe(violation)
}

/// The first word that differs from what was there at the doorbell.
pub(crate) fn rewritten(q: &SendQueue, index: u64, raw: &[u8]) -> Option<Rule> {
    for (i, now) in raw.chunks_exact(64).enumerate() {
        let was = q.snapshot[((index + i as u64) % q.depth) as usize];
        for (word, (now, was)) in now.chunks_exact(8).zip(was).enumerate() {
            let found = now.try_into().map_or(0, u64::from_ne_bytes);
            if found != was {
                return Some(Rule::Rewritten { word: word as u8, found, was });
            }
        }
    }
    None
}
