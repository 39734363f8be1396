//! Completions of a connection become CQEs, by the code of every QP.

use super::{End, Posted};
use crate::AsyncEvent;
use crate::engine::Core;
use crate::engine::execute::Delivery;
use crate::engine::run::Flight;
use crate::qp::QpState;
use crate::qp::receive::Receives;
use crate::responder::Refusal;
use crate::violation::{QueueKind, Rule};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rc::{Completion, Received, State, Status};

fn syndrome(status: Status) -> Syndrome {
    Syndrome::of(status).unwrap_or(Syndrome::LocalQpOp)
}

impl Core {
    /// Reports everything that is done, and brings the QP to ERR if the connection has failed.
    pub(in crate::engine) fn settle(&mut self, slot: u32) {
        while let Some(end) = self.net.end_mut(slot) {
            match end.poll_completion() {
                Some(Completion::Request { id, result }) => {
                    debug_assert_eq!(id.0, end.requests.first, "requests complete in order");
                    let Some(Posted { index, .. }) = end.requests.pop() else { break };
                    self.retire(slot, index, result);
                }
                Some(Completion::Receive { id, result }) => self.received(slot, id, result),
                None => break,
            }
        }
        let over = |end: &End| end.conn.state() == State::Error && end.has_reported();
        let failed = self.net.end(slot).is_some_and(over);
        if failed && self.sends.get(slot).is_some_and(|q| q.state != QpState::Err) {
            self.end_refusing(slot);
        }
    }

    /// The WQE at `index` is done. Local work before it is done as well: it waited only for
    /// requests before it, which the connection completes in order.
    fn retire(&mut self, slot: u32, index: u64, result: Result<(), Status>) {
        while let Some(q) = self.sends.get_mut(slot)
            && q.flight.front().is_some_and(|first| first.ticket.index <= index)
            && let Some(Flight { ticket, .. }) = q.flight.pop_front()
        {
            match result {
                Err(status) if ticket.index == index => {
                    self.fail_ticket(slot, &ticket, syndrome(status), None);
                }
                _ => self.finish(slot, ticket, None),
            }
        }
        // Later WQEs may have waited for it.
        self.enqueue(slot);
    }

    fn received(&mut self, slot: u32, index: u64, result: Result<Received, Status>) {
        let Received { kind, len, solicited } = match result {
            Ok(received) => received,
            Err(status) => {
                // Else it would be flushed with those that are open.
                if self.receives.get_mut(slot).is_some_and(|rq| rq.close(index)) {
                    self.fail_receive(slot, index, syndrome(status));
                }
                return;
            }
        };
        let Some(rq) = self.receives.get(slot) else { return };
        let (qpn, life) = (rq.qpn, rq.life);
        self.deliver(&Delivery { slot, qpn, life, kind, index, byte_cnt: len, solicited });
    }

    /// A request of the peer was refused, which ends this QP.
    fn end_refusing(&mut self, slot: u32) {
        let refusal = self.net.end_mut(slot).and_then(|end| end.refusal.take());
        let qpn = self.receives.get(slot).map_or(0, |rq| rq.qpn);
        if let Some((_, rule)) = refusal.as_ref().and_then(Refusal::rule) {
            self.report_received(slot, refusal.as_ref(), rule);
        }
        let event = match refusal {
            Some(Refusal::Operational { .. }) => None,
            Some(Refusal::Access(_)) => Some(AsyncEvent::QpAccessError { qpn }),
            _ => Some(AsyncEvent::QpRequestError { qpn }),
        };
        if let Some(event) = event {
            self.events.push(event);
        }
        self.end(slot, event.is_none().then_some(Syndrome::LocalQpOp));
    }

    /// Names the rule that a packet, or a receive for it, broke. A fault of an SRQ ends it.
    fn report_received(&mut self, slot: u32, refusal: Option<&Refusal>, rule: Rule) {
        let Some(rq) = self.receives.get(slot) else { return };
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
        self.report(rq.qpn, queue, index, rule);
        if operational && !matches!(rule, Rule::Key { .. } | Rule::CopyFailed { .. }) {
            self.end_srq(shared);
        }
    }
}
