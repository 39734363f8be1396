//! Errors, and whose doing they are.

mod handle;
mod kernel;
mod word;
mod work;

pub use handle::HandleError;
pub use kernel::KernelError;
pub(crate) use word::decode_error;
pub use work::WorkError;

use crate::{FabricAddress, Health};
use std::time::Duration;
use thiserror::Error;
use warpverbs_gpu::GpuError;
use warpverbs_mem::MemError;
use warpverbs_mlx5::export::NicFormat;
use warpverbs_mlx5::recv::RecvBuildError;
use warpverbs_mlx5::wqe::BuildError;
use warpverbs_nic::{ModifyError, NicError};
use warpverbs_rdma::QueueKind;
#[cfg(feature = "verbs")]
use warpverbs_verbs::VerbsError;

/// Everything a call of this crate can fail with, said by its cause. [`TransportError::kind`] says who
/// can put it right.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The call asks for something that cannot be.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// Bytes that should have been a handle or a region of a peer are not.
    #[error(transparent)]
    Handle(#[from] HandleError),
    /// Work completed with an error; the QP is in the error state.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// A wait ended without what it waited for.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The NIC refused or failed.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// A QP did not change its state.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The device that runs the kernels refused or failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A kernel ended with a bad status.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// libibverbs, or a device behind it, refused or failed.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// Memory could not be had or touched.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// Whose doing an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's: the same call will fail again.
    BadCaller,
    /// The peer's: it ended, was replaced, or broke a rule.
    BadPeer,
    /// Nobody's: resources, time, or a failing part; it may work another time.
    BadLuck,
}

impl TransportError {
    /// Whose doing it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Usage(_) | Self::Modify(_) | Self::Gpu(GpuError::BadLaunch { .. }) => {
                ErrorKind::BadCaller
            }
            Self::Handle(_) => ErrorKind::BadPeer,
            Self::Work(work) => work.kind(),
            Self::Kernel(KernelError { health, .. }) => {
                health.iter().find_map(Health::kind).unwrap_or(ErrorKind::BadLuck)
            }
            Self::Memory(MemError::OutOfBounds { .. } | MemError::Misaligned { .. }) => {
                ErrorKind::BadCaller
            }
            #[cfg(feature = "verbs")]
            Self::Verbs(
                VerbsError::NoDevice { .. }
                | VerbsError::Selection(_)
                | VerbsError::OutOfRange { .. }
                | VerbsError::NeedsLocalWrite { .. }
                | VerbsError::BouncedRights { .. }
                | VerbsError::Unsupported { .. },
            ) => ErrorKind::BadCaller,
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => ErrorKind::BadLuck,
            Self::Wait(_) | Self::Nic(_) | Self::Gpu(_) | Self::Memory(_) => ErrorKind::BadLuck,
        }
    }
}

