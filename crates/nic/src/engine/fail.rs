//! Errors: the right syndrome on both sides, QPs to ERR, the rest flushed.

use super::access::Refusal;
use super::flight::{Delivery, WqeInfo};
use super::queues::{Advance, Queues};
use super::tables::Tables;
use super::transfer::Fault;
use crate::AsyncEvent;
use crate::qp::receive::{ReceiveQueue, Receives};
use crate::qp::send::{Executor, FirstError};
use crate::qp::state::{Failure, after_failure};
use crate::qp::{OnSendError, QpState, ack_timeout, rnr_delay};
use crate::slots::{QpSlot, SrqSlot};
use crate::violation::{KeySide, QueueKind, Rule};
use warpverbs_mem::MemError;
use warpverbs_mlx5::cqe::{Cqe, ErrorSide};
use warpverbs_mlx5::flags::{Completion, Flags};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::peek;
use zerocopy::transmute_ref;

/// `rnr_retry` of this value is "for ever" (IBTA 9.7.5.2.8).
const RNR_FOR_EVER: u8 = 7;

impl Queues {
    /// A WQE of the send queue in `slot` fails, or is flushed. The first failure ends the queue.
    pub(crate) fn fail_wqe(
        &mut self,
        slot: QpSlot,
        info: &WqeInfo,
        syndrome: Syndrome,
        rule: Option<Rule>,
    ) {
        self.fail_wqe_as(slot, info, syndrome, rule, syndrome.usual_vendor());
    }

    /// As [`Self::fail_wqe`], with the vendor's syndrome.
    pub(crate) fn fail_wqe_as(
        &mut self,
        slot: QpSlot,
        info: &WqeInfo,
        syndrome: Syndrome,
        rule: Option<Rule>,
        vendor: u8,
    ) {
        let Some(q) = self.tables.sends.live_mut(slot) else { return };
        // After the first error, whatever else goes wrong is its consequence.
        let (syndrome, vendor) = match q.state.flushes_sends() && syndrome != Syndrome::WrFlush {
            true => (Syndrome::WrFlush, Syndrome::WrFlush.usual_vendor()),
            false => (syndrome, vendor),
        };
        let flushed = syndrome == Syndrome::WrFlush;
        q.retired = info.index + info.wqebbs;
        if flushed {
            q.stats.flushed += 1;
        } else {
            q.stats.errors += 1;
            q.first_error.get_or_insert(FirstError { index: info.index, syndrome, rule });
        }
        let cqe = Cqe::Error {
            side: ErrorSide::Requester,
            qpn: q.qpn,
            wqe_counter: info.index as u16,
            opcode: info.opcode,
            syndrome,
            vendor,
            srqn: 0,
        };
        let (upto, on_error, away) = (q.retired, q.on_error, q.executor.is_away());
        // CE = 1 asks for the first error alone.
        if !(flushed && info.completion == Completion::OnFirstError) {
            self.complete_send(slot, cqe, upto);
        }
        if !flushed {
            let failure = match on_error {
                OnSendError::StopSends if !away => Failure::Send,
                // A connection fails as a whole.
                OnSendError::StopAll | OnSendError::StopSends => Failure::Fatal,
            };
            self.end_by(slot, failure, Some(syndrome));
        }
    }

    /// The QP in `slot` goes to ERR; the event is raised if a `syndrome` is given.
    pub(crate) fn end(&mut self, slot: QpSlot, syndrome: Option<Syndrome>) {
        self.end_by(slot, Failure::Fatal, syndrome);
    }

    fn end_by(&mut self, slot: QpSlot, failure: Failure, syndrome: Option<Syndrome>) {
        let Some(q) = self.tables.sends.live_mut(slot) else { return };
        let to = after_failure(q.state, failure);
        if q.state == to {
            return;
        }
        (q.state, q.wake) = (to, None);
        let qpn = q.qpn.get();
        if let Some(syndrome) = syndrome {
            self.diagnostics.events.push(AsyncEvent::QpFatal { qpn, status: syndrome.status() });
        }
        self.enqueue(slot);
        if to == QpState::Err {
            self.ended.push_back(slot);
        }
        let Some(rq) = self.tables.receives.live_mut(slot) else { return };
        rq.state = to;
        rq.flushing = to == QpState::Err && rq.executor == Executor::Proxy;
    }

