//! Completions of a carrier become CQEs, by the code of every QP.

use super::{Id, LIFE, WorkKind};
use crate::carrier::{Arrived, CarrierStatus, Completion};
use crate::engine::Core;
use crate::engine::execute::{Delivery, Work};
use crate::engine::run::Flight;
use crate::qp::QpState;
use warpverbs_mlx5::cqe::ReceiveKind;
use warpverbs_mlx5::num::Rkey;
use warpverbs_mlx5::syndrome::Syndrome;

impl Core {
    /// One completion. What is of an earlier life of the QP, or was reported before, counts for
    /// nothing.
    pub(super) fn settle_carried(&mut self, slot: u32, completion: &Completion) {
        let Some(end) = self.proxy.end(slot) else { return };
        let Some(Id { kind, life, index }) = Id::unpack(completion.id) else {
            return tracing::warn!(slot, id = completion.id, "a completion of nobody's work");
        };
        if kind != WorkKind::Shared && life != end.life & LIFE {
            return;
        }
        match kind {
            WorkKind::Send => self.retire_carried(slot, index, completion),
            WorkKind::Receive => self.settle_receive(slot, index, completion),
            WorkKind::Shared => {
                self.shared_came_back(slot);
                if let Some(rq) = self.receives.get_mut(slot) {
                    rq.open.push_back(index);
                }
                self.settle_receive(slot, index, completion);
            }
        }
    }

    /// The WQE at `index` is done, and all before it.
    fn retire_carried(&mut self, slot: u32, index: u64, completion: &Completion) {
        self.retire_silent(slot, index);
        while let Some(q) = self.sends.get_mut(slot) {
            let Some(Flight { ticket, work, .. }) = q.flight.front() else { break };
            if ticket.index > index {
                break;
            }
            let (ticket, carried) = (*ticket, matches!(work, Work::Carried));
            q.flight.pop_front();
            if let Some(end) = self.proxy.end_mut(slot) {
                end.outstanding = end.outstanding.saturating_sub(carried.into());
            }
            match completion.status.syndrome() {
                Some(syndrome) if ticket.index == index => {
                    if syndrome == Syndrome::WrFlush {
                        // The device's QP failed on its other side.
                        self.end(slot, None);
                    }
                    self.fail_ticket_as(slot, &ticket, syndrome, None, completion.vendor as u8);
                }
                _ => self.finish(slot, ticket, None),
            }
        }
        // Later WQEs may have waited for it.
        self.enqueue(slot);
    }

    /// The short way for what was not signalled and came to a good end: no CQE, just room.
    fn retire_silent(&mut self, slot: u32, index: u64) {
        let Self { sends, proxy, .. } = self;
        let (Some(q), Some(end)) = (sends.get_mut(slot), proxy.end_mut(slot)) else { return };
        if q.state.flushes_sends() {
            return;
        }
        while let Some(Flight { ticket, work: Work::Carried, .. }) = q.flight.front()
            && ticket.index < index
            && !ticket.completion.is_signaled()
        {
            q.retired = ticket.index + ticket.wqebbs;
            q.stats.wqes.add(ticket.opcode, 1);
            q.stats.bytes += ticket.bytes;
            end.outstanding -= 1;
            // Carried work owns nothing: its destructor need not look.
            std::mem::forget(q.flight.pop_front());
        }
    }

    fn settle_receive(&mut self, slot: u32, index: u64, completion: &Completion) {
        let Some(rq) = self.receives.get_mut(slot) else { return };
        let (qpn, life) = (rq.qpn, rq.life);
        let own = matches!(rq.source, crate::qp::receive::Receives::Own(_));
        let is_open = rq.open.contains(&index);
        if let Some(end) = self.proxy.end_mut(slot)
            && own
            && is_open
        {
            end.receives = end.receives.saturating_sub(1);
        }
        let Some(syndrome) = completion.status.syndrome() else {
            let kind = match completion.arrived {
                Arrived::Send => ReceiveKind::Send,
                Arrived::SendImm(imm) => ReceiveKind::SendImm(imm),
                Arrived::SendInvalidate(rkey) => ReceiveKind::SendInval(Rkey(rkey)),
                Arrived::WriteImm(imm) => ReceiveKind::WriteImm(imm),
            };
            let byte_cnt = completion.byte_len;
            // Whether the sender asked for an event is not told.
            let solicited = false;
            self.deliver(&Delivery { slot, qpn, life, kind, index, byte_cnt, solicited });
            return;
        };
        let failed = self.receives.get(slot).is_some_and(|rq| rq.state == QpState::Err);
        if self.receives.get_mut(slot).is_some_and(|rq| rq.close(index)) {
            if let (CarrierStatus::Flushed, Some(rq)) =
                (completion.status, self.receives.get_mut(slot))
            {
                rq.flushed += 1;
            }
            self.fail_receive_as(slot, index, syndrome, completion.vendor as u8);
        }
        if !failed {
            self.end(slot, (completion.status != CarrierStatus::Flushed).then_some(syndrome));
        }
    }
}
