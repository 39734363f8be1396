//! What a NIC provides that takes the host's work by calls instead of by rings in memory. Kernels
//! cannot post this way.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use warpverbs_nic::{Gone, Posted, ProxyKeys, ProxyLimits, ProxyReceiver};
use warpverbs_rdma::{Completion, WorkRequest};

/// A QP's calls. Each part is used by one thread at a time, different ones by different threads.
#[derive(Debug)]
pub(crate) struct DirectPorts {
    /// What its queues take, and how many completions of either are remembered.
    pub(crate) limits: ProxyLimits,
    /// Set while the QP may have READs and atomics outstanding.
    pub(crate) fetches: Arc<AtomicBool>,
    /// The keys of its protection domain.
    pub(crate) keys: ProxyKeys,
    /// Takes sends.
    pub(crate) send: Box<dyn SendPort>,
    /// Takes receives; `None` if they come from an SRQ, or not at all.
    pub(crate) recv: Option<Box<dyn ProxyReceiver>>,
    /// Where sends complete.
    pub(crate) sent: Box<dyn CompletionPort>,
    /// Where receives complete.
    pub(crate) arrived: Box<dyn CompletionPort>,
}

/// Takes send work requests.
pub(crate) trait SendPort: Send + fmt::Debug {
    /// Posts a request if there is room.
    fn post_send(&mut self, work: &WorkRequest<'_>) -> Posted;
}

/// Tells what has completed, which the NIC has room to remember for all that it takes.
pub(crate) trait CompletionPort: Send + fmt::Debug {
    /// Takes completions, as many as there are and as `out` holds.
    ///
    /// # Errors
    /// The NIC is gone.
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Gone>;
}
