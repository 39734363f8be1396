//! Requests that the peer, a QP of this NIC, refuses or does not answer: over a network these are a
//! NAK or a timeout. The requester retries or fails, the peer fails a receive or goes to ERR.

use crate::AsyncEvent;
use crate::engine::copies::Fault;
use crate::engine::outcome::Delivery;
use crate::engine::outcome::Refusal;
use crate::engine::queues::{Advance, Queues};
use crate::format::SendOpcode;
use crate::objects::in_flight::WqeInfo;
use crate::objects::receive::Receives;
use crate::qp::{ack_timeout, rnr_delay};
use crate::slots::QpSlot;
use crate::violation::{KeySide, QueueKind, Rule};
use warpverbs_mem::MemError;
use warpverbs_rdma::Status;

/// `rnr_retry` of this value is infinite (IBTA 9.7.5.2.8).
const RNR_FOR_EVER: u8 = 7;

/// Whether bytes come from the peer to the requester.
fn brings(opcode: SendOpcode) -> bool {
    !matches!(
        opcode,
        SendOpcode::RdmaWrite
            | SendOpcode::RdmaWriteImm
            | SendOpcode::Send
            | SendOpcode::SendImm
            | SendOpcode::SendInval
    )
}

impl Queues {
    /// No QP answers: the WQE is tried again after the timeout, `retry` times.
    pub(crate) fn retry_answer(&mut self, slot: QpSlot, info: &WqeInfo) -> Advance {
        let Some(q) = self.tables.sends.live_mut(slot) else { return Advance::Nothing };
        q.stats.timeouts += 1;
        let timeout = q.attrs.timeout.and_then(ack_timeout);
        if timeout.is_some() && q.peer.retries_left == 0 {
            self.tables.pass(slot, info);
            self.fail_wqe(slot, info, Status::RetryExceeded, None);
            return Advance::Done;
        }
        q.peer.retries_left = q.peer.retries_left.saturating_sub(1);
        // Without a timeout a lost request is never sent again.
        let delay = timeout.map_or(u64::MAX, crate::clock::nanos);
        self.schedule.sleep(q, self.time.now().saturating_add(delay));
        Advance::Nothing
    }

    /// The peer has no receive: the WQE is tried again after its RNR timer, `rnr_retry` times.
    fn retry_receive(&mut self, slot: QpSlot, info: &WqeInfo, peer: QpSlot, timer: u8) -> Advance {
        if let Some(rq) = self.tables.receives.live_mut(peer) {
            rq.refuse = rq.refuse.saturating_sub(1);
        }
        let Some(q) = self.tables.sends.live_mut(slot) else { return Advance::Nothing };
        q.stats.rnr_naks += 1;
        match q.peer.rnr_left {
            0 => {
                self.tables.pass(slot, info);
                self.fail_wqe(slot, info, Status::RnrRetryExceeded, None);
                return Advance::Done;
            }
            RNR_FOR_EVER => {}
            _ => q.peer.rnr_left -= 1,
        }
        let delay = crate::clock::nanos(rnr_delay(timer));
        self.schedule.sleep(q, self.time.now().saturating_add(delay));
        Advance::Nothing
    }

    /// A copy engine failed, or memory was unmapped. Unless that is the requester's memory, both
    /// QPs fail: of an engine it is not known on which side.
    #[cold]
    pub(crate) fn fail_copy(&mut self, slot: QpSlot, info: &WqeInfo, error: &MemError) {
        tracing::warn!(%error, %slot, "copy failed");
        if matches!(*error, MemError::Unmapped { written, .. } if written == brings(info.opcode)) {
            return self.fail_wqe(slot, info, Status::LocalProtection, None);
        }
        let Some(q) = self.tables.sends.live(slot) else { return };
        let (from, to, peer) = (q.qpn.get(), q.peer.qpn, q.peer.slot);
        self.fail_wqe(slot, info, Status::RemoteOperation, None);
        if self.tables.receives.get(peer).is_some_and(|rq| rq.answers(from, to)) {
            self.end(peer, Some(Status::LocalQpOperation));
        }
    }

