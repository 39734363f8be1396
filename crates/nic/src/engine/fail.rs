//! Errors: the right status on both sides, QPs to ERR, the rest flushed.

use super::outcome::Refusal;
use super::queues::Queues;
use crate::AsyncEvent;
use crate::engine::transition::{Failure, after_failure};
use crate::format::{Completion, Ended, ErrorSide, Head};
use crate::objects::in_flight::WqeInfo;
use crate::objects::receive::{ReceiveQueue, Receives};
use crate::objects::send::OnSendError;
use crate::objects::send::{Executor, FirstError};
use crate::slots::{QpSlot, SrqSlot};
use crate::violation::{QueueKind, Rule};
use warpverbs_mem::Kind;
use warpverbs_rdma::{QpState, Status};

impl Queues {
    /// A WQE of the send queue in `slot` fails, or is flushed. The first failure ends the queue.
    pub(crate) fn fail_wqe(
        &mut self,
        slot: QpSlot,
        info: &WqeInfo,
        status: Status,
        rule: Option<Rule>,
    ) {
        self.fail_wqe_as(slot, info, status, rule, None);
    }

    /// As [`Self::fail_wqe`], with what a device told beside it.
    pub(crate) fn fail_wqe_as(
        &mut self,
        slot: QpSlot,
        info: &WqeInfo,
        status: Status,
        rule: Option<Rule>,
        vendor: Option<u8>,
    ) {
        let Some(q) = self.tables.sends.live_mut(slot) else { return };
        // Later errors are consequences of the first one.
        let (status, vendor) = match q.state.flushes_sends() && status != Status::Flushed {
            true => (Status::Flushed, None),
            false => (status, vendor),
        };
        let flushed = status == Status::Flushed;
        let earlier = q.done(q.progress.next, Ended::Sent { opcode: info.opcode, brought: 0 });
        let unreported = q.progress.reported != info.index;
        q.progress.retire(info);
        let (told, oldest) = (q.format.flushes_each(), q.format.fails_oldest());
        if flushed {
            q.stats.flushed += 1;
        } else {
            q.stats.errors += 1;
            q.first_error.get_or_insert(FirstError { index: info.index, status, rule });
        }
        let (side, opcode) = (ErrorSide::Requester, info.opcode);
        let what = Ended::Failed { side, opcode, status, vendor, srqn: 0 };
        let done = q.done(info.index, what);
        let (upto, on_error, away) = (q.progress.retired, q.on_error, q.executor.is_away());
        if oldest && !flushed && unreported {
            self.complete_send(slot, earlier, info.index);
        }
        // CE = 1 asks for the first error alone.
        let asked = told && info.completion != Completion::OnFirstError;
        if !flushed || asked {
            self.complete_send(slot, done, upto);
        }
        if !flushed {
            let failure = match on_error {
                OnSendError::StopSends if !away => Failure::Send,
                // A connection fails as a whole.
                OnSendError::StopAll | OnSendError::StopSends => Failure::Fatal,
            };
            self.end_by(slot, failure, Some(status));
        }
    }

    /// The QP in `slot` goes to ERR; the event is raised if a `status` is given.
    pub(crate) fn end(&mut self, slot: QpSlot, status: Option<Status>) {
        self.end_by(slot, Failure::Fatal, status);
    }

    fn end_by(&mut self, slot: QpSlot, failure: Failure, status: Option<Status>) {
        let Some(q) = self.tables.sends.live_mut(slot) else { return };
        let to = after_failure(q.state, failure);
        if q.state == to {
            return;
        }
        (q.state, q.turn.wake, q.turn.waits) = (to, None, None);
        let (qpn, upto) = (q.qpn.get(), q.progress.reported);
        let done = |side| q.done(q.progress.next, Ended::Queue { side });
        let ended = [ErrorSide::Requester, ErrorSide::Responder].map(done);
        let (told, both) = (q.format.flushes_each(), q.format.ends_both_sides());
        if let Some(status) = status {
            self.diagnostics.events.push(AsyncEvent::QpFatal { qpn, status });
        }
        self.enqueue(slot);
        if to == QpState::Err {
            self.ended.push_back(slot);
        }
        let Some(rq) = self.tables.receives.live_mut(slot) else { return };
        rq.state = to;
        rq.flushing = to == QpState::Err && rq.executor == Executor::Proxy;
        if !told {
            self.complete_send(slot, ended[0], upto);
            if both {
                self.completer.complete_receive(&mut self.tables, &self.time, slot, ended[1]);
            }
        }
    }

    /// Flushes the next announced WQE of a send queue in ERR or SQE.
    pub(crate) fn flush_next(&mut self, slot: QpSlot) {
        let Some(q) = self.tables.sends.live_mut(slot) else { return };
        let Head { units, opcode, completion } = q.head();
        let info = WqeInfo {
            index: q.progress.next,
            units: units.min(q.progress.posted - q.progress.next),
            opcode,
            completion,
            bytes: 0,
            brought: 0,
        };
        self.tables.pass(slot, &info);
        self.fail_wqe(slot, &info, Status::Flushed, None);
    }

