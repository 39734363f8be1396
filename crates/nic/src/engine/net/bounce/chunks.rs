//! Bounce buffers: host memory that payload passes through on its way between packets and a copy
//! engine.

use std::collections::VecDeque;
use std::sync::Arc;
use warpverbs_mem::{BounceBuffer, BouncePool, BounceShare, Copier, Kind, MemError, Region, Span};

/// Bytes of one chunk, and so of one copy at most. A copy of this size takes longer to move than to
/// start, and a connection that moves little holds little.
pub(super) const CHUNK: u32 = 256 << 10;
/// Chunks of one connection at most: 8 MiB, more than a peer has under way.
const PER_CONNECTION: usize = 32;
/// Chunks of a NIC at most, beyond the first of each connection.
const PER_NIC: usize = 256;

/// The chunks of a NIC.
pub(crate) fn pool() -> BouncePool {
    BouncePool::new(CHUNK as usize, PER_NIC)
}

/// Bytes of a chunk that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    chunk: u64,
    pub(super) at: u32,
    pub(super) len: u32,
}

impl Slice {
    /// The bytes from `start` on.
    pub(super) fn part(self, start: u32, len: u32) -> Slice {
        Slice { at: self.at + start, len, ..self }
    }
}

#[derive(Debug)]
struct Chunk {
    memory: BounceBuffer,
    /// Bytes taken, from the start.
    used: u32,
    /// Bytes taken and not released.
    live: u32,
}

/// The chunks of one connection. There is always one.
pub(super) struct Chunks {
    list: VecDeque<Chunk>,
    /// Number of the first.
    first: u64,
    share: BounceShare,
    copier: Arc<dyn Copier>,
    kind: Kind,
}

impl Chunks {
    /// For memory such as `region`.
    pub(super) fn new(pool: &BouncePool, region: &Region) -> Result<Self, MemError> {
        let (list, share, copier) = (VecDeque::new(), pool.share(), region.engine()?);
        let mut chunks = Self { list, first: 0, share, copier, kind: region.kind() };
        chunks.add()?;
        Ok(chunks)
    }

    /// Adds a chunk, if the NIC has one.
    fn add(&mut self) -> Result<bool, MemError> {
        let taken = self.share.take(&*self.copier, self.kind)?;
        let chunk = taken.map(|memory| Chunk { memory, used: 0, live: 0 });
        let any = chunk.is_some();
        self.list.extend(chunk);
        Ok(any)
    }

    /// Makes room for the next `len` bytes. False if there is none now.
    pub(super) fn make_room(&mut self, len: u32) -> bool {
        if let Some(last) = self.list.back_mut() {
            if last.live == 0 {
                last.used = 0;
            }
            if last.used + len <= CHUNK {
                return true;
            }
        }
        if self.list.len() >= PER_CONNECTION || len > CHUNK {
            return false;
        }
        self.add().unwrap_or_else(|error| {
            tracing::warn!(%error, "no more memory for bounce buffers");
            false
        })
    }

    /// Takes bytes for which there is room.
    pub(super) fn take(&mut self, len: u32) -> Option<Slice> {
        let chunk = self.first + self.list.len() as u64 - 1;
        let last = self.list.back_mut().filter(|last| last.used + len <= CHUNK)?;
        let at = last.used;
        last.used += len;
        last.live += len;
        Some(Slice { chunk, at, len })
    }

    pub(super) fn give_back(&mut self, slice: Slice) {
        if let Some(chunk) = self.list.get_mut((slice.chunk - self.first) as usize) {
            chunk.live -= slice.len;
        }
        while self.list.len() > 1 && self.list.front().is_some_and(|chunk| chunk.live == 0) {
            self.list.pop_front();
            self.first += 1;
        }
    }

    /// A slice that was taken and not given back.
    pub(super) fn span(&self, slice: Slice) -> Option<Span<'_>> {
        let chunk = self.list.get(slice.chunk.checked_sub(self.first)? as usize)?;
        let (offset, len) = (u64::from(slice.at), slice.len);
        Some(Span { region: &chunk.memory, offset, len, proxy_lkey: None })
    }
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}
