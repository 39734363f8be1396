//! The part common to all QPs, of every backend: the only code that writes
//! CQEs, raises events and changes a QP's state.

use super::complete::{Completer, srqn_of};
use super::copies::Fault;
use super::diagnostics::Diagnostics;
use super::outcome::{Delivery, Started, Stop};
use super::report::Report;
use super::schedule::Scheduler;
use super::tables::Tables;
use crate::AsyncEvent;
use crate::clock::Time;
use crate::format::{Completion, Done, Ended, Qpn, ReceivedKind, SendOpcode};
use crate::objects::in_flight::{InFlight, WqeInfo};
use crate::objects::send::{Executor, SendQueue};
use crate::slots::QpSlot;
use crate::violation::{QueueKind, Rule};
use std::collections::VecDeque;
use warpverbs_rdma::Status;

/// How far the next WQE of a QP came.
pub(crate) enum Advance {
    /// A WQE was retired, failed or flushed.
    Done,
    /// A WQE was started and is not finished.
    Started,
    /// This many were handed to another device.
    Posted(u32),
    /// Nothing before something that is under way has ended.
    Moving,
    /// Nothing before something happens.
    Nothing,
}

/// See the module.
pub(crate) struct Queues {
    pub(crate) tables: Tables,
    pub(super) schedule: Scheduler,
    pub(super) completer: Completer,
    pub(crate) diagnostics: Diagnostics,
    pub(super) time: Time,
    /// QPs that went to ERR and whose backends do not know it yet.
    pub(super) ended: VecDeque<QpSlot>,
    /// WQEs announced to a QP that has nothing under way are not read.
    pub(super) consume_only: bool,
}

impl Queues {
    /// Wakes QPs whose timer has run out, and writes held CQEs that are due.
    #[inline]
    pub(super) fn go_on(&mut self) {
        if self.schedule.has_timers() {
            let now = self.time.now();
            self.schedule.wake(&mut self.tables.sends, now);
        }
        if self.completer.is_holding() {
            let now = self.time.now();
            self.completer.release_held(&mut self.tables, now);
        }
    }

    /// Puts a QP on the run list, once.
    #[inline]
    pub(crate) fn enqueue(&mut self, slot: QpSlot) {
        if let Some(q) = self.tables.sends.live_mut(slot) {
            self.schedule.enqueue(q);
        }
    }

    /// Writes a CQE of the send queue in `slot`, see [`Completer::complete_send`].
    #[inline]
    pub(super) fn complete_send(&mut self, slot: QpSlot, done: Done, upto: u64) {
        self.completer.complete_send(&mut self.tables, &self.time, slot, done, upto);
    }

    /// Completes a receive with an error.
    pub(super) fn fail_receive(&mut self, slot: QpSlot, index: u64, status: Status) {
        self.completer.fail_receive(&mut self.tables, &self.time, slot, index, (status, None));
    }

    /// Records a violation of the send queue in `slot`.
    pub(super) fn report_send(&mut self, slot: QpSlot, index: u64, rule: Rule) {
        let qpn = self.tables.sends.live(slot).map_or(0, |q| q.qpn.get());
        self.diagnostics.report(qpn, QueueKind::Send, index, rule);
    }

    /// The payload of a message is in place: its receive is completed, unless its QP is gone or
    /// was reset or flushed meanwhile. False if it was.
    pub(crate) fn deliver(&mut self, delivery: &Delivery) -> bool {
        let Delivery { slot, qpn, kind, index, byte_cnt, solicited, from, .. } = *delivery;
        let Some(rq) = self.tables.receives.get_mut(slot) else { return false };
        if rq.qpn != qpn || rq.generation != delivery.generation || !rq.close(index) {
            return false;
        }
        rq.counts.receives += 1;
        rq.counts.bytes += u64::from(byte_cnt);
        let (pd, proxied, srqn) =
            (rq.pd, rq.executor == Executor::Proxy, srqn_of(&self.tables, slot));
        // For a proxied QP, the device has invalidated its key.
        if let (ReceivedKind::SendInvalidate(rkey), false) = (kind, proxied) {
            // It was checked at the start; if it failed by now, the key is gone anyway.
            let _ = self.tables.keys.invalidate(pd, rkey.0);
        }
        let qpn = Qpn::new(qpn).unwrap_or_default();
        let what = Ended::Received { kind, len: byte_cnt, srqn, solicited, from };
        let done = Done { qpn, index, ended: 0, what };
        self.completer.complete_receive(&mut self.tables, &self.time, slot, done);
        true
    }

