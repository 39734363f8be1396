//! Writing completions.

use super::Core;
use super::execute::Delivery;
use crate::AsyncEvent;
use crate::cq::{Delay, Due, Entry, Held, Overrun};
use crate::violation::QueueKind;
use warpverbs_mlx5::cqe::{Cqe, ErrorSide, ReceivedKind};
use warpverbs_mlx5::flags::Completion;
use warpverbs_mlx5::num::Qpn;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;

impl Core {
    /// Writes a CQE of the send queue in `slot`; once it is visible, slots below `upto` may be
    /// reused.
    #[inline]
    pub(crate) fn complete_send(&mut self, slot: u32, cqe: Cqe, upto: u64) {
        let Some(q) = self.sends.get_mut(slot) else { return };
        q.stats.send_cqes += 1;
        let Some(cq) = self.cqs.get_mut(q.cq) else { return };
        if cq.delay.is_none() && cq.held.is_empty() {
            q.reported = upto;
            if cq.publish(&cqe) == Err(Overrun) {
                self.overrun.push(q.cq);
            }
            return;
        }
        let cq = q.cq;
        self.hold(cq, Entry { cqe, slot, reports: Some(upto) });
    }

    /// Raises the event that CE = 3 asks for.
    #[inline]
    pub(crate) fn raise_completion(&mut self, slot: u32, completion: Completion) {
        if completion == Completion::AlwaysWithEvent
            && let Some(q) = self.sends.get(slot)
            && let Some(cq) = self.cqs.get(q.cq)
        {
            self.events.push(AsyncEvent::Completion { cqn: cq.cqn });
        }
    }

    /// Writes a CQE of the receive queue in `slot`.
    pub(crate) fn complete_receive(&mut self, slot: u32, cqe: Cqe) {
        let Some(cq_slot) = self.receives.get(slot).map(|rq| rq.cq) else { return };
        let Some(cq) = self.cqs.get_mut(cq_slot) else { return };
        if cq.delay.is_some() || !cq.held.is_empty() {
            self.hold(cq_slot, Entry { cqe, slot, reports: None });
        } else if cq.publish(&cqe) == Err(Overrun) {
            self.overrun.push(cq_slot);
        }
    }

    /// The payload of a message is in place: its receive is completed, unless its QP is gone or
    /// was reset or flushed meanwhile. False if it was.
    pub(crate) fn deliver(&mut self, delivery: &Delivery) -> bool {
        let Delivery { slot, qpn, kind, index, byte_cnt, solicited, .. } = *delivery;
        let Some(rq) = self.receives.get_mut(slot) else { return false };
        if rq.qpn != qpn || rq.life != delivery.life || !rq.close(index) {
            return false;
        }
        rq.receives += 1;
        rq.received_bytes += u64::from(byte_cnt);
        let (pd, proxied, srqn) = (rq.pd, rq.proxied, self.srqn_of(slot));
        // The key of a proxied QP's message is the device's, which has seen to it.
        if let (ReceivedKind::SendInvalidate(rkey), false) = (kind, proxied) {
            // It was checked at the start; if it failed by now, the key is gone anyway.
            let _ = self.keys.invalidate(pd, rkey.0);
        }
        let qpn = Qpn::new(qpn).unwrap_or_default();
        let wqe_counter = index as u16;
        let cqe = Cqe::Receive { qpn, wqe_counter, kind, byte_cnt, srqn, solicited };
        self.complete_receive(slot, cqe);
        true
    }

    /// Completes a receive with an error.
    pub(crate) fn fail_receive(&mut self, slot: u32, index: u64, syndrome: Syndrome) {
        self.fail_receive_as(slot, index, syndrome, syndrome.usual_vendor());
    }

    /// As [`Self::fail_receive`], with the vendor's syndrome.
    pub(crate) fn fail_receive_as(
        &mut self,
        slot: u32,
        index: u64,
        syndrome: Syndrome,
        vendor: u8,
    ) {
        let srqn = self.srqn_of(slot);
        let Some(rq) = self.receives.get(slot) else { return };
        let cqe = Cqe::Error {
            side: ErrorSide::Responder,
            qpn: Qpn::new(rq.qpn).unwrap_or_default(),
            wqe_counter: index as u16,
            opcode: SendOpcode::Nop,
            syndrome,
            vendor,
            srqn,
        };
        self.complete_receive(slot, cqe);
    }