    /// Flushes the next announced WQE of a send queue in ERR or SQE.
    pub(crate) fn flush_next(&mut self, slot: QpSlot) {
        let Some(q) = self.tables.sends.live_mut(slot) else { return };
        let block = q.ring.as_ref().map_or([0; 8], |ring| ring.load(q.next));
        let first: &[u8; 64] = transmute_ref!(&block);
        let flags = Flags::from_byte(first[11]).unwrap_or_default();
        let info = WqeInfo {
            index: q.next,
            wqebbs: (peek(first) as u64).min(q.posted - q.next),
            opcode: SendOpcode::from_value(first[3]),
            completion: flags.completion,
            bytes: 0,
            brought: 0,
        };
        self.pass(slot, &info);
        self.fail_wqe(slot, &info, Syndrome::WrFlush, None);
    }

    /// Flushes every receive that the QP has taken, or that is posted to the QP itself. How many
    /// there were.
    pub(crate) fn flush_receives(&mut self, slot: QpSlot) -> u32 {
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
                    rq.flushed += 1;
                    flushed += 1;
                    self.fail_receive(slot, index, Syndrome::WrFlush);
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
        let ended = |rq: &ReceiveQueue| rq.state == QpState::Err && !rq.flushing;
        self.tables.receives.live(slot).is_some_and(ended) && self.flush_receives(slot) > 0
    }

    /// Nobody answers: again later, until patience ends.
    pub(crate) fn retry_answer(&mut self, slot: QpSlot, info: &WqeInfo) -> Advance {
        let Some(q) = self.tables.sends.live_mut(slot) else { return Advance::Nothing };
        q.stats.timeouts += 1;
        let timeout = q.attrs.timeout.and_then(ack_timeout);
        if timeout.is_some() && q.retries_left == 0 {
            self.pass(slot, info);
            self.fail_wqe(slot, info, Syndrome::TransportRetryExc, None);
            return Advance::Done;
        }
        q.retries_left = q.retries_left.saturating_sub(1);
        // Without a timeout a lost request is never sent again.
        let delay = timeout.map_or(u64::MAX, crate::clock::nanos);
        self.schedule.sleep(q, self.time.now().saturating_add(delay));
        Advance::Nothing
    }

    /// The peer has no receive: again later, until patience ends.
    fn retry_receive(&mut self, slot: QpSlot, info: &WqeInfo, peer: QpSlot, timer: u8) -> Advance {
        if let Some(rq) = self.tables.receives.live_mut(peer) {
            rq.refuse = rq.refuse.saturating_sub(1);
        }
        let Some(q) = self.tables.sends.live_mut(slot) else { return Advance::Nothing };
        q.stats.rnr_naks += 1;
        match q.rnr_left {
            0 => {
                self.pass(slot, info);
                self.fail_wqe(slot, info, Syndrome::RnrRetryExc, None);
                return Advance::Done;
            }
            RNR_FOR_EVER => {}
            _ => q.rnr_left -= 1,
        }
        let delay = crate::clock::nanos(rnr_delay(timer));
        self.schedule.sleep(q, self.time.now().saturating_add(delay));
        Advance::Nothing
    }