    /// Retires a WQE whose bytes are all in place.
    #[inline]
    pub(crate) fn finish(&mut self, slot: QpSlot, info: WqeInfo, delivery: Option<Delivery>) {
        if let Some(delivery) = &delivery
            && !self.deliver(delivery)
        {
            // The receiver went away before it could answer.
            return self.fail_wqe(slot, &info, Status::RetryExceeded, None);
        }
        let Some(q) = self.tables.sends.live_mut(slot) else { return };
        if q.state.flushes_sends() {
            return self.fail_wqe(slot, &info, Status::Flushed, None);
        }
        q.progress.retire(&info);
        q.stats.wqes.add(info.opcode, 1);
        q.stats.bytes += info.bytes;
        if info.completion.is_signaled() {
            let (opcode, brought, upto) = (info.opcode, info.brought, q.progress.retired);
            let done = q.done(info.index, Ended::Sent { opcode, brought });
            self.complete_send(slot, done, upto);
            self.diagnostics.raise_completion(&self.tables, slot, info.completion);
        }
    }

    #[inline]
    fn started(&mut self, slot: QpSlot, mut info: WqeInfo, started: Started) -> Advance {
        let Started { away, brought, delivery } = started;
        info.brought = brought;
        let Some(q) = self.tables.sends.live_mut(slot) else { return Advance::Nothing };
        q.progress.next = info.index + info.units;
        q.restore_retries();
        q.format.passed(info.bytes);
        if !away && q.progress.in_flight.is_empty() {
            self.finish(slot, info, delivery);
            return Advance::Done;
        }
        q.progress.in_flight.push_back(InFlight { info, away, reads: brought > 0 });
        Advance::Started
    }

    /// The next WQE cannot start, now or at all.
    #[cold]
    pub(crate) fn stopped(&mut self, slot: QpSlot, info: WqeInfo, stop: Stop) -> Advance {
        let Some(q) = self.tables.sends.live_mut(slot) else { return Advance::Nothing };
        if matches!(stop, Stop::Wait) {
            return idle(q);
        }
        // WQEs in flight complete first: errors are reported in order, as completions are.
        if matches!(stop, Stop::Drain) || !q.progress.in_flight.is_empty() {
            return Advance::Moving;
        }
        match stop {
            Stop::Drain | Stop::Wait => Advance::Moving,
            Stop::NoAnswer => self.retry_answer(slot, &info),
            Stop::Refused { peer, refusal } => self.refused(slot, &info, peer, refusal, None),
            Stop::Local { status, rule } => {
                self.tables.pass(slot, &info);
                self.report_send(slot, info.index, rule);
                self.fail_wqe(slot, &info, status, Some(rule));
                Advance::Done
            }
            Stop::Copy(error) => {
                self.tables.pass(slot, &info);
                self.fail_copy(slot, &info, &error);
                Advance::Done
            }
        }
    }

