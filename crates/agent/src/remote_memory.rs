//! Memory of a peer, as programs see it.

use crate::AgentError;
use crate::control::Asked as _;
use crate::names::{Owner, Place};
use crate::peer::{Peer, Routed};
use crate::plan::list::BlockList;
use std::fmt;
use std::sync::Arc;

/// Memory of a peer, from which lists of blocks are made.
#[derive(Clone)]
pub struct RemoteMemory(pub(crate) Arc<Routed>);

/// The memory of a peer, as far as it is known to an agent.
pub struct PeerMemories(Arc<Peer>);

impl PeerMemories {
    pub(crate) fn of(peer: Arc<Peer>) -> Result<Self, AgentError> {
        peer.check().map(|()| Self(peer))
    }

    /// All that is registered, in order of its numbers: the oldest first.
    ///
    /// # Errors
    /// The peer is lost.
    pub fn all(&self) -> Result<Vec<RemoteMemory>, AgentError> {
        Ok(self.0.memories()?.into_iter().map(RemoteMemory).collect())
    }

    /// A number that changes with all of it: when memory of the peer becomes known or is deregistered, and when the
    /// peer is known anew, of whichever generation. No number comes twice in a process, so an index that was
    /// made of the memories may be kept as long as the number that was asked for before them stays.
    ///
    /// # Errors
    /// The peer is lost.
    pub fn version(&self) -> Result<u64, AgentError> {
        self.0.version()
    }
}

impl fmt::Debug for PeerMemories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerMemories({})", self.0.name)
    }
}

impl RemoteMemory {
    /// The owner's number of it.
    pub fn id(&self) -> u32 {
        self.0.extent.id
    }

    /// The owner's name for it.
    pub fn label(&self) -> &str {
        &self.0.extent.label
    }

    /// Whose it is.
    pub fn owner(&self) -> &Owner {
        &self.0.extent.owner
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.0.extent.len
    }

    /// Where it begins in the owner's process, as the owner says. Ranges of lists are offsets from here.
    pub fn addr(&self) -> u64 {
        self.0.info.addr
    }

    /// Whether it is host memory.
    pub fn is_host(&self) -> bool {
        self.0.info.place == Place::Host
    }

    /// The number of the GPU whose memory it is, as the owner's process counts them.
    pub fn device(&self) -> Option<u32> {
        match self.0.info.place {
            Place::Cuda(number) | Place::Hip(number) => Some(number),
            _ => None,
        }
    }

    /// Whether there are no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `count` blocks of `len` bytes, one after the other from `offset` on.
    ///
    /// # Errors
    /// There are none, or they are not inside the memory.
    pub fn blocks(&self, offset: u64, len: u64, count: usize) -> Result<BlockList, AgentError> {
        self.0.extent.run(offset, len, len, count)
    }

    /// `count` blocks of `len` bytes, each `stride` bytes after the one before it.
    ///
    /// # Errors
    /// There are none, or they are not inside the memory.
    pub fn strided(
        &self,
        offset: u64,
        len: u64,
        stride: u64,
        count: usize,
    ) -> Result<BlockList, AgentError> {
        self.0.extent.run(offset, len, stride, count)
    }

    /// Blocks of `len` bytes at each of `offsets`.
    ///
    /// # Errors
    /// There are none, or they are not inside the memory.
    pub fn blocks_at(&self, offsets: &[u64], len: u64) -> Result<BlockList, AgentError> {
        self.0.extent.at(offsets, len)
    }
}

impl fmt::Debug for RemoteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (label, owner, len) = (self.label(), self.owner(), self.len());
        write!(f, "RemoteMemory({label:?} of {owner}, {len} bytes)")
    }
}
