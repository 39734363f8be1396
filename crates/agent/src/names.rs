//! Plain values that all of the crate uses: owner, path, operation, state.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use warpverbs_mem::Kind;

/// The generation of an agent: an agent that starts again under the same name has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Generation {
    /// Nanoseconds since 1970 by the clock of its host.
    started: u64,
    /// Random.
    nonce: u64,
}

impl Generation {
    /// Of an agent that starts now. `nonce` is random.
    pub(crate) fn now(nonce: [u8; 8]) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        Self { started, nonce: u64::from_le_bytes(nonce) }
    }

    #[cfg(test)]
    pub(crate) fn of(started: u64, nonce: u64) -> Self {
        Self { started, nonce }
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.started.to_le_bytes());
        bytes[8..].copy_from_slice(&self.nonce.to_le_bytes());
        bytes
    }

    /// Whether this one started before the other, by their hosts' clocks.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.started < other.started
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:04x}", self.started / 1_000_000, self.nonce & 0xffff)
    }
}

/// An agent: its name and generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// Its name.
    pub name: Arc<str>,
    /// Which agent of that name.
    pub generation: Generation,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.generation)
    }
}

/// Where memory lives, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Place {
    Host,
    Cuda(u32),
    Hip(u32),
    Other,
}

impl From<Kind> for Place {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Host => Self::Host,
            Kind::Cuda(n) => Self::Cuda(n),
            Kind::Hip(n) => Self::Hip(n),
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host memory"),
            Self::Cuda(n) => write!(f, "memory of cuda:{n}"),
            Self::Hip(n) => write!(f, "memory of hip:{n}"),
            Self::Other => f.write_str("memory of another kind"),
        }
    }
}

/// A way from memory to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathKind {
    /// Both are in this process.
    SameProcess,
    /// The peer's memory is mapped into this process.
    Mapped,
    /// The kernel copies from process to process.
    ProcessCopy,
    /// Queue pairs of a NIC.
    Network,
    /// TCP sockets, into device memory where the peer's NIC can.
    Tcp,
}

impl PathKind {
    /// All of them, the best first.
    pub const ALL: [Self; 5] =
        [Self::SameProcess, Self::Mapped, Self::ProcessCopy, Self::Network, Self::Tcp];

    /// Its name as one word, for settings and monitoring: `process-copy`, for example.
    pub fn word(self) -> &'static str {
        match self {
            Self::SameProcess => "same-process",
            Self::Mapped => "mapped-memory",
            Self::ProcessCopy => "process-copy",
            Self::Network => "network",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameProcess => "same process",
            Self::Mapped => "mapped memory",
            Self::ProcessCopy => "process copy",
            Self::Network => "network",
            Self::Tcp => "TCP",
        })
    }
}

/// Which way a transfer moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// From the peer's memory to this agent's.
    Read,
    /// From this agent's memory to the peer's.
    Write,
}

/// Where a transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not posted yet.
    NotPosted,
    /// Posted; blocks are under way.
    InProgress,
    /// All blocks are in place, and the peer has the notification, if there is one. Terminal.
    Done,
    /// It failed; [`Transfer::error`](crate::Transfer::error) has the first cause. Blocks may have been moved in part.
    /// Terminal.
    Failed,
    /// It was cancelled. Blocks may have been moved in part. Terminal.
    Cancelled,
}

impl State {
    /// Whether the transfer is over, until it is posted again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// The cost of a transfer's last post.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Telemetry {
    /// Time inside of the call that posted.
    pub post: Duration,
    /// Time from the post until it was over.
    pub transfer: Duration,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Descriptors after neighbours were merged.
    pub descriptors: usize,
    /// The paths taken, in order of their first block.
    pub paths: Vec<PathKind>,
}
