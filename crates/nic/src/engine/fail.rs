//! Errors: the right syndrome on both sides, QPs to ERR, the rest flushed.

use super::Core;
use super::execute::Delivery;
use super::run::{Advance, Ticket};
use super::transfer::Fault;
use crate::AsyncEvent;
use crate::qp::receive::Receives;
use crate::qp::send::FirstError;
use crate::qp::state::{Failure, after_failure};
use crate::qp::{OnSendError, QpState, ack_timeout, rnr_delay};
use crate::responder::Refusal;
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

impl Core {
    /// A WQE of the send queue in `slot` fails, or is flushed. The first failure ends the queue.
    pub(crate) fn fail_ticket(
        &mut self,
        slot: u32,
        ticket: &Ticket,
        syndrome: Syndrome,
        rule: Option<Rule>,
    ) {
        self.fail_ticket_as(slot, ticket, syndrome, rule, syndrome.usual_vendor());
    }

    /// As [`Self::fail_ticket`], with the vendor's syndrome.
    pub(crate) fn fail_ticket_as(
        &mut self,
        slot: u32,
        ticket: &Ticket,
        syndrome: Syndrome,
        rule: Option<Rule>,
        vendor: u8,
    ) {
        let Some(q) = self.sends.get_mut(slot) else { return };
        // After the first error, whatever else goes wrong is its consequence.
        let (syndrome, vendor) = match q.state.flushes_sends() && syndrome != Syndrome::WrFlush {
            true => (Syndrome::WrFlush, Syndrome::WrFlush.usual_vendor()),
            false => (syndrome, vendor),
        };
        let flushed = syndrome == Syndrome::WrFlush;
        q.retired = ticket.index + ticket.wqebbs;
        if flushed {
            q.stats.flushed += 1;
        } else {
            q.stats.errors += 1;
            q.first_error.get_or_insert(FirstError { index: ticket.index, syndrome, rule });
        }
        let cqe = Cqe::Error {
            side: ErrorSide::Requester,
            qpn: q.qpn,
            wqe_counter: ticket.index as u16,
            opcode: ticket.opcode,
            syndrome,
            vendor,
            srqn: 0,
        };
        let (upto, on_error, remote) = (q.retired, q.on_error, q.remote);
        // CE = 1 asks for the first error alone.
        if !(flushed && ticket.completion == Completion::OnFirstError) {
            self.complete_send(slot, cqe, upto);
        }
        if !flushed {
            let failure = match on_error {
                OnSendError::StopSends if !remote => Failure::Send,
                // A connection fails as a whole.
                OnSendError::StopAll | OnSendError::StopSends => Failure::Fatal,
            };
            self.end_by(slot, failure, Some(syndrome));
        }
    }

    /// The QP in `slot` goes to ERR; the event is raised if a `syndrome` is given.
    pub(crate) fn end(&mut self, slot: u32, syndrome: Option<Syndrome>) {
        self.end_by(slot, Failure::Fatal, syndrome);
    }

    fn end_by(&mut self, slot: u32, failure: Failure, syndrome: Option<Syndrome>) {
        let Some(q) = self.sends.get_mut(slot) else { return };
        let to = after_failure(q.state, failure);
        if q.state == to {
            return;
        }
        (q.state, q.wake) = (to, None);
        let qpn = q.qpn.get();
        if let Some(syndrome) = syndrome {
            self.events.push(AsyncEvent::QpFatal { qpn, status: syndrome.status() });
        }
        self.enqueue(slot);
        if to == QpState::Err {
            self.fail_connection(slot);
            self.fail_proxied(slot);
        }
        let Some(rq) = self.receives.get_mut(slot) else { return };
        rq.state = to;
        // What another device has comes back from there first.
        if to != QpState::Err || rq.proxied {
            return;
        }
        let shared = matches!(rq.source, Receives::Shared(_));
        self.flush_receives(slot);
        match shared {
            true => self.events.push(AsyncEvent::LastWqeReached { qpn }),
            false => self.watch_receives(slot),
        }
    }

