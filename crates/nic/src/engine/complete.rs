//! Writing completions.

use super::tables::Tables;
use crate::clock::Time;
use crate::format::{Done, Ended, ErrorSide, Names, Qpn, SendOpcode};
use crate::objects::cq::{CompletionQueue, Delay, Due, Entry, Held, Unwritten};
use crate::objects::receive::Receives;
use crate::slots::{CqSlot, QpSlot};
use warpverbs_mem::Region;
use warpverbs_rdma::Status;

/// Writes CQEs, those that a fault holds back later, and collects CQs that overran.
#[derive(Debug, Default)]
pub(crate) struct Completer {
    /// Slices so far.
    pub(super) steps: u64,
    /// CQs that hold CQEs back.
    holding: Vec<CqSlot>,
    /// CQs that may be armed.
    armed: Vec<CqSlot>,
    /// CQs that overran in this slice.
    overrun: Vec<CqSlot>,
    /// QPs that waited for a CQE that was written in this slice.
    pub(super) woken: Vec<QpSlot>,
}

impl Completer {
    /// Writes a CQE of the send queue in `slot`; once it is visible, slots below `upto` may be
    /// reused.
    #[inline]
    pub(crate) fn complete_send(
        &mut self,
        tables: &mut Tables,
        time: &Time,
        slot: QpSlot,
        done: Done,
        upto: u64,
    ) {
        let Some(q) = tables.sends.live_mut(slot) else { return };
        q.stats.send_cqes += 1;
        let (at, names) = (q.cqes.cq, q.cqes.names);
        let payload = match done.what {
            Ended::Sent { .. } => q.cqes.payload.take(done.index),
            _ => None,
        };
        let Some(cq) = tables.cqs.live_mut(at) else { return };
        if cq.delay.is_none() && cq.held.is_empty() {
            q.progress.reported = upto;
            return self.publish(cq, at, (&done, names, payload.as_ref()));
        }
        let entry = Entry { done, slot, reports: Some(upto), names, payload };
        self.hold(tables, time, at, entry);
    }

    /// Writes a CQE of the receive queue in `slot`.
    pub(crate) fn complete_receive(
        &mut self,
        tables: &mut Tables,
        time: &Time,
        slot: QpSlot,
        done: Done,
    ) {
        let Some(rq) = tables.receives.live_mut(slot) else { return };
        let (at, names) = (rq.cqes.cq, rq.cqes.names);
        let payload = match done.what {
            Ended::Received { .. } => rq.cqes.payload.take(done.index),
            _ => None,
        };
        let Some(cq) = tables.cqs.live_mut(at) else { return };
        if cq.delay.is_some() || !cq.held.is_empty() {
            let entry = Entry { done, slot, reports: None, names, payload };
            self.hold(tables, time, at, entry);
        } else {
            self.publish(cq, at, (&done, names, payload.as_ref()));
        }
    }

    /// Writes a CQE now.
    #[inline]
    fn publish(
        &mut self,
        cq: &mut CompletionQueue,
        at: CqSlot,
        (done, names, payload): (&Done, Names, Option<&Region>),
    ) {
        if cq.publish(done, names, payload) == Err(Unwritten) {
            self.overrun.push(at);
        }
        if !cq.waiters.is_empty() {
            cq.wake(&mut self.woken);
        }
    }

    /// Completes a receive with an error.
    pub(crate) fn fail_receive(
        &mut self,
        tables: &mut Tables,
        time: &Time,
        slot: QpSlot,
        index: u64,
        (status, vendor): (Status, Option<u8>),
    ) {
        let srqn = srqn_of(tables, slot);
        let Some(rq) = tables.receives.live(slot) else { return };
        let (side, opcode) = (ErrorSide::Responder, SendOpcode::Nop);
        let what = Ended::Failed { side, opcode, status, vendor, srqn };
        let done = Done { qpn: Qpn::new(rq.qpn).unwrap_or_default(), index, ended: 0, what };
        self.complete_receive(tables, time, slot, done);
    }