    /// Flushes every receive that the QP has taken, or that is posted to the QP itself. How many
    /// there were.
    pub(crate) fn flush_receives(&mut self, slot: QpSlot) -> u32 {
        let told = self.tables.sends.live(slot).is_some_and(|q| q.format.flushes_each());
        let mut flushed = 0;
        while let Some(rq) = self.tables.receives.live_mut(slot) {
            let next = match (rq.open.pop_front(), &mut rq.source) {
                (Some(index), _) => Ok(Some(index)),
                (None, Receives::Own(own)) => own.take_next(),
                (None, _) => Ok(None),
            };
            match next {
                Ok(None) => break,
                Ok(Some(index)) => {
                    rq.counts.flushed += 1;
                    flushed += 1;
                    if told {
                        self.fail_receive(slot, index, Status::Flushed);
                    }
                }
                Err(rule) => {
                    let qpn = rq.qpn;
                    self.diagnostics.report(qpn, QueueKind::Receive, 0, rule);
                    break;
                }
            }
        }
        flushed
    }

    /// Receives that were posted to a QP after it went to ERR. Whether there were any.
    pub(crate) fn flush_late_receives(&mut self, slot: QpSlot) -> bool {
        let ended = |rq: &ReceiveQueue| {
            // A record that must be copied is not polled.
            let polled = match &rq.source {
                Receives::Own(own) => own.record.kind() == Kind::Host,
                _ => true,
            };
            rq.state == QpState::Err && !rq.flushing && polled
        };
        self.tables.receives.live(slot).is_some_and(ended) && self.flush_receives(slot) > 0
    }

    pub(crate) fn end_srq(&mut self, slot: Option<SrqSlot>) {
        if let Some(srq) = slot.and_then(|slot| self.tables.srqs.live_mut(slot)) {
            srq.dead = true;
            self.diagnostics.events.push(AsyncEvent::SrqError { srqn: srq.srqn });
        }
    }

    /// A request of the peer was refused, which ends this QP.
    pub(super) fn end_refusing(&mut self, slot: QpSlot, refusal: Option<Refusal>) {
        if self.tables.sends.live(slot).is_none_or(|q| q.state == QpState::Err) {
            return;
        }
        let qpn = self.tables.receives.live(slot).map_or(0, |rq| rq.qpn);
        if let Some((_, rule)) = refusal.as_ref().and_then(Refusal::rule) {
            self.report_received(slot, refusal.as_ref(), rule);
        }
        let event = match refusal {
            Some(Refusal::Operational { .. }) => None,
            Some(Refusal::Access(_)) => Some(AsyncEvent::QpAccessError { qpn }),
            _ => Some(AsyncEvent::QpRequestError { qpn }),
        };
        if let Some(event) = event {
            self.diagnostics.events.push(event);
        }
        self.end(slot, event.is_none().then_some(Status::LocalQpOperation));
    }

    /// Names the rule that a packet, or a receive for it, broke. A fault of an SRQ ends it.
    fn report_received(&mut self, slot: QpSlot, refusal: Option<&Refusal>, rule: Rule) {
        let Some(rq) = self.tables.receives.live(slot) else { return };
        let shared = match rq.source {
            Receives::Shared(srq) => Some(srq),
            _ => None,
        };
        let queue = if shared.is_some() { QueueKind::Shared } else { QueueKind::Receive };
        let (index, operational) = match refusal {
            Some(Refusal::Operational { receive, .. }) => (receive.unwrap_or(0), true),
            Some(Refusal::Invalidation { receive, .. }) => (*receive, false),
            _ => (0, false),
        };
        self.diagnostics.report(rq.qpn, queue, index, rule);
        if operational && !matches!(rule, Rule::Key { .. } | Rule::CopyFailed { .. }) {
            self.end_srq(shared);
        }
    }

    /// A device refused a request that passed every check: nothing after it can be posted.
    #[cold]
    pub(super) fn reject(&mut self, slot: QpSlot, index: u64, rule: Rule) {
        let Some(q) = self.tables.sends.live_mut(slot) else { return };
        let status = rule.status().unwrap_or(Status::LocalQpOperation);
        q.stats.errors += 1;
        q.first_error.get_or_insert(FirstError { index, status, rule: Some(rule) });
        self.report_send(slot, index, rule);
        self.end(slot, Some(status));
    }

    /// Flushes the work of a QP in ERR, once its backend holds none of it. The receive that is
    /// `broken` fails with its own status.
    pub(super) fn finish_flush(&mut self, slot: QpSlot, broken: Option<(u64, Status)>) {
        while let Some(flight) =
            self.tables.sends.live_mut(slot).and_then(|q| q.progress.in_flight.pop_front())
        {
            self.fail_wqe(slot, &flight.info, Status::Flushed, None);
        }
        if let Some((index, status)) = broken
            && self.tables.receives.live_mut(slot).is_some_and(|rq| rq.close(index))
        {
            self.fail_receive(slot, index, status);
        }
        if let Some(rq) = self.tables.receives.live_mut(slot) {
            rq.flushing = false;
        }
        self.flush_ended(slot);
        self.enqueue(slot);
    }

    /// Flushes the receives of a QP in ERR that no other device has.
    pub(super) fn flush_ended(&mut self, slot: QpSlot) {
        self.flush_receives(slot);
        let Some(rq) = self.tables.receives.live(slot) else { return };
        match rq.source {
            Receives::Shared(_) => {
                let event = AsyncEvent::LastWqeReached { qpn: rq.qpn };
                self.diagnostics.events.push(event);
            }
            _ => self.schedule.watch(slot),
        }
    }
}