    /// Flushes the next announced WQE of a send queue in ERR or SQE.
    pub(crate) fn flush_next(&mut self, slot: u32) {
        let Some(q) = self.sends.get_mut(slot) else { return };
        let block = q.ring.as_ref().map_or([0; 8], |ring| ring.load(q.next));
        let first: &[u8; 64] = transmute_ref!(&block);
        let flags = Flags::from_byte(first[11]).unwrap_or_default();
        let ticket = Ticket {
            index: q.next,
            wqebbs: (peek(first) as u64).min(q.posted - q.next),
            opcode: SendOpcode::from_value(first[3]),
            completion: flags.completion,
            bytes: 0,
            brought: 0,
        };
        self.pass(slot, &ticket);
        self.fail_ticket(slot, &ticket, Syndrome::WrFlush, None);
    }

    /// Flushes every receive that the QP has taken, or that is posted to the QP itself. How many
    /// there were.
    pub(crate) fn flush_receives(&mut self, slot: u32) -> u32 {
        let mut flushed = 0;
        while let Some(rq) = self.receives.get_mut(slot) {
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
                    self.report(qpn, QueueKind::Receive, 0, rule);
                    break;
                }
            }
        }
        flushed
    }

    /// Receives that were posted to a QP after it went to ERR. Whether there were any.
    pub(crate) fn flush_late_receives(&mut self, slot: u32) -> bool {
        let in_error = self.receives.get(slot).is_some_and(|rq| rq.state == QpState::Err);
        in_error && !self.proxy.is_flushing(slot) && self.flush_receives(slot) > 0
    }

    /// Nobody answers: again later, until patience ends.
    pub(crate) fn retry_answer(&mut self, slot: u32, ticket: &Ticket) -> Advance {
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        q.stats.timeouts += 1;
        let timeout = q.attrs.timeout.and_then(ack_timeout);
        if timeout.is_some() && q.retries_left == 0 {
            self.pass(slot, ticket);
            self.fail_ticket(slot, ticket, Syndrome::TransportRetryExc, None);
            return Advance::Done;
        }
        q.retries_left = q.retries_left.saturating_sub(1);
        // Without a timeout a lost request is never sent again.
        self.sleep(slot, timeout.map_or(u64::MAX, crate::clock::nanos));
        Advance::Nothing
    }

    /// The peer has no receive: again later, until patience ends.
    fn retry_receive(&mut self, slot: u32, ticket: &Ticket, peer: u32, timer: u8) -> Advance {
        if let Some(rq) = self.receives.get_mut(peer) {
            rq.refuse = rq.refuse.saturating_sub(1);
        }
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        q.stats.rnr_naks += 1;
        match q.rnr_left {
            0 => {
                self.pass(slot, ticket);
                self.fail_ticket(slot, ticket, Syndrome::RnrRetryExc, None);
                return Advance::Done;
            }
            RNR_FOR_EVER => {}
            _ => q.rnr_left -= 1,
        }
        self.sleep(slot, crate::clock::nanos(rnr_delay(timer)));
        Advance::Nothing
    }

    /// A copy engine failed. Whose memory it was is not known; the peer hears of it as well.
    #[cold]
    pub(crate) fn fail_copy(&mut self, slot: u32, ticket: &Ticket, error: &MemError) {
        tracing::warn!(%error, slot, "copy failed");
        let Some(q) = self.sends.get(slot) else { return };
        let (from, to, peer) = (q.qpn.get(), q.peer_qpn, q.peer_slot);
        self.fail_ticket(slot, ticket, Syndrome::RemoteOp, None);
        if self.receives.get(peer).is_some_and(|rq| rq.answers(from, to)) {
            self.end(peer, Some(Syndrome::LocalQpOp));
        }
    }

    /// A message that was begun cannot be moved to its end.
    #[cold]
    pub(crate) fn fail_midway(
        &mut self,
        slot: u32,
        ticket: &Ticket,
        delivery: Option<Delivery>,
        fault: Fault,
    ) {
        let (side, rule) = match fault {
            Fault::Copy(error) => return self.fail_copy(slot, ticket, &error),
            Fault::Key { side, segment, error } => (side, Rule::Key { side, segment, error }),
        };
        let taken = delivery.map(|delivery| delivery.index);
        let refusal = match side {
            KeySide::Local => {
                self.report_send(slot, ticket.index, rule);
                return self.fail_ticket(slot, ticket, Syndrome::LocalProt, Some(rule));
            }
            KeySide::Remote => Refusal::Access(rule),
            KeySide::Receive => Refusal::Operational { rule, receive: taken },
        };
        let Some(q) = self.sends.get(slot) else { return };
        let (from, to, peer) = (q.qpn.get(), q.peer_qpn, q.peer_slot);
        if self.receives.get(peer).is_some_and(|rq| rq.answers(from, to)) {
            self.refused(slot, ticket, peer, refusal, taken);
        } else {
            self.fail_ticket(slot, ticket, Syndrome::TransportRetryExc, None);
        }
    }

    /// The receive that a refused message fails: the one that it has `taken`, or else the next.
    fn receive_of_refused(&mut self, peer: u32, taken: Option<u64>) -> Option<u64> {
        match taken {
            Some(index) => self.receives.get_mut(peer)?.close(index).then_some(index),
            None => self.consume_receive(peer),
        }
    }

    /// The peer refused a request: IBTA table "responder error behaviour".
    /// `taken` is the receive of a message that was begun.
    #[cold]
    pub(crate) fn refused(
        &mut self,
        slot: u32,
        ticket: &Ticket,
        peer: u32,
        refusal: Refusal,
        taken: Option<u64>,
    ) -> Advance {
        if let Refusal::NotReady { timer } = refusal {
            return self.retry_receive(slot, ticket, peer, timer);
        }
        let access = AsyncEvent::QpAccessError { qpn: self.qpn_of(peer) };
        let request = AsyncEvent::QpRequestError { qpn: self.qpn_of(peer) };
        // NAK for the requester, event and failed receive of the responder.
        let (nak, event, receive) = match refusal {
            Refusal::NotReady { .. } => return Advance::Nothing,
            Refusal::Invalid(_) => (Some(Syndrome::RemoteInvalReq), Some(request), None),
            Refusal::Access(_) => {
                // A WRITE with immediate has a receive at hand by then.
                let consumes = ticket.opcode == SendOpcode::RdmaWriteImm;
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
        self.report_refusal(slot, ticket, peer, &refusal);
        if let Some(syndrome) = nak {
            let rule = refusal.rule().map(|(_, rule)| rule);
            self.pass(slot, ticket);
            self.fail_ticket(slot, ticket, syndrome, rule);
        }
        if let Some(syndrome) = receive
            && let Some(index) = self.receive_of_refused(peer, taken)
        {
            self.fail_receive(peer, index, syndrome);
        }
        if let Some(event) = event {
            self.events.push(event);
        }
        self.end(peer, event.is_none().then_some(Syndrome::LocalQpOp));
        if nak.is_none() { self.retry_answer(slot, ticket) } else { Advance::Done }
    }

    /// Names the broken rule, in the queue where the fault lies. A fault of an SRQ ends it.
    fn report_refusal(&mut self, slot: u32, ticket: &Ticket, peer: u32, refusal: &Refusal) {
        match refusal.rule() {
            Some((QueueKind::Send, rule)) => self.report_send(slot, ticket.index, rule),
            Some((_, rule)) => {
                let qpn = self.qpn_of(peer);
                let index = match refusal {
                    Refusal::Operational { receive, .. } => receive.unwrap_or(0),
                    _ => 0,
                };
                let shared = match self.receives.get(peer).map(|rq| &rq.source) {
                    Some(Receives::Shared(srq)) => Some(*srq),
                    _ => None,
                };
                let queue = if shared.is_some() { QueueKind::Shared } else { QueueKind::Receive };
                self.report(qpn, queue, index, rule);
                if !matches!(rule, Rule::Key { .. }) {
                    self.end_srq(shared);
                }
            }
            None => {}
        }
    }

    pub(crate) fn end_srq(&mut self, slot: Option<u32>) {
        if let Some(srq) = slot.and_then(|slot| self.srqs.get_mut(slot)) {
            srq.dead = true;
            self.events.push(AsyncEvent::SrqError { srqn: srq.srqn });
        }
    }

    /// Takes the next receive of the QP in `slot`, valid or not.
    fn consume_receive(&mut self, slot: u32) -> Option<u64> {
        let rq = self.receives.get_mut(slot)?;
        match &mut rq.source {
            Receives::None => None,
            Receives::Own(own) => own.take_next().ok()?,
            Receives::Shared(srq) => {
                let srq = self.srqs.get_mut(*srq)?;
                let (number, link, _) = srq.peek(&mut self.scratch).ok()??;
                srq.take(link);
                Some(u64::from(number))
            }
        }
    }

    fn qpn_of(&self, slot: u32) -> u32 {
        self.receives.get(slot).map_or(0, |rq| rq.qpn)
    }
}
