//! Protection domains and memory regions.

use crate::engine::registry;
use crate::shared::Shared;
use std::sync::Arc;
use warpverbs_mem::Region;

/// A protection domain: queues reach only memory of their own. Clones share it.
#[derive(Clone, Debug)]
pub struct Pd(pub(crate) Arc<PdInner>);

#[derive(Debug)]
pub(crate) struct PdInner {
    pub(crate) nic: Arc<Shared>,
    pub(crate) number: u32,
}

impl Pd {
    /// Number of the domain, in violations.
    pub fn number(&self) -> u32 {
        self.0.number
    }
}

/// Registered memory. Clones share it; the key dies with the last one. Copies that were started
/// before then still end, since they keep the memory alive.
#[derive(Clone, Debug)]
pub struct Mr(pub(crate) Arc<MrInner>);

#[derive(Debug)]
pub(crate) struct MrInner {
    pub(crate) pd: Pd,
    pub(crate) region: Region,
    pub(crate) start: u64,
    pub(crate) key: u32,
}

impl Mr {
    /// Key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.0.key
    }

    /// Key for peers: the same number.
    pub fn rkey(&self) -> u32 {
        self.0.key
    }

    /// First address, as work requests name it.
    pub fn addr(&self) -> u64 {
        self.0.start
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.region.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.region.is_empty()
    }

    /// The memory.
    pub fn region(&self) -> &Region {
        &self.0.region
    }
}

impl Drop for MrInner {
    fn drop(&mut self) {
        // Memory is freed after the lock.
        let removed = self.pd.0.nic.take_down(|core| registry::remove_key(core, self.key));
        drop(removed);
    }
}
