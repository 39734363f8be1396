//! Where the CQEs of a queue go, and payload that goes into them in place of memory.

use crate::format::Names;
use crate::slots::CqSlot;
use std::collections::VecDeque;
use warpverbs_mem::Region;

/// Which payload goes into the CQE instead of memory, if it is short enough: 32 bytes for CQs with
/// entries of 64 bytes, 64 bytes for those with 128. Only for connected QPs that the NIC executes
/// itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScatterToCqe {
    /// Results of READs, if they ask for a CQE. Those of atomics always go to memory: in a CQE,
    /// UCX takes them for big-endian, libmlx5 for the bytes to be stored.
    pub requests: bool,
    /// Messages of one packet.
    pub receives: bool,
}

/// Where the CQEs of one queue go, and with what.
#[derive(Debug)]
pub(crate) struct CqeTarget {
    pub(crate) cq: CqSlot,
    pub(crate) names: Names,
    pub(crate) payload: CqePayload,
}

/// The payload of one queue that waits for its CQE.
#[derive(Debug, Default)]
pub(crate) struct CqePayload {
    /// Bytes that fit a CQE; 0: none are wanted there.
    limit: u64,
    waiting: VecDeque<(u64, Region)>,
}

impl CqePayload {
    pub(crate) fn new(wanted: bool, limit: usize) -> Self {
        let limit = if wanted { limit as u64 } else { 0 };
        Self { limit, waiting: VecDeque::new() }
    }

    /// Whether `len` bytes go into a CQE.
    #[inline]
    pub(crate) fn takes(&self, len: u64) -> bool {
        (1..=self.limit).contains(&len)
    }

    /// These bytes are for the CQE of the WQE at `index`.
    pub(crate) fn keep(&mut self, index: u64, payload: Region) {
        self.waiting.push_back((index, payload));
    }

    /// The bytes for the CQE of the WQE at `index`.
    #[inline]
    pub(crate) fn take(&mut self, index: u64) -> Option<Region> {
        if self.waiting.is_empty() {
            return None;
        }
        let at = self.waiting.iter().position(|(kept, _)| *kept == index)?;
        self.waiting.remove(at).map(|(_, payload)| payload)
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}
