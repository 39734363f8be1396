//! The end of a proxied QP: the device brings back what it has, then the rest is flushed here.

use super::Waiting;
use super::wait::Aside;
use crate::AsyncEvent;
use crate::engine::Core;
use crate::qp::QpState;
use crate::qp::receive::Receives;
use std::time::Duration;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::Status;

/// How long a device has for its flush. After it, what did not come back is flushed all the same.
const PATIENCE: Duration = Duration::from_secs(2);

impl Core {
    /// The QP in `slot` has gone to ERR: so does its device's.
    pub(in crate::engine) fn fail_proxied(&mut self, slot: u32) {
        let until = self.time.now().saturating_add(crate::clock::nanos(PATIENCE));
        let Some(end) = self.proxy.end_mut(slot) else { return };
        if !end.gone {
            end.proxy_device.fail();
        }
        (end.flushing, end.stalled) = (Some(until), false);
        self.proxy.mark_busy(slot);
    }

    /// The owner has brought the QP to ERR: what its device had done before is told at once, so that
    /// whoever looks next, to destroy it perhaps, misses no receive of a shared queue.
    pub(in crate::engine) fn poll_proxied(&mut self, slot: u32) {
        while self.take_completions(slot) {}
    }

    /// An event of the device.
    pub(crate) fn raise(&mut self, event: AsyncEvent) {
        self.events.push(event);
        let (AsyncEvent::QpFatal { qpn, .. }
        | AsyncEvent::QpAccessError { qpn }
        | AsyncEvent::QpRequestError { qpn }) = event
        else {
            return;
        };
        let slot = self.by_qpn.get(&qpn).copied();
        if let Some(slot) = slot.filter(|&slot| self.proxy.end(slot).is_some()) {
            self.take_completions(slot);
            self.end(slot, None);
        }
    }

    /// Nothing that is at the device will come back.
    #[cold]
    pub(super) fn lose_device(&mut self, slot: u32) {
        let Some(end) = self.proxy.end_mut(slot) else { return };
        end.gone = true;
        let Some(q) = self.sends.get_mut(slot) else { return };
        if matches!(q.state, QpState::Err | QpState::Reset) {
            return;
        }
        tracing::warn!(qpn = q.qpn.get(), "the device that executes the QP's work is gone");
        let syndrome = Syndrome::of(Status::Fatal).unwrap_or(Syndrome::LocalQpOp);
        // What the device has done already completes when its bytes are in place.
        let oldest = q.flight.front().map(|flight| flight.ticket.index);
        let copies = oldest.and_then(|index| end.aside(index)).is_some_and(Aside::is_under_way);
        let first = match copies {
            true => None,
            false => {
                if oldest.and_then(|index| end.aside(index)).is_some() {
                    end.asides.pop_front();
                }
                q.flight.pop_front()
            }
        };
        match first {
            Some(flight) => self.fail_ticket(slot, &flight.ticket, syndrome, None),
            None => self.end(slot, Some(syndrome)),
        }
    }

    /// Flushes what is left, once the device has brought back all it had. Whether it has.
    pub(super) fn end_flush(&mut self, slot: u32) -> bool {
        let now = self.time.now();
        let Some(end) = self.proxy.end_mut(slot) else { return false };
        let Some(until) = end.flushing else { return false };
        // Copies end by themselves, and what they bring completes.
        if !end.waiting.is_over() {
            return false;
        }
        let empty = end.outstanding == 0 && end.receives == 0;
        if !empty && !end.gone && now < until {
            return false;
        }
        if !empty && !end.gone {
            tracing::warn!(slot, "the device did not flush its queues in {PATIENCE:?}");
        }
        (end.flushing, end.outstanding, end.receives) = (None, 0, 0);
        end.waiting = Waiting::default();
        end.asides.clear();
        let broken = end.broken.take();
        while let Some(flight) = self.sends.get_mut(slot).and_then(|q| q.flight.pop_front()) {
            self.fail_ticket(slot, &flight.ticket, Syndrome::WrFlush, None);
        }
        if let Some((index, syndrome)) = broken
            && self.receives.get_mut(slot).is_some_and(|rq| rq.close(index))
        {
            self.fail_receive(slot, index, syndrome);
        }
        self.flush_receives(slot);
        let Some(rq) = self.receives.get(slot) else { return true };
        match rq.source {
            Receives::Shared(_) => self.events.push(AsyncEvent::LastWqeReached { qpn: rq.qpn }),
            _ => self.watch_receives(slot),
        }
        self.enqueue(slot);
        true
    }
}
