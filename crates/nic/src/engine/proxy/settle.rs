//! Completions of a proxy device become reports.

use super::Proxy;
use super::id::{GENERATION, Id, WorkKind};
use crate::engine::report::Report;
use crate::engine::tables::Tables;
use crate::objects::receive::Receives;
use crate::slots::{QpSlot, Slot};
use warpverbs_rdma::QpState;
use warpverbs_rdma::{Completion, Status};

impl Proxy {
    /// Handles one completion. Those of an earlier generation of the QP, or reported before, are
    /// ignored.
    pub(crate) fn settle(&mut self, tables: &mut Tables, slot: QpSlot, completion: &Completion) {
        let Some(end) = self.end(slot) else { return };
        let Some(Id { kind, generation, index }) = Id::unpack(completion.id) else {
            return tracing::warn!(%slot, id = completion.id, "a completion of unknown work");
        };
        if kind != WorkKind::Shared && generation != end.generation & GENERATION {
            return;
        }
        match kind {
            WorkKind::Send => {
                // Behind one that waits for a copy, all wait.
                if end.waiting.is_settling() || !self.settle_upto(slot, index, completion) {
                    self.settle_later(slot, index, completion);
                }
            }
            WorkKind::Receive => {
                let end = self.end_mut(slot);
                let pieces = end.and_then(|end| end.waiting.landing.remove(&index));
                self.receive_came_back(tables, slot, index, completion, pieces);
            }
            WorkKind::Shared => {
                let pieces = self.shared_came_back(tables, slot, index);
                if let Some(rq) = tables.receives.live_mut(slot) {
                    rq.open.push_back(index);
                }
                self.receive_came_back(tables, slot, index, completion, pieces);
            }
        }
    }

    /// The WQE at `index` is done, and all before it. False: one of them waits for a copy.
    pub(super) fn settle_upto(
        &mut self,
        slot: QpSlot,
        index: u64,
        completion: &Completion,
    ) -> bool {
        let Self { ends, reports, .. } = self;
        let Some(end) = ends.get_mut(slot.at()).and_then(Option::as_deref_mut) else {
            return true;
        };
        let failure = failure(completion.status);
        let before = |at: u64| at.checked_sub(1).map(|index| Report::Sent { slot, index });
        while let Some((at, work)) = end.side_work.front_mut().filter(|(at, _)| *at <= index) {
            let at = *at;
            let fails = failure.is_some() && at == index;
            let copied = if fails { Ok(true) } else { work.bring_back(&mut end.waiting.copies) };
            if copied == Ok(false) {
                reports.extend(before(at));
                return false;
            }
            if let Some(taken) = end.slots.as_mut().filter(|_| work.slot) {
                taken.give();
            }
            end.side_work.pop_front();
            if let Err(error) = copied {
                tracing::warn!(%error, %slot, "a response could not be copied");
                let status = Status::LocalProtection;
                reports.push(Report::SendFailed { slot, index: at, status, vendor: None });
            }
        }
        let Some(status) = failure else {
            reports.push(Report::Sent { slot, index });
            return true;
        };
        if status == Status::Flushed {
            // The device's QP failed on its other side.
            reports.extend(before(index));
            reports.push(Report::Ended { slot, status: None });
        }
        let vendor = Some(completion.vendor as u8);
        reports.push(Report::SendFailed { slot, index, status, vendor });
        true
    }

    pub(super) fn settle_receive(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        index: u64,
        completion: &Completion,
    ) {
        let Some(rq) = tables.receives.live_mut(slot) else { return };
        let is_open = rq.open.contains(&index);
        if let Some(end) = self.end_mut(slot)
            && matches!(rq.source, Receives::Own(_))
            && is_open
        {
            end.receives = end.receives.saturating_sub(1);
        }
        let Some(status) = failure(completion.status) else {
            // Devices do not report whether the sender asked for an event.
            let (kind, byte_cnt, solicited) = (completion.kind, completion.byte_len, false);
            let from = None;
            self.reports.push(Report::Received { slot, index, kind, byte_cnt, solicited, from });
            return;
        };
        let flushed = completion.status == Status::Flushed;
        rq.counts.flushed += u64::from(is_open && flushed);
        let failed = rq.state == QpState::Err;
        let vendor = Some(completion.vendor as u8);
        self.reports.push(Report::ReceiveFailed { slot, index, status, vendor });
        if !failed {
            let status = (!flushed).then_some(status);
            self.reports.push(Report::Ended { slot, status });
        }
    }
}

/// The status of work that a device failed.
fn failure(status: Status) -> Option<Status> {
    (status != Status::Success).then_some(status)
}