    /// A message that was begun cannot be moved to its end.
    #[cold]
    pub(crate) fn fail_midway(
        &mut self,
        slot: QpSlot,
        info: &WqeInfo,
        delivery: Option<Delivery>,
        fault: Fault,
    ) {
        let (side, rule) = match fault {
            Fault::Copy(error) => return self.fail_copy(slot, info, &error),
            Fault::Key { side, segment, error } => (side, Rule::Key { side, segment, error }),
        };
        let taken = delivery.map(|delivery| delivery.index);
        let refusal = match side {
            KeySide::Local => {
                self.report_send(slot, info.index, rule);
                return self.fail_wqe(slot, info, Status::LocalProtection, Some(rule));
            }
            KeySide::Remote => Refusal::Access(rule),
            KeySide::Receive => Refusal::Operational { rule, receive: taken },
        };
        let Some(q) = self.tables.sends.live(slot) else { return };
        let (from, to, peer) = (q.qpn.get(), q.peer.qpn, q.peer.slot);
        if self.tables.receives.get(peer).is_some_and(|rq| rq.answers(from, to)) {
            self.refused(slot, info, peer, refusal, taken);
        } else {
            self.fail_wqe(slot, info, Status::RetryExceeded, None);
        }
    }

    /// The peer refused a request: IBTA table "responder error behaviour".
    /// `taken` is the receive of a message that was begun.
    #[cold]
    pub(crate) fn refused(
        &mut self,
        slot: QpSlot,
        info: &WqeInfo,
        peer: QpSlot,
        refusal: Refusal,
        taken: Option<u64>,
    ) -> Advance {
        if let Refusal::NotReady { timer } = refusal {
            return self.retry_receive(slot, info, peer, timer);
        }
        let access = AsyncEvent::QpAccessError { qpn: self.tables.qpn_of(peer) };
        let request = AsyncEvent::QpRequestError { qpn: self.tables.qpn_of(peer) };
        // NAK for the requester, event and failed receive of the responder.
        let (nak, event, receive) = match refusal {
            Refusal::NotReady { .. } => return Advance::Nothing,
            Refusal::Invalid(_) => (Some(Status::RemoteInvalidRequest), Some(request), None),
            Refusal::Access(_) => {
                // A WRITE with immediate has a receive at hand by then.
                let consumes = info.opcode == SendOpcode::RdmaWriteImm;
                let receive = consumes.then_some(Status::LocalAccess);
                (Some(Status::RemoteAccess), Some(access), receive)
            }
            Refusal::TooLong(_) => {
                (Some(Status::RemoteInvalidRequest), Some(request), Some(Status::LocalLength))
            }
            Refusal::Operational { rule, receive } => {
                let fault = match rule {
                    Rule::Key { .. } => Status::LocalProtection,
                    _ => Status::LocalQpOperation,
                };
                (Some(Status::RemoteOperation), None, receive.map(|_| fault))
            }
            Refusal::Invalidation { .. } => {
                (None, Some(request), Some(Status::RemoteInvalidRequest))
            }
        };
        self.report_refusal(slot, info, peer, &refusal);
        if let Some(status) = nak {
            let rule = refusal.rule().map(|(_, rule)| rule);
            self.tables.pass(slot, info);
            self.fail_wqe(slot, info, status, rule);
        }
        if let Some(status) = receive
            && let Some(index) = self.tables.receive_of_refused(peer, taken)
        {
            self.fail_receive(peer, index, status);
        }
        if let Some(event) = event {
            self.diagnostics.events.push(event);
        }
        self.end(peer, event.is_none().then_some(Status::LocalQpOperation));
        if nak.is_none() { self.retry_answer(slot, info) } else { Advance::Done }
    }

    /// Names the broken rule, in the queue where the fault lies. A fault of an SRQ ends it.
    fn report_refusal(&mut self, slot: QpSlot, info: &WqeInfo, peer: QpSlot, refusal: &Refusal) {
        match refusal.rule() {
            Some((QueueKind::Send, rule)) => self.report_send(slot, info.index, rule),
            Some((_, rule)) => {
                let qpn = self.tables.qpn_of(peer);
                let index = match refusal {
                    Refusal::Operational { receive, .. } => receive.unwrap_or(0),
                    _ => 0,
                };
                let shared = match self.tables.receives.live(peer).map(|rq| &rq.source) {
                    Some(Receives::Shared(srq)) => Some(*srq),
                    _ => None,
                };
                let queue = if shared.is_some() { QueueKind::Shared } else { QueueKind::Receive };
                self.diagnostics.report(qpn, queue, index, rule);
                if !matches!(rule, Rule::Key { .. }) {
                    self.end_srq(shared);
                }
            }
            None => {}
        }
    }
}
