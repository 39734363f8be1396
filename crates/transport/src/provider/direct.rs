//! Interface of a NIC that takes the host's work by calls instead of by rings in memory. Kernels
//! cannot post this way.

use std::fmt;
use warpverbs_nic::{Gone, Rule};
use warpverbs_rdma::{Completion, Sge, WorkRequest};

/// A QP's calls. Each part is used by one thread at a time, different ones by different threads.
#[derive(Debug)]
pub(crate) struct DirectPorts {
    /// Sends that may be outstanding: the NIC remembers as many completions.
    pub(crate) send_depth: u32,
    /// The same for receives; 0 if they come from an SRQ, or not at all.
    pub(crate) recv_depth: u32,
    /// Takes sends.
    pub(crate) send: Box<dyn SendPort>,
    /// Takes receives; `None` if they come from an SRQ, or not at all.
    pub(crate) recv: Option<Box<dyn RecvPort>>,
    /// Where sends complete.
    pub(crate) sent: Box<dyn CompletionPort>,
    /// Where receives complete.
    pub(crate) arrived: Box<dyn CompletionPort>,
}

/// Why a work request was not posted.
// Without libibverbs no NIC takes calls.
#[cfg_attr(not(feature = "verbs"), allow(dead_code))]
pub(crate) enum NotPosted {
    /// The queue is full for now.
    Full,
    /// The request breaks this rule, and always will.
    Refused(Box<Rule>),
}

impl From<Box<Rule>> for NotPosted {
    fn from(rule: Box<Rule>) -> Self {
        Self::Refused(rule)
    }
}

/// Takes send work requests, which name memory by the keys of their protection domain.
pub(crate) trait SendPort: Send + fmt::Debug {
    /// Posts a request if there is room.
    fn post_send(&mut self, work: &WorkRequest<'_>) -> Result<(), NotPosted>;
}

/// Takes receives, which name memory in the same way.
pub(crate) trait RecvPort: Send + fmt::Debug {
    /// Posts a receive if there is room; `id` comes back with its completion.
    fn post_recv(&mut self, id: u64, sges: &[Sge]) -> Result<(), NotPosted>;
}

/// Reports what has completed; the NIC remembers the completions of all that it takes.
pub(crate) trait CompletionPort: Send + fmt::Debug {
    /// Takes completions, as many as there are and as `out` holds.
    ///
    /// # Errors
    /// The NIC is gone.
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Gone>;
}