    /// Number of the SRQ of the QP in `slot`, 0 without.
    fn srqn_of(&self, slot: u32) -> u32 {
        match self.receives.get(slot).map(|rq| &rq.source) {
            Some(crate::qp::receive::Receives::Shared(srq)) => {
                self.srqs.get(*srq).map_or(0, |srq| srq.srqn)
            }
            _ => 0,
        }
    }

    #[cold]
    fn hold(&mut self, cq_slot: u32, entry: Entry) {
        let now = self.time.now();
        let Some(cq) = self.cqs.get_mut(cq_slot) else { return };
        let due = match cq.delay {
            Some(Delay::Steps(steps)) => Due::Step(self.steps.saturating_add(steps)),
            Some(Delay::Time(time)) => Due::Time(now.saturating_add(crate::clock::nanos(time))),
            None => Due::Step(self.steps),
        };
        cq.held.push_back(Held { due, entry });
        if !self.holding.contains(&cq_slot) {
            self.holding.push(cq_slot);
        }
    }

    /// Writes held CQEs whose time has come, in order.
    pub(crate) fn release_held(&mut self) {
        let (steps, now) = (self.steps, self.time.now());
        let is_due = |due| match due {
            Due::Step(step) => step <= steps,
            Due::Time(time) => time <= now,
        };
        let mut i = 0;
        while let Some(&slot) = self.holding.get(i) {
            let Some(cq) = self.cqs.get_mut(slot) else {
                self.holding.swap_remove(i);
                continue;
            };
            while cq.held.front().is_some_and(|held| is_due(held.due)) {
                let Some(held) = cq.held.pop_front() else { break };
                if let Some(upto) = held.entry.reports
                    && let Some(q) = self.sends.get_mut(held.entry.slot)
                {
                    q.reported = q.reported.max(upto);
                }
                if cq.publish(&held.entry.cqe) == Err(Overrun) {
                    self.overrun.push(slot);
                }
            }
            if cq.held.is_empty() {
                self.holding.swap_remove(i);
            } else {
                i += 1;
            }
        }
    }

    /// CQEs of the QP in `slot` that are held back are not written any more.
    pub(crate) fn forget_held(&mut self, slot: u32) {
        for cq in &self.holding {
            if let Some(cq) = self.cqs.get_mut(*cq) {
                cq.held.retain(|held| held.entry.slot != slot);
            }
        }
    }

    /// The earliest time at which a held CQE may go.
    pub(crate) fn held_until(&self) -> Option<u64> {
        let first = |slot: &u32| match self.cqs.get(*slot)?.held.front()?.due {
            Due::Time(time) => Some(time),
            Due::Step(_) => None,
        };
        self.holding.iter().filter_map(first).min()
    }

    /// A held CQE goes after more steps.
    pub(crate) fn holds_by_steps(&self) -> bool {
        let waits = |slot: &u32| {
            let held = self.cqs.get(*slot).and_then(|cq| cq.held.front());
            matches!(held.map(|held| held.due), Some(Due::Step(_)))
        };
        self.holding.iter().any(waits)
    }

    /// Ends every QP of a CQ that overran.
    #[cold]
    pub(crate) fn fail_overrun(&mut self) {
        for cq_slot in std::mem::take(&mut self.overrun) {
            // Another CQ may have the slot by now.
            let Some(cq) = self.cqs.get(cq_slot).filter(|cq| cq.dead) else { continue };
            self.events.push(AsyncEvent::CqError { cqn: cq.cqn });
            let users: Vec<u32> = (0..self.sends.high_water() as u32)
                .filter(|&slot| {
                    self.sends.get(slot).is_some_and(|q| q.cq == cq_slot)
                        || self.receives.get(slot).is_some_and(|rq| rq.cq == cq_slot)
                })
                .collect();
            for slot in users {
                self.end(slot, Some(Syndrome::LocalQpOp));
            }
        }
    }

    /// Where the send queue in `slot` stands, for a violation.
    pub(crate) fn report_send(&mut self, slot: u32, index: u64, rule: crate::Rule) {
        let qpn = self.sends.get(slot).map_or(0, |q| q.qpn.get());
        self.report(qpn, QueueKind::Send, index, rule);
    }
}