    /// The next slot does not hold a valid WQE: it fails once all WQEs in flight have ended.
    #[cold]
    pub(crate) fn refuse(&mut self, slot: QpSlot, units: u64, rule: Rule) -> Advance {
        let Some(q) = self.tables.sends.live_mut(slot) else { return Advance::Nothing };
        if !q.progress.in_flight.is_empty() {
            return Advance::Moving;
        }
        let info = WqeInfo {
            index: q.progress.next,
            units: units.min(q.progress.posted - q.progress.next),
            opcode: q.head().opcode,
            completion: Completion::Always,
            bytes: 0,
            brought: 0,
        };
        self.tables.pass(slot, &info);
        self.report_send(slot, info.index, rule);
        let status = rule.status().unwrap_or(Status::LocalQpOperation);
        self.fail_wqe(slot, &info, status, Some(rule));
        Advance::Done
    }

    /// Fails the next WQE for a fault of its announcement.
    #[cold]
    pub(super) fn fail_deferred(&mut self, slot: QpSlot) -> Advance {
        let Some(q) = self.tables.sends.live_mut(slot) else { return Advance::Nothing };
        if !q.progress.in_flight.is_empty() {
            return Advance::Moving;
        }
        let Some(rule) = q.turn.deferred_error.take() else { return Advance::Nothing };
        self.refuse(slot, 1, rule)
    }

    /// A QP that only consumes: everything announced is done.
    pub(super) fn consume(&mut self, slot: QpSlot) -> Advance {
        let Some(q) = self.tables.sends.live_mut(slot) else { return Advance::Nothing };
        let upto = q.progress.posted;
        (q.progress.next, q.progress.retired) = (upto, upto);
        let done = q.done(upto - 1, Ended::Sent { opcode: SendOpcode::RdmaWrite, brought: 0 });
        self.complete_send(slot, done, upto);
        Advance::Done
    }

    /// Acts on a backend's answer to a WQE that it was given: started, or why not.
    #[inline]
    pub(super) fn submitted(
        &mut self,
        slot: QpSlot,
        info: WqeInfo,
        outcome: Result<Started, Stop>,
    ) -> Advance {
        match outcome {
            Ok(started) => self.started(slot, info, started),
            Err(stop) => self.stopped(slot, info, stop),
        }
    }

    /// Retires plain WRITEs that never were in flight.
    #[inline]
    fn executed(&mut self, slot: QpSlot, count: u32, bytes: u64, signaled: bool) {
        let Some(q) = self.tables.sends.live_mut(slot) else { return };
        let (upto, opcode) = (q.progress.next, SendOpcode::RdmaWrite);
        q.progress.retired = upto;
        q.progress.ended += u64::from(count);
        q.restore_retries();
        q.stats.wqes.add(opcode, u64::from(count));
        q.stats.bytes += bytes;
        if signaled {
            let done = q.done(upto - 1, Ended::Sent { opcode, brought: 0 });
            self.complete_send(slot, done, upto);
        }
    }

    /// Retires the oldest WQE in flight, that at `index`.
    fn moved(
        &mut self,
        slot: QpSlot,
        index: u64,
        delivery: Option<Delivery>,
        result: Result<(), Fault>,
    ) {
        let first = self.tables.sends.live_mut(slot).and_then(|q| q.progress.in_flight.pop_front());
        let Some(InFlight { info, .. }) = first else { return };
        debug_assert_eq!(info.index, index, "payload moves in order");
        match result {
            Ok(()) => self.finish(slot, info, delivery),
            Err(fault) => self.fail_midway(slot, &info, delivery, fault),
        }
    }

