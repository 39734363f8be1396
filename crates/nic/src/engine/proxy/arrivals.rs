//! Receives that the device has filled, and that complete once their bytes are in place.

use super::Proxy;
use super::bounce::Pieces;
use super::waiting::{Arrival, Waiting};
use crate::engine::tables::Tables;
use crate::slots::QpSlot;
use warpverbs_rdma::{Completion, Status};

impl Proxy {
    /// A receive came back from the device; `pieces` of it lie in bounce buffers.
    pub(super) fn receive_came_back(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        index: u64,
        completion: &Completion,
        pieces: Option<Pieces>,
    ) {
        let Some(end) = self.end_mut(slot) else { return };
        let brings = completion.status == Status::Success && completion.kind.fills_receive();
        let upto = match pieces.filter(|_| brings) {
            Some(pieces) => pieces.bring_back(completion.byte_len.into(), &mut end.waiting.copies),
            None if end.waiting.arrivals.is_empty() => {
                return self.settle_receive(tables, slot, index, completion);
            }
            None => 0,
        };
        end.waiting.arrivals.push(upto, Arrival { index, completion: *completion });
        self.mark_busy(slot);
    }

    /// Completes receives whose bytes are in place, in order.
    pub(super) fn deliver_waiting(&mut self, tables: &mut Tables, slot: QpSlot) {
        while let Some(end) = self.end_mut(slot) {
            let Waiting { arrivals, copies, .. } = &mut end.waiting;
            let Some((arrival, copied)) = arrivals.pop_outcome(copies) else { return };
            let Arrival { index, mut completion } = arrival;
            if let Err(error) = copied {
                tracing::warn!(%error, %slot, "payload that arrived could not be copied");
                completion.status = Status::LocalProtection;
            }
            self.settle_receive(tables, slot, index, &completion);
        }
    }
}
