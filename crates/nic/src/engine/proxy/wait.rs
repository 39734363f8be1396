//! Work of a proxied QP that waits for copies. Its order is that of the queue: a request is posted
//! after those before it, and completes after them, whichever copy takes longer.

use super::Proxy;
use super::arrivals::Arrival;
use super::bounce::Pieces;
use super::parked::Parked;
use crate::clock::Time;
use crate::engine::copies::{CopyQueue, Fault};
use crate::engine::tables::Tables;
use crate::slots::QpSlot;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use warpverbs_rdma::{Completion, Status};

/// Work for a WQE in addition to posting it to the device.
#[derive(Debug)]
pub(super) struct SideWork {
    /// Its inline data is in a slot.
    pub(super) slot: bool,
    /// Where its response is copied from the bounce buffer.
    back: Pieces,
    /// The number behind the copies there, once they are started.
    upto: Option<u64>,
}

impl SideWork {
    pub(super) fn new(slot: bool, back: Pieces) -> Self {
        Self { slot, back, upto: None }
    }

    /// The device has completed it: whether the response is in user memory.
    pub(super) fn bring_back(&mut self, copies: &mut CopyQueue<()>) -> Result<bool, Fault> {
        let upto = self.upto.get_or_insert_with(|| self.back.bring_back(u64::MAX, copies));
        copies.outcome(*upto)
    }

    /// Its response is being copied.
    pub(super) fn is_under_way(&self, copies: &CopyQueue<()>) -> bool {
        self.upto.is_some_and(|upto| !copies.has_ended(upto))
    }
}

/// Work of a QP that waits for copies, in order.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Copies from and to bounce buffers.
    pub(super) copies: CopyQueue<()>,
    pub(super) parked: VecDeque<Parked>,
    /// Completions of the send queue behind a response that is being copied.
    settling: VecDeque<(u64, Completion)>,
    pub(super) arrivals: VecDeque<Arrival>,
    /// Receives of the QP's own queue at the device with a bounce buffer, by index.
    pub(super) landing: FxHashMap<u64, Pieces>,
}

impl Waiting {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
            && self.settling.is_empty()
            && self.arrivals.is_empty()
            && self.copies.is_empty()
    }

    #[inline]
    pub(super) fn is_settling(&self) -> bool {
        !self.settling.is_empty()
    }

    /// No copy is in flight, and nothing waits for one but requests to be posted.
    pub(super) fn is_over(&self) -> bool {
        self.copies.is_empty() && self.settling.is_empty() && self.arrivals.is_empty()
    }
}

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
