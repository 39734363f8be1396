//! Errors, and the kind of each: who has to act.

use crate::codec::EncodingError;
use crate::names::{Generation, PathKind};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use warpverbs_gpu::{ArenaError, GpuError};
use warpverbs_mem::MemError;
use warpverbs_peer::Reason;
use warpverbs_transport::ErrorKind;

/// A call on an agent or a transfer failed. Clones share their cause.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A setting is wrong.
    #[error("{field} is {value}, expected {expected}")]
    Config {
        /// Which setting.
        field: &'static str,
        /// The given value.
        value: String,
        /// The values that are taken.
        expected: &'static str,
    },
    /// A range is empty or not inside registered memory.
    #[error("block {index}: {len} bytes at {offset:#x} are {}inside {label:?} of {owner}, which has {size} bytes",
        if *.len == 0 { "not a range " } else { "not " })]
    Range {
        /// Which block of the list.
        index: usize,
        /// Where it begins, bytes from the start of the registration.
        offset: u64,
        /// Its length.
        len: u64,
        /// The registration's label.
        label: String,
        /// The registration's agent.
        owner: String,
        /// The registration's length.
        size: u64,
    },
    /// A list or an index that selects nothing, or more than a list may have.
    #[error("{what}: {found} blocks, expected {expected}")]
    Count {
        /// Which list.
        what: &'static str,
        /// How many it has.
        found: usize,
        /// The numbers that are taken.
        expected: String,
    },
    /// An index beyond the end of a prepared list.
    #[error("{side} index {index} is {value}, the list has {blocks} blocks")]
    Index {
        /// `local` or `remote`.
        side: &'static str,
        /// Position among the indices.
        index: usize,
        /// The index.
        value: u32,
        /// Blocks of the list.
        blocks: usize,
    },
    /// A local block and its remote one differ in length.
    #[error("block {index}: {local} bytes here, {remote} at the peer")]
    Lengths {
        /// Which pair.
        index: usize,
        /// Length of the local block.
        local: u64,
        /// Length of the remote block.
        remote: u64,
    },
    /// A list of another agent where one of this agent, or of a peer, is needed.
    #[error("{what} is memory of {owner}, expected {expected}")]
    Foreign {
        /// Which list.
        what: &'static str,
        /// Whose memory it describes.
        owner: String,
        /// The owner that was expected.
        expected: String,
    },
    /// Nothing is known of an agent of this name.
    #[error("no metadata of an agent {name:?} is loaded")]
    UnknownPeer {
        /// The name.
        name: String,
    },
    /// The peer's metadata names no such memory.
    #[error("the metadata of {peer} names no memory {memory}")]
    UnknownMemory {
        /// The peer.
        peer: String,
        /// Label or number.
        memory: String,
    },
    /// The memory is no longer registered.
    #[error("memory {label:?} of {owner} has been deregistered")]
    Deregistered {
        /// Its agent.
        owner: String,
        /// Its label.
        label: String,
    },
    /// Deregistered memory that is still accessed, or might be. It is kept until that ends.
    #[error("memory {label:?} of {owner} is still in use {after:?} after its end, by {}",
        if .by.is_empty() { "a transfer of this process, or by a clone of its buffer".to_owned() } else { .by.join(", ") })]
    InUse {
        /// Its label.
        label: String,
        /// Its agent.
        owner: String,
        /// Peers that have not confirmed that they do not access it; if there is none, it is this process
        /// that does.
        by: Vec<String>,
        /// The time that they had.
        after: Duration,
    },
    /// The name now belongs to a newer generation of the agent, or the metadata is of an older one.
    #[error("{peer} is now generation {current}; this is of {found}")]
    Stale {
        /// The peer.
        peer: String,
        /// The generation that is known.
        current: Generation,
        /// The generation that was given.
        found: Generation,
    },
    /// The peer's connection ended: its process or agent did, or it was removed here.
    #[error("{peer} is lost: {why}")]
    PeerLost {
        /// The peer.
        peer: String,
        /// How that was seen.
        why: String,
    },
    /// The peer refused, for instance because the tokens differ.
    #[error("{peer} refuses: {}", warpverbs_meet::printable(why))]
    Refused {
        /// The peer, or its address.
        peer: String,
        /// Its own message.
        why: String,
    },
    /// The transfer is in progress, or another thread posts it at this moment.
    #[error("the transfer is in progress")]
    InProgress,
    /// The call needs a transfer that was posted.
    #[error("the transfer has not been posted")]
    NotPosted,
    /// The transfer was cancelled, and blocks may have been moved in part; or the stream was.
    #[error("it was cancelled")]
    Cancelled,
    /// Time is up. The call may have taken effect in part.
    #[error("{what}: not done after {after:?}")]
    Timeout {
        /// The event that was waited for, with the peer's name.
        what: String,
        /// The time it had.
        after: Duration,
    },
    /// A notification that is too long, or for which the peer has no room.
    #[error("a notification of {len} bytes: {why}")]
    Notification {
        /// Its length.
        len: usize,
        /// The reason.
        why: String,
    },
    /// A bound on the memory that all peers together may use at this agent is reached.
    #[error("no room for {bytes} bytes: {what} is at its bound")]
    Full {
        /// The kind of thing that is kept.
        what: &'static str,
        /// Its size here.
        bytes: usize,
    },
    /// The other end of a stream has given it up.
    #[error("stream {stream:?}: {peer} has given it up: {why}")]
    GivenUp {
        /// The stream's name.
        stream: String,
        /// The other end.
        peer: String,
        /// Its own message.
        why: String,
    },
    /// A message that is longer than a slot of its stream.
    #[error("a message of {len} bytes, stream {stream:?} takes at most {most}")]
    Message {
        /// The stream's name.
        stream: String,
        /// Its length.
        len: u64,
        /// The length of a slot.
        most: u64,
    },
    /// Received bytes could not be decoded.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// No path leads from this memory to that.
    #[error("no path from {local} to {remote}: {}", Reason::list(.tried))]
    NoPath {
        /// The local memory.
        local: String,
        /// The peer's memory.
        remote: String,
        /// The paths that were tried, each with its reason.
        tried: Vec<Reason>,
    },
    /// A path failed during a transfer.
    #[error("{path} to {peer}: {cause}")]
    Path {
        /// Which.
        path: PathKind,
        /// The peer.
        peer: String,
        /// Its own message.
        cause: String,
    },
    /// The exchange failed.
    #[error("{what}: {cause}")]
    Exchange {
        /// The request to it.
        what: String,
        /// Its own message.
        cause: String,
    },
    /// Memory could not be allocated or accessed.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// Shared memory could not be allocated.
    #[error(transparent)]
    Arena(#[from] Arc<ArenaError>),
    /// The device that runs kernels refused.
    #[error(transparent)]
    Gpu(#[from] Arc<GpuError>),
    /// The NIC refused.
    #[error(transparent)]
    Nic(#[from] Arc<warpverbs_transport::TransportError>),
    /// A call of the system failed.
    #[error("{call}: {cause}")]
    System {
        /// The call.
        call: &'static str,
        /// Its own message.
        cause: Arc<std::io::Error>,
    },
}

impl AgentError {
    /// The kind of the error: who has to act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Stale { .. }
            | Self::PeerLost { .. }
            | Self::Refused { .. }
            | Self::GivenUp { .. }
            | Self::Deregistered { .. }
            | Self::Encoding(_)
            | Self::Path { .. } => ErrorKind::BadPeer,
            Self::InProgress
            | Self::Cancelled
            | Self::Full { .. }
            | Self::InUse { .. }
            | Self::Timeout { .. }
            | Self::Exchange { .. }
            | Self::Arena(_)
            | Self::Gpu(_)
            | Self::Nic(_)
            | Self::System { .. } => ErrorKind::BadLuck,
            _ => ErrorKind::BadCaller,
        }
    }

    pub(crate) fn system(call: &'static str, cause: impl Into<std::io::Error>) -> Self {
        Self::System { call, cause: Arc::new(cause.into()) }
    }
}

impl From<ArenaError> for AgentError {
    fn from(error: ArenaError) -> Self {
        Self::Arena(Arc::new(error))
    }
}

impl From<GpuError> for AgentError {
    fn from(error: GpuError) -> Self {
        Self::Gpu(Arc::new(error))
    }
}

impl From<warpverbs_transport::TransportError> for AgentError {
    fn from(error: warpverbs_transport::TransportError) -> Self {
        Self::Nic(Arc::new(error))
    }
}