    /// A copy engine failed. Whose memory it was is not known; the peer hears of it as well.
    #[cold]
    pub(crate) fn fail_copy(&mut self, slot: QpSlot, info: &WqeInfo, error: &MemError) {
        tracing::warn!(%error, %slot, "copy failed");
        let Some(q) = self.tables.sends.live(slot) else { return };
        let (from, to, peer) = (q.qpn.get(), q.peer_qpn, q.peer_slot);
        self.fail_wqe(slot, info, Syndrome::RemoteOp, None);
        if self.tables.receives.live(peer).is_some_and(|rq| rq.answers(from, to)) {
            self.end(peer, Some(Syndrome::LocalQpOp));
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
                return self.fail_wqe(slot, info, Syndrome::LocalProt, Some(rule));
            }
            KeySide::Remote => Refusal::Access(rule),
            KeySide::Receive => Refusal::Operational { rule, receive: taken },
        };
        let Some(q) = self.tables.sends.live(slot) else { return };
        let (from, to, peer) = (q.qpn.get(), q.peer_qpn, q.peer_slot);
        if self.tables.receives.live(peer).is_some_and(|rq| rq.answers(from, to)) {
            self.refused(slot, info, peer, refusal, taken);
        } else {
            self.fail_wqe(slot, info, Syndrome::TransportRetryExc, None);
        }
    }

    /// The receive that a refused message fails: the one that it has `taken`, or else the next.
    fn receive_of_refused(&mut self, peer: QpSlot, taken: Option<u64>) -> Option<u64> {
        match taken {
            Some(index) => self.tables.receives.live_mut(peer)?.close(index).then_some(index),
            None => self.consume_receive(peer),
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
            Refusal::Invalid(_) => (Some(Syndrome::RemoteInvalReq), Some(request), None),
            Refusal::Access(_) => {
                // A WRITE with immediate has a receive at hand by then.
                let consumes = info.opcode == SendOpcode::RdmaWriteImm;
                let receive = consumes.then_some(Syndrome::LocalAccess);
                (Some(Syndrome::RemoteAccess), Some(access), receive)
            }
            Refusal::TooLong(_) => {
                (Some(Syndrome::RemoteInvalReq), Some(request), Some(Syndrome::LocalLength))
            }
            Refusal::Operational { rule, receive } => {
                let fault = match rule {
                    Rule::Key { .. } => Syndrome::LocalProt,
                    _ => Syndrome::LocalQpOp,
                };
                (Some(Syndrome::RemoteOp), None, receive.map(|_| fault))
            }
            Refusal::Invalidation { .. } => (None, Some(request), Some(Syndrome::RemoteInvalReq)),
        };
        self.report_refusal(slot, info, peer, &refusal);
        if let Some(syndrome) = nak {
            let rule = refusal.rule().map(|(_, rule)| rule);
            self.pass(slot, info);
            self.fail_wqe(slot, info, syndrome, rule);
        }
        if let Some(syndrome) = receive
            && let Some(index) = self.receive_of_refused(peer, taken)
        {
            self.fail_receive(peer, index, syndrome);
        }
        if let Some(event) = event {
            self.diagnostics.events.push(event);
        }
        self.end(peer, event.is_none().then_some(Syndrome::LocalQpOp));
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

    pub(crate) fn end_srq(&mut self, slot: Option<SrqSlot>) {
        if let Some(srq) = slot.and_then(|slot| self.tables.srqs.live_mut(slot)) {
            srq.dead = true;
            self.diagnostics.events.push(AsyncEvent::SrqError { srqn: srq.srqn });
        }
    }

    /// Takes the next receive of the QP in `slot`, valid or not.
    fn consume_receive(&mut self, slot: QpSlot) -> Option<u64> {
        let Tables { receives, srqs, scratch, .. } = &mut self.tables;
        match &mut receives.live_mut(slot)?.source {
            Receives::None => None,
            Receives::Own(own) => own.take_next().ok()?,
            Receives::Shared(srq) => {
                let srq = srqs.live_mut(*srq)?;
                let (number, link, _) = srq.peek(scratch).ok()??;
                srq.take(link);
                Some(u64::from(number))
            }
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
        self.end(slot, event.is_none().then_some(Syndrome::LocalQpOp));
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
        let syndrome = rule.syndrome().unwrap_or(Syndrome::LocalQpOp);
        q.stats.errors += 1;
        q.first_error.get_or_insert(FirstError { index, syndrome, rule: Some(rule) });
        self.report_send(slot, index, rule);
        self.end(slot, Some(syndrome));
    }

    /// Flushes what a QP in ERR still has, once its backend has let go of it. The receive that is
    /// `broken` fails with its own syndrome.
    pub(super) fn finish_flush(&mut self, slot: QpSlot, broken: Option<(u64, Syndrome)>) {
        while let Some(flight) = self.tables.sends.live_mut(slot).and_then(|q| q.flight.pop_front())
        {
            self.fail_wqe(slot, &flight.info, Syndrome::WrFlush, None);
        }
        if let Some((index, syndrome)) = broken
            && self.tables.receives.live_mut(slot).is_some_and(|rq| rq.close(index))
        {
            self.fail_receive(slot, index, syndrome);
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