    /// Retires the WQE at `index` and all before it. How many of them a backend executed elsewhere.
    #[inline]
    fn retire(&mut self, slot: QpSlot, index: u64, failure: Option<(Status, Option<u8>)>) -> u32 {
        let mut away = 0;
        // The short way for what completes well without a CQE.
        if let Some(q) = self.tables.sends.live_mut(slot)
            && !q.state.flushes_sends()
        {
            let mut bytes = 0;
            while let Some(&InFlight { info, away: true, .. }) = q.progress.in_flight.front()
                && info.index < index
                && !info.completion.is_signaled()
            {
                q.progress.retire(&info);
                q.stats.wqes.add(info.opcode, 1);
                bytes += info.bytes;
                away += 1;
                q.progress.in_flight.pop_front();
            }
            q.stats.bytes += bytes;
        }
        while let Some(q) = self.tables.sends.live_mut(slot) {
            let Some(&InFlight { info, away: counts, .. }) = q.progress.in_flight.front() else {
                break;
            };
            if info.index > index {
                break;
            }
            q.progress.in_flight.pop_front();
            away += u32::from(counts);
            match failure.filter(|_| info.index == index) {
                Some((status, vendor)) => {
                    self.fail_wqe_as(slot, &info, status, None, vendor);
                }
                None => self.finish(slot, info, None),
            }
        }
        // Later WQEs may have waited for it.
        self.enqueue(slot);
        away
    }

    /// Ends every QP of a CQ that overran.
    #[cold]
    pub(crate) fn fail_overrun(&mut self) {
        for cq_slot in self.completer.take_overrun() {
            // Another CQ may have the slot by now.
            let Some(cq) = self.tables.cqs.get_mut(cq_slot).filter(|cq| cq.dead) else { continue };
            let (cqn, waiters) = (cq.cqn, cq.waiters.take());
            self.diagnostics.events.push(AsyncEvent::CqError { cqn });
            self.schedule.fail_waiting(&mut self.tables.sends, cq_slot, cqn, waiters);
            let users: Vec<QpSlot> = (0..self.tables.sends.high_water() as u32)
                .map(QpSlot)
                .filter(|&slot| {
                    self.tables.sends.get(slot).is_some_and(|q| q.cqes.cq == cq_slot)
                        || self.tables.receives.get(slot).is_some_and(|rq| rq.cqes.cq == cq_slot)
                })
                .collect();
            for slot in users {
                self.end(slot, Some(Status::LocalQpOperation));
            }
        }
    }

    /// Acts on what a backend reports. How many WQEs that it executed were retired.
    #[inline]
    pub(super) fn apply(&mut self, report: Report) -> u32 {
        match report {
            Report::Executed { slot, count, bytes, signaled } => {
                self.executed(slot, count, bytes, signaled);
                return count;
            }
            Report::Moved { slot, index, delivery, result } => {
                self.moved(slot, index, delivery.map(|delivery| *delivery), result);
            }
            Report::Sent { slot, index } => return self.retire(slot, index, None),
            Report::SendFailed { slot, index, status, vendor } => {
                return self.retire(slot, index, Some((status, vendor)));
            }
            Report::Received { slot, index, kind, byte_cnt, solicited, from } => {
                let Some(rq) = self.tables.receives.live(slot) else { return 0 };
                let (qpn, generation) = (rq.qpn, rq.generation);
                self.deliver(&Delivery {
                    slot,
                    qpn,
                    generation,
                    kind,
                    index,
                    byte_cnt,
                    solicited,
                    from,
                });
            }
            Report::ReceiveFailed { slot, index, status, vendor } => {
                // Else it would be flushed with those that are open.
                if self.tables.receives.live_mut(slot).is_some_and(|rq| rq.close(index)) {
                    let Self { completer, tables, time, .. } = self;
                    completer.fail_receive(tables, time, slot, index, (status, vendor));
                }
            }
            Report::Ready { slot } => self.enqueue(slot),
            Report::Refused { slot, refusal } => self.end_refusing(slot, refusal),
            Report::Rejected { slot, index, rule } => self.reject(slot, index, rule),
            Report::Ended { slot, status } => self.end(slot, status),
            Report::Flushed { slot, broken } => self.finish_flush(slot, broken),
            Report::Violation(violation) => self.diagnostics.log.push(violation),
            Report::Event(event) => self.diagnostics.events.push(event),
        }
        0
    }
}

pub(super) fn idle(q: &SendQueue) -> Advance {
    if q.progress.in_flight.is_empty() { Advance::Nothing } else { Advance::Moving }
}
