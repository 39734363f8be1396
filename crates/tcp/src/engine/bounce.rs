//! Pinned host memory between a socket and memory that only a copy engine reaches.

use std::sync::Arc;
use warpverbs_mem::{Copier, Kind, MemError, Pending, Progress, Region, copy};

/// Bounce buffers of one copy engine, each as long as a chunk.
#[derive(Default)]
pub(super) struct Bounce {
    copier: Option<Arc<dyn Copier>>,
    free: Vec<Region>,
    made: usize,
}

impl Bounce {
    /// A free buffer for memory of this kind, unless `most` are in use.
    pub(super) fn take(
        &mut self,
        of: &Region,
        len: usize,
        most: usize,
    ) -> Result<Option<Region>, MemError> {
        let none = MemError::NoCopier { from: Kind::Host, to: of.kind() };
        let copier = of.copier().ok_or(none)?;
        if self.copier.as_ref().is_none_or(|ours| !Arc::ptr_eq(ours, &copier)) {
            // Buffers of another engine that are in use are dropped when they come back.
            *self = Self { copier: Some(copier.clone()), ..Self::default() };
        }
        if let Some(free) = self.free.pop() {
            return Ok(Some(free));
        }
        if self.made == most {
            return Ok(None);
        }
        self.made += 1;
        copier.host_memory(len).map(Some)
    }

    /// A buffer is free again.
    pub(super) fn give_back(&mut self, buffer: Region) {
        if self.free.len() < self.made {
            self.free.push(buffer);
        }
    }
}

/// Starts a copy; `None` if it is done.
pub(super) fn start(
    to: &Region,
    to_offset: u64,
    from: &Region,
    from_offset: u64,
    len: usize,
) -> Result<Option<Pending>, MemError> {
    Ok(match copy(to, to_offset, from, from_offset, len)? {
        Progress::Done => None,
        Progress::Pending(pending) => Some(pending),
    })
}
