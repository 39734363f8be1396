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
pub enum UsageError {
    /// A field of [`EndpointConfig`](crate::EndpointConfig) has a value that will not do.
    #[error("{field} is {value}, expected {expected}")]
    Config {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The values allowed.
        expected: &'static str,
    },
    /// No NIC of that name.
    #[error("no NIC is called {asked:?}; expected auto, soft or one of: {found}")]
    NoSuchNic {
        /// Name asked for.
        asked: String,
        /// Names of the NICs here.
        found: String,
    },
    /// A range does not lie inside its region.
    #[error("range {offset:#x}+{len:#x} is outside a region of {region_len:#x} bytes")]
    OutOfRange {
        /// Offset asked for, bytes from the start of the region.
        offset: u64,
        /// Length asked for, bytes.
        len: u64,
        /// Length of the region, bytes.
        region_len: u64,
    },
    /// The two sides of a transfer differ in length.
    #[error("{local} bytes of local memory for {remote} bytes of remote memory")]
    LengthMismatch {
        /// Bytes on this side.
        local: u64,
        /// Bytes on the other side.
        remote: u64,
    },
    /// A message is longer than the NIC supports.
    #[error("a message of {bytes} bytes; a NIC carries at most {max}")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The most.
        max: u64,
    },
    /// Too many pieces of local memory for one work request.
    #[error("{count} scatter/gather entries, this queue takes at most {max}")]
    TooManySges {
        /// Entries given.
        count: usize,
        /// The most.
        max: usize,
    },
    /// Too much inline data for one work request.
    #[error("{bytes} bytes inline, this endpoint takes 1 to {max}")]
    Inline {
        /// Bytes given.
        bytes: usize,
        /// The most.
        max: usize,
    },
    /// An atomic works on a whole, aligned word.
    #[error("an atomic on {len} bytes at {addr:#x}, expected {size} bytes, aligned to {size}")]
    AtomicWord {
        /// Address given.
        addr: u64,
        /// Length given.
        len: u64,
        /// Size of the word.
        size: u64,
    },
    /// The posting state is in GPU memory, out of the CPU's reach.
    #[error("endpoint {qpn:#x} is posted to by kernels; make one with EndpointConfig::host()")]
    KernelPosted {
        /// The endpoint.
        qpn: u32,
    },
    /// The endpoint has no receive queue of its own.
    #[error("endpoint {qpn:#x} has no receive queue of its own: {why}")]
    NoReceiveQueue {
        /// The endpoint.
        qpn: u32,
        /// The cause, or the remedy.
        why: &'static str,
    },
    /// The work request cannot be written as a WQE.
    #[error(transparent)]
    Wqe(#[from] BuildError),
    /// The receive cannot be written as a receive WQE.
    #[error(transparent)]
    RecvWqe(#[from] RecvBuildError),
    /// An endpoint cannot be its own peer.
    #[error("endpoint {qpn:#x} was asked to connect to itself")]
    ConnectToSelf {
        /// The endpoint.
        qpn: u32,
    },
    /// An endpoint has one peer at a time.
    #[error("endpoint {qpn:#x} is already connected to {peer:#x}; reset() it first")]
    AlreadyConnected {
        /// The endpoint.
        qpn: u32,
        /// Its peer.
        peer: u32,
    },
    /// Send work needs a peer.
    #[error("endpoint {qpn:#x} is not connected")]
    NotConnected {
        /// The endpoint.
        qpn: u32,
    },
    /// A kernel may still use the endpoint: what `device_qp()` gave out is still held.
    #[error("endpoint {qpn:#x} is still lent to kernels; drop what device_qp() gave first")]
    StillLent {
        /// The endpoint.
        qpn: u32,
    },
    /// The peer is behind a NIC that this one has no way to.
    #[error("no way from {nic} ({own}) to the peer ({peer}): {why}")]
    NoWay {
        /// The own NIC.
        nic: String,
        /// Where it is.
        own: FabricAddress,
        /// Where the peer's NIC is.
        peer: FabricAddress,
        /// The obstacle.
        why: &'static str,
    },
}

/// Why a wait ended early. The first cause is kept; see [`Health`](crate::Health).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Nothing happened in time. Nothing is lost: waiting again is allowed.
    #[error(
        "endpoint {qpn:#x}: {queue} queue at {actual} of {expected} after {after:?}; the NIC may \
         be stuck, or the work unsignalled"
    )]
    Timeout {
        /// The endpoint.
        qpn: u32,
        /// Which queue.
        queue: QueueKind,
        /// The index that was waited for.
        expected: u64,
        /// How far the queue had come.
        actual: u64,
        /// How long the wait was.
        after: Duration,
    },
    /// No room came free in time; nothing was posted.
    #[error("endpoint {qpn:#x}: the {queue} queue of {depth} stayed full for {after:?}")]
    QueueFull {
        /// The endpoint.
        qpn: u32,
        /// Which queue.
        queue: QueueKind,
        /// Its depth, in WQEBBs (send) or work requests (receive).
        depth: u64,
        /// How long the wait was.
        after: Duration,
    },
    /// The shared receive queue holds as many receives as it can.
    #[error("shared receive queue {srqn:#x}: {receives} receives stayed posted for {after:?}")]
    SharedQueueFull {
        /// The queue.
        srqn: u32,
        /// Receives it can hold.
        receives: u32,
        /// How long the wait was.
        after: Duration,
    },
    /// All scratch slots for results of atomics stayed taken.
    #[error("endpoint {qpn:#x}: no scratch slot for an atomic's result in {after:?}")]
    NoScratch {
        /// The endpoint.
        qpn: u32,
        /// How long the wait was.
        after: Duration,
    },
    /// [`Endpoint::abort`](crate::Endpoint::abort) was called.
    #[error("endpoint {qpn:#x} was aborted")]
    Aborted {
        /// The endpoint.
        qpn: u32,
    },
    /// A kernel's poster gave up waiting for room, which leaves a hole that ends the queue.
    #[error("endpoint {qpn:#x}: a poster gave up waiting for room")]
    PosterGaveUp {
        /// The endpoint.
        qpn: u32,
    },
    /// The NIC reported a completion of work that is not in flight, which ends the queue.
    #[error(
        "endpoint {qpn:#x}: the NIC reported a completion of work request {counter:#06x} \
             (low 16 bits), which is not in flight"
    )]
    StrayCompletion {
        /// The endpoint.
        qpn: u32,
        /// Low 16 bits of the index that the completion names.
        counter: u16,
    },
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
