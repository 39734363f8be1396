//! Memory of a peer, as transfers hold it and paths see it.

use crate::AgentError;
use crate::control::Asked;
use crate::made::Made;
use crate::metadata::MemoryInfo;
use crate::plan::list::Extent;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use warpverbs_mem::Process;
use warpverbs_peer::RemoteRange;
use warpverbs_peer::descriptor::{Secrets, Trust};
use warpverbs_tcp::RemoteKey as TcpKey;

pub(crate) struct PeerMemory {
    pub(crate) extent: Extent,
    pub(crate) info: MemoryInfo,
    revoked: AtomicBool,
    /// Copies by the kernel that this process has under way.
    leases: AtomicU32,
    /// The proof of its owner.
    pub(crate) proven: Made<Arc<Proven>>,
    /// The memory mapped here, or its key; found out once.
    pub(crate) range: OnceLock<RemoteRange>,
    /// Its key for TCP connections, once it was asked for.
    pub(crate) tcp_key: OnceLock<TcpKey>,
}

/// An owner's proof that it has one memory.
pub(crate) struct Proven {
    pub(crate) secrets: Secrets,
    /// Its process, or why that is not known.
    pub(crate) process: Result<Arc<Process>, String>,
}

impl Proven {
    pub(crate) fn trust(&self) -> Trust<'_> {
        let process = self.process.as_ref().map(|process| process.descriptor());
        Trust::Proven { secrets: self.secrets, process: process.map_err(String::as_str) }
    }
}

impl PeerMemory {
    pub(crate) fn new(extent: Extent, info: MemoryInfo) -> Self {
        let (revoked, leases) = (AtomicBool::new(false), AtomicU32::new(0));
        let (proven, range, tcp_key) = (Made::default(), OnceLock::new(), OnceLock::new());
        Self { extent, info, revoked, leases, proven, range, tcp_key }
    }

    /// The owner no longer has it registered: no copy begins after this.
    pub(crate) fn revoke(&self) {
        // Sequentially consistent, as is all of `lease`: either a lease sees this, or a thread that
        // looks at `leases` after this sees the lease.
        self.revoked.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.leases.load(Ordering::SeqCst) == 0
    }

    /// The owner keeps the memory in place as long as the lease lives.
    pub(crate) fn lease(self: &Arc<Self>, peer: &dyn Asked) -> Result<Lease, AgentError> {
        self.leases.fetch_add(1, Ordering::SeqCst);
        let lease = Lease(self.clone());
        peer.check()?;
        self.check()?;
        Ok(lease)
    }

    /// Whether the owner still has it registered, as far as is known.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        match self.revoked.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(self.extent.deregistered()),
        }
    }
}

/// A copy under way, to or from memory of a peer.
pub(crate) struct Lease(Arc<PeerMemory>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.leases.fetch_sub(1, Ordering::SeqCst);
    }
}
