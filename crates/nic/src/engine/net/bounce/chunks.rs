//! Bounce buffers: host memory that payload passes through on its way between packets and a copy
//! engine.

use std::collections::VecDeque;
use std::sync::Arc;
use warpverbs_mem::{Copier, MemError, Region, Span};

/// Bytes of one chunk, and so of one copy at most. A copy of this size takes longer to move than to
/// start, and a connection that moves little holds little.
pub(super) const CHUNK: u32 = 256 << 10;
/// Chunks of one connection at most: 8 MiB, more than a peer has under way.
const PER_CONNECTION: usize = 32;
/// Chunks of a NIC at most, beyond the first of each connection.
const PER_NIC: usize = 256;

/// Free chunks of a NIC.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Vec<Region>,
    /// Chunks that connections use beyond their first.
    lent: usize,
}

impl Pool {
    /// Memory that the driver knows is known to all its devices, so any connection may have any
    /// chunk.
    fn take(&mut self, copier: &dyn Copier) -> Result<Region, MemError> {
        self.free.pop().map_or_else(|| copier.host_memory(CHUNK as usize), Ok)
    }

    fn lend(&mut self, copier: &dyn Copier) -> Option<Region> {
        if self.lent >= PER_NIC {
            return None;
        }
        let memory = self.take(copier).inspect_err(|error| {
            tracing::warn!(%error, "no more memory for bounce buffers");
        });
        memory.ok().inspect(|_| self.lent += 1)
    }
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
    memory: Region,
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
    copier: Arc<dyn Copier>,
}

impl Chunks {
    pub(super) fn new(pool: &mut Pool, copier: Arc<dyn Copier>) -> Result<Self, MemError> {
        let memory = pool.take(&*copier)?;
        let list = VecDeque::from([Chunk { memory, used: 0, live: 0 }]);
        Ok(Self { list, first: 0, copier })
    }

    /// Makes room for the next `len` bytes. False if there is none now.
    pub(super) fn make_room(&mut self, pool: &mut Pool, len: u32) -> bool {
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
        let Some(memory) = pool.lend(&*self.copier) else { return false };
        self.list.push_back(Chunk { memory, used: 0, live: 0 });
        true
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

    pub(super) fn give_back(&mut self, pool: &mut Pool, slice: Slice) {
        if let Some(chunk) = self.list.get_mut((slice.chunk - self.first) as usize) {
            chunk.live -= slice.len;
        }
        while self.list.len() > 1 && self.list.front().is_some_and(|chunk| chunk.live == 0) {
            pool.free.extend(self.list.pop_front().map(|chunk| chunk.memory));
            pool.lent -= 1;
            self.first += 1;
        }
    }

    /// A slice that was taken and not given back.
    pub(super) fn span(&self, slice: Slice) -> Option<Span<'_>> {
        let chunk = self.list.get(slice.chunk.checked_sub(self.first)? as usize)?;
        let (offset, len) = (u64::from(slice.at), slice.len);
        Some(Span { region: &chunk.memory, offset, len, proxy_lkey: None })
    }

    /// The connection goes: its idle chunks go back to the pool.
    pub(super) fn release_all(&mut self, pool: &mut Pool) {
        pool.lent -= self.list.len().saturating_sub(1);
        let idle = self.list.drain(..).filter(|chunk| chunk.live == 0);
        pool.free.extend(idle.map(|chunk| chunk.memory));
    }
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}
