//! Completions of a proxy device become CQEs, by the code of every QP.

use super::{Id, LIFE, WorkKind};
use crate::engine::Core;
use crate::engine::execute::{Delivery, Work};
use crate::engine::run::Flight;
use crate::qp::QpState;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::{Completion, Status};

impl Core {
    /// One completion. What is of an earlier life of the QP, or was reported before, counts for
    /// nothing.
    pub(super) fn settle_proxied(&mut self, slot: u32, completion: &Completion) {
        let Some(end) = self.proxy.end(slot) else { return };
        let Some(Id { kind, life, index }) = Id::unpack(completion.id) else {
            return tracing::warn!(slot, id = completion.id, "a completion of nobody's work");
        };
        if kind != WorkKind::Shared && life != end.life & LIFE {
            return;
        }
        match kind {
            WorkKind::Send => {
                // Behind one that waits for a copy, all wait.
                if end.waiting.is_settling() || !self.retire_upto(slot, index, completion) {
                    self.settle_later(slot, index, completion);
                }
            }
            WorkKind::Receive => {
                let end = self.proxy.end_mut(slot);
                let pieces = end.and_then(|end| end.waiting.landing.remove(&index));
                self.receive_came_back(slot, index, completion, pieces);
            }
            WorkKind::Shared => {
                let pieces = self.shared_came_back(slot, index);
                if let Some(rq) = self.receives.get_mut(slot) {
                    rq.open.push_back(index);
                }
                self.receive_came_back(slot, index, completion, pieces);
            }
        }
    }

    /// The WQE at `index` is done, and all before it. False: one of them waits for a copy.
    pub(super) fn retire_upto(&mut self, slot: u32, index: u64, completion: &Completion) -> bool {
        self.retire_silent(slot, index);
        while let Some(q) = self.sends.get_mut(slot) {
            let Some(Flight { ticket, work, .. }) = q.flight.front() else { break };
            if ticket.index > index {
                break;
            }
            let failed = Syndrome::of(completion.status).filter(|_| ticket.index == index);
            let (ticket, away) = (*ticket, work.is_away());
            let Some(end) = self.proxy.end_mut(slot) else { break };
            let mut copied = Ok(true);
            if let Some(aside) = end.aside(ticket.index) {
                if failed.is_none() {
                    copied = aside.bring_back();
                }
                if copied == Ok(false) {
                    return false;
                }
                let slots = aside.slot;
                end.asides.pop_front();
                if let Some(taken) = end.slots.as_mut().filter(|_| slots) {
                    taken.give();
                }
            }
            end.outstanding = end.outstanding.saturating_sub(away.into());
            q.flight.pop_front();
            if let Err(error) = copied {
                tracing::warn!(%error, slot, "an answer could not be copied");
                self.fail_ticket(slot, &ticket, Syndrome::LocalProt, None);
                continue;
            }
            match failed {
                Some(syndrome) => {
                    if syndrome == Syndrome::WrFlush {
                        // The device's QP failed on its other side.
                        self.end(slot, None);
                    }
                    self.fail_ticket_as(slot, &ticket, syndrome, None, completion.vendor as u8);
                }
                None => self.finish(slot, ticket, None),
            }
        }
        // Later WQEs may have waited for it.
        self.enqueue(slot);
        true
    }

    /// The short way for what was not signalled and came to a good end: no CQE, just room.
    fn retire_silent(&mut self, slot: u32, index: u64) {
        let Self { sends, proxy, .. } = self;
        let (Some(q), Some(end)) = (sends.get_mut(slot), proxy.end_mut(slot)) else { return };
        if q.state.flushes_sends() {
            return;
        }
        // The copies of an answer come first.
        let index = end.asides.front().map_or(index, |(at, _)| index.min(*at));
        while let Some(Flight { ticket, work: Work::Away, .. }) = q.flight.front()
            && ticket.index < index
            && !ticket.completion.is_signaled()
        {
            q.retired = ticket.index + ticket.wqebbs;
            q.stats.wqes.add(ticket.opcode, 1);
            q.stats.bytes += ticket.bytes;
            end.outstanding -= 1;
            // Proxied work owns nothing: its destructor need not look.
            std::mem::forget(q.flight.pop_front());
        }
    }

    pub(super) fn settle_receive(&mut self, slot: u32, index: u64, completion: &Completion) {
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
        let Some(syndrome) = Syndrome::of(completion.status) else {
            let (kind, byte_cnt) = (completion.kind, completion.byte_len);
            // Whether the sender asked for an event is not told.
            let solicited = false;
            self.deliver(&Delivery { slot, qpn, life, kind, index, byte_cnt, solicited });
            return;
        };
        let failed = self.receives.get(slot).is_some_and(|rq| rq.state == QpState::Err);
        if self.receives.get_mut(slot).is_some_and(|rq| rq.close(index)) {
            if let (Status::Flushed, Some(rq)) = (completion.status, self.receives.get_mut(slot)) {
                rq.flushed += 1;
            }
            self.fail_receive_as(slot, index, syndrome, completion.vendor as u8);
        }
        if !failed {
            self.end(slot, (completion.status != Status::Flushed).then_some(syndrome));
        }
    }
}
