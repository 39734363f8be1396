//! Pinned host memory between a socket and memory that only a copy engine reaches.

use std::sync::Arc;
use warpverbs_mem::{Copier, Kind, MemError, Region};

/// Bounce buffers of one copy engine, each as long as a chunk.
pub(super) struct Bounce {
    chunk: usize,
    copier: Option<Arc<dyn Copier>>,
    free: Vec<Region>,
    made: usize,
}

impl Bounce {
    pub(super) fn new(chunk: usize) -> Self {
        Self { chunk, copier: None, free: Vec::new(), made: 0 }
    }

    /// A free buffer for memory of this kind, unless there are `most` and all are in use.
    pub(super) fn take(&mut self, of: &Region, most: usize) -> Result<Option<Region>, MemError> {
        let none = MemError::NoCopier { from: Kind::Host, to: of.kind() };
        let copier = of.copier().ok_or(none)?;
        if self.copier.as_ref().is_none_or(|ours| !Arc::ptr_eq(ours, &copier)) {
            // Buffers of another engine that are in use are dropped when they come back.
            *self = Self { copier: Some(copier.clone()), ..Self::new(self.chunk) };
        }
        if let Some(free) = self.free.pop() {
            return Ok(Some(free));
        }
        if self.made >= most {
            return Ok(None);
        }
        self.made += 1;
        copier.host_memory(self.chunk).map(Some)
    }

    /// A buffer is free again.
    pub(super) fn give_back(&mut self, buffer: Region) {
        if self.free.len() < self.made {
            self.free.push(buffer);
        }
    }
}
