//! Work of a proxied QP that waits for copies. Its order is that of the queue: a request is posted
//! after those before it, and completes after them, whichever copy takes longer.

use super::bounce::Pieces;
use crate::engine::copies::{Behind, CopyQueue, Fault};
use crate::proxy_device::ProxySends;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use warpverbs_rdma::Completion;

/// Work for a WQE in addition to posting it to the device.
#[derive(Debug)]
pub(super) struct SideWork {
    /// Its inline data is in a slot.
    pub(super) slot: bool,
    /// Where its response is copied from the bounce buffer.
    pub(super) back: Pieces,
    /// The number behind the copies there, once they are started.
    pub(super) upto: Option<u64>,
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
    pub(super) parked: Behind<Parked>,
    /// Completions of the send queue behind a response that is being copied.
    pub(super) settling: VecDeque<(u64, Completion)>,
    pub(super) arrivals: Behind<Arrival>,
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

/// A request that is posted when its payload is in the bounce buffer and all requests before it are
/// posted.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) index: u64,
    /// A list of one.
    pub(super) request: ProxySends,
}

/// A receive that the device has filled, or an error behind one.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) index: u64,
    pub(super) completion: Completion,
}