    #[cold]
    fn hold(&mut self, tables: &mut Tables, time: &Time, at: CqSlot, entry: Entry) {
        let Some(cq) = tables.cqs.live_mut(at) else { return };
        let due = match cq.delay {
            Some(Delay::Steps(steps)) => Due::Step(self.steps.saturating_add(steps)),
            Some(Delay::Time(delay)) => {
                Due::Time(time.now().saturating_add(crate::clock::nanos(delay)))
            }
            None => Due::Step(self.steps),
        };
        cq.held.push_back(Held { due, entry });
        if !self.holding.contains(&at) {
            self.holding.push(at);
        }
    }

    /// The CQ at `slot` may be armed.
    pub(super) fn watch_arm(&mut self, slot: CqSlot) {
        if !self.armed.contains(&slot) {
            self.armed.push(slot);
        }
    }

    /// Looks at the arm words of all CQs that may be armed.
    #[inline]
    pub(super) fn look_at_arms(&mut self, tables: &mut Tables) {
        if !self.armed.is_empty() {
            // The CQ may be gone, or another have its place.
            self.armed.retain(|slot| tables.cqs.get_mut(*slot).is_some_and(|cq| cq.look_at_arm()));
        }
    }

    /// The CQs that overran since the last call.
    pub(crate) fn take_overrun(&mut self) -> Vec<CqSlot> {
        std::mem::take(&mut self.overrun)
    }

    pub(crate) fn has_overrun(&self) -> bool {
        !self.overrun.is_empty()
    }

    pub(crate) fn is_holding(&self) -> bool {
        !self.holding.is_empty()
    }

    /// Writes held CQEs that are due, in order.
    pub(crate) fn release_held(&mut self, tables: &mut Tables, now: u64) {
        let steps = self.steps;
        let is_due = |due| match due {
            Due::Step(step) => step <= steps,
            Due::Time(time) => time <= now,
        };
        let mut i = 0;
        while let Some(&slot) = self.holding.get(i) {
            // The CQ may be gone.
            let Some(cq) = tables.cqs.get_mut(slot) else {
                self.holding.swap_remove(i);
                continue;
            };
            while cq.held.front().is_some_and(|held| is_due(held.due)) {
                let Some(held) = cq.held.pop_front() else { break };
                if let Some(upto) = held.entry.reports
                    && let Some(q) = tables.sends.live_mut(held.entry.slot)
                {
                    q.progress.reported = q.progress.reported.max(upto);
                }
                let Entry { done, names, payload, .. } = &held.entry;
                self.publish(cq, slot, (done, *names, payload.as_ref()));
            }
            if cq.held.is_empty() {
                self.holding.swap_remove(i);
            } else {
                i += 1;
            }
        }
    }

    /// CQEs of the QP in `slot` that are held back are not written any more.
    pub(crate) fn forget_held(&mut self, tables: &mut Tables, slot: QpSlot) {
        for cq in &self.holding {
            if let Some(cq) = tables.cqs.get_mut(*cq) {
                cq.held.retain(|held| held.entry.slot != slot);
            }
        }
    }

    /// The earliest time at which a held CQE is due.
    pub(crate) fn held_until(&self, tables: &Tables) -> Option<u64> {
        let first = |slot: &CqSlot| match tables.cqs.get(*slot)?.held.front()?.due {
            Due::Time(time) => Some(time),
            Due::Step(_) => None,
        };
        self.holding.iter().filter_map(first).min()
    }

    /// A held CQE is due after more steps.
    pub(crate) fn holds_by_steps(&self, tables: &Tables) -> bool {
        let waits = |slot: &CqSlot| {
            let held = tables.cqs.get(*slot).and_then(|cq| cq.held.front());
            matches!(held.map(|held| held.due), Some(Due::Step(_)))
        };
        self.holding.iter().any(waits)
    }
}

/// Number of the SRQ of the QP in `slot`, 0 without.
pub(crate) fn srqn_of(tables: &Tables, slot: QpSlot) -> u32 {
    match tables.receives.live(slot).map(|rq| &rq.source) {
        Some(Receives::Shared(srq)) => tables.srqs.live(*srq).map_or(0, |srq| srq.srqn),
        _ => 0,
    }
}
