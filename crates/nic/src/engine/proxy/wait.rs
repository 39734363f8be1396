//! Work of a proxied QP goes on when copies have ended.

use super::Proxy;
use crate::clock::Time;
use crate::engine::tables::Tables;
use crate::slots::QpSlot;
use warpverbs_rdma::{Completion, Status};

impl Proxy {
    /// Lets everything go on whose copies have ended. Whether anything waits.
    pub(super) fn serve_waiting(&mut self, tables: &mut Tables, time: &Time, slot: QpSlot) -> bool {
        match self.end_mut(slot) {
            Some(end) if !end.waiting.is_empty() => {
                end.waiting.copies.poll(time.now(), None, u64::MAX);
            }
            _ => return false,
        }
        self.settle_waiting(slot);
        self.deliver_waiting(tables, slot);
        self.post_parked(tables, slot);
        true
    }

    /// A completion of the send queue that has to wait for those before it.
    pub(super) fn settle_later(&mut self, slot: QpSlot, index: u64, completion: &Completion) {
        if let Some(end) = self.end_mut(slot) {
            end.waiting.settling.push_back((index, *completion));
        }
        self.mark_busy(slot);
        // Their copies start now; completions stay in order.
        let Some(end) = self.end_mut(slot) else { return };
        let fails = completion.status != Status::Success;
        for (at, work) in &mut end.side_work {
            if *at > index || (fails && *at == index) {
                break;
            }
            // The outcome is looked at when the WQE is the oldest.
            let _ = work.bring_back(&mut end.waiting.copies);
        }
    }

    fn settle_waiting(&mut self, slot: QpSlot) {
        while let Some(&(index, completion)) =
            self.end(slot).and_then(|end| end.waiting.settling.front())
        {
            if !self.settle_upto(slot, index, &completion) {
                return;
            }
            if let Some(end) = self.end_mut(slot) {
                end.waiting.settling.pop_front();
            }
        }
    }
}