impl From<std::convert::Infallible> for TransportError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// A call that cannot be granted as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum UsageError {
    /// A field of [`EndpointConfig`](crate::EndpointConfig) has a value that will not do.
    #[error("{field} is {value}, expected {expected}")]
    Config { field: &'static str, value: u64, expected: &'static str },
    /// No NIC of that name.
    #[error(
        "no NIC is called {asked:?}; expected auto, soft, soft-bnxt, soft-ionic or one of: {found}"
    )]
    NoSuchNic { asked: String, found: String },
    /// A range does not lie inside its region.
    #[error("range {offset:#x}+{len:#x} is outside a region of {region_len:#x} bytes")]
    OutOfRange { offset: u64, len: u64, region_len: u64 },
    /// The two sides of a transfer differ in length.
    #[error("{local} bytes of local memory for {remote} bytes of remote memory")]
    LengthMismatch { local: u64, remote: u64 },
    /// A message is longer than the NIC supports.
    #[error("a message of {bytes} bytes; a NIC carries at most {max}")]
    TooLong { bytes: u64, max: u64 },
    /// Too many pieces of local memory for one work request.
    #[error("{count} scatter/gather entries, this queue takes at most {max}")]
    TooManySges { count: usize, max: usize },
    /// Too much inline data for one work request.
    #[error("{bytes} bytes inline, this endpoint takes 1 to {max}")]
    Inline { bytes: usize, max: usize },
    /// An atomic works on a whole, aligned word.
    #[error("an atomic on {len} bytes at {addr:#x}, expected {size} bytes, aligned to {size}")]
    AtomicWord { addr: u64, len: u64, size: u64 },
    /// The posting state is in GPU memory, out of the CPU's reach.
    #[error("endpoint {qpn:#x} is posted to by kernels; make one with EndpointConfig::host()")]
    KernelPosted { qpn: u32 },
    /// The endpoint has no receive queue of its own.
    #[error("endpoint {qpn:#x} has no receive queue of its own: {why}")]
    NoReceiveQueue { qpn: u32, why: &'static str },
    /// The work request cannot be written as a WQE.
    #[error(transparent)]
    Wqe(#[from] BuildError),
    /// The queues of the NIC cannot ask for it.
    #[error("{what} does not exist in queues of {format}")]
    NotOfFormat { what: &'static str, format: NicFormat },
    /// The work request cannot be written in the format of the NIC's queues.
    #[error("{why}")]
    Request { why: String },
    /// The receive cannot be written as a receive WQE.
    #[error(transparent)]
    RecvWqe(#[from] RecvBuildError),
    /// An endpoint cannot be its own peer.
    #[error("endpoint {qpn:#x} was asked to connect to itself")]
    ConnectToSelf { qpn: u32 },
    /// An endpoint has one peer at a time.
    #[error("endpoint {qpn:#x} is already connected to {peer:#x}; reset() it first")]
    AlreadyConnected { qpn: u32, peer: u32 },
    /// Send work needs a peer.
    #[error("endpoint {qpn:#x} is not connected")]
    NotConnected { qpn: u32 },
    /// A kernel may still use the endpoint: what `device_qp()` gave out is still held.
    #[error("endpoint {qpn:#x} is still lent to kernels; drop what device_qp() gave first")]
    StillLent { qpn: u32 },
    /// The peer is behind a NIC that this one has no way to.
    #[error("no way from {nic} ({own}) to the peer ({peer}): {why}")]
    NoWay { nic: String, own: FabricAddress, peer: FabricAddress, why: &'static str },
}

/// Why a wait ended early. The first cause is kept; see [`Health`](crate::Health).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum WaitError {
    /// Nothing happened in time. Nothing is lost: waiting again is allowed.
    #[error(
        "endpoint {qpn:#x}: {queue} queue at {actual} of {expected} after {after:?}; the NIC may \
         be stuck, or the work unsignalled"
    )]
    Timeout { qpn: u32, queue: QueueKind, expected: u64, actual: u64, after: Duration },
    /// No room came free in time; nothing was posted. `depth` is in WQEBBs (send) or work requests
    /// (receive).
    #[error("endpoint {qpn:#x}: the {queue} queue of {depth} stayed full for {after:?}")]
    QueueFull { qpn: u32, queue: QueueKind, depth: u64, after: Duration },
    /// The shared receive queue holds as many receives as it can.
    #[error("shared receive queue {srqn:#x}: {receives} receives stayed posted for {after:?}")]
    SharedQueueFull { srqn: u32, receives: u32, after: Duration },
    /// All scratch slots for results of atomics stayed taken.
    #[error("endpoint {qpn:#x}: no scratch slot for an atomic's result in {after:?}")]
    NoScratch { qpn: u32, after: Duration },
    /// [`Endpoint::abort`](crate::Endpoint::abort) was called.
    #[error("endpoint {qpn:#x} was aborted")]
    Aborted { qpn: u32 },
    /// A kernel's poster gave up waiting for room, which leaves a hole that ends the queue.
    #[error("endpoint {qpn:#x}: a poster gave up waiting for room")]
    PosterGaveUp { qpn: u32 },
    /// The NIC reported a completion of work that is not in flight, which ends the queue.
    #[error(
        "endpoint {qpn:#x}: the NIC reported a completion of work request {counter:#06x} \
             (low 16 bits), which is not in flight"
    )]
    StrayCompletion { qpn: u32, counter: u16 },
}

pub(crate) fn no_entropy() -> TransportError {
    TransportError::Nic(NicError::Key(warpverbs_mem::KeyError::NoEntropy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use std::io;

    /// Message as `anyhow` and others print it: every link of the chain, separated by colons.
    fn chain(error: &TransportError) -> String {
        let (mut text, mut next) = (error.to_string(), error.source());
        while let Some(link) = next {
            text += &format!(": {link}");
            next = link.source();
        }
        text
    }

    #[test]
    fn a_printed_chain_says_everything_once() {
        let memory = MemError::Map { len: 4096, errno: nix::errno::Errno::ENOMEM };
        let words = memory.to_string();
        let what = "a ring";
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let cache = GpuError::Cache { path: "/cache/a".into(), cause: refused };
        let errors: [(TransportError, &str); 6] = [
            (memory.clone().into(), &words),
            (GpuError::from(memory.clone()).into(), &words),
            (NicError::Memory { what, cause: memory }.into(), &format!("a ring: {words}")),
            (
                NicError::from(warpverbs_mem::KeyError::NoEntropy).into(),
                "no random bytes for a key",
            ),
            (cache.into(), "compile cache /cache/a: permission denied"),
            (UsageError::NotConnected { qpn: 5 }.into(), "endpoint 0x5 is not connected"),
        ];
        for (error, words) in errors {
            assert_eq!((error.to_string().as_str(), chain(&error).as_str()), (words, words));
        }
    }
}
