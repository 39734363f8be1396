//! The protocol's words where they really are: the posting state, the ready bits and the doorbells
//! of one work queue in host memory.

use super::protocol::Ring;
use crate::TransportError;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};
use warpverbs_mem::{Cells, Region};
use warpverbs_mlx5::export::QueueState;

const RESERVED: usize = offset_of!(QueueState, reserved) / 8;
const UNSIGNALED: usize = offset_of!(QueueState, unsignalled) / 8;
const PUBLISHED: usize = offset_of!(QueueState, published) / 8;
const POLL: usize = offset_of!(QueueState, poll) / 8;
const CQ_CI: usize = offset_of!(QueueState, cq_ci) / 8;

/// One work queue's counters and ready bits, and the doorbell that announces its work.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    log_depth: u32,
    state: Cells<AtomicU64>,
    ring_token: Cells<AtomicU32>,
    ready: Cells<AtomicU64>,
    record: Cells<AtomicU32>,
    doorbell: Option<Doorbell>,
}

#[derive(Debug)]
struct Doorbell {
    register: Cells<AtomicU64>,
    qpn: u32,
}

impl WorkQueue {
    /// `state` is a [`QueueState`], `ready` its ready bits, `record` its half of the doorbell
    /// record. A receive queue has no doorbell register.
    pub(crate) fn new(
        log_depth: u8,
        state: &Region,
        ready: &Region,
        record: &Region,
        doorbell: Option<(&Region, u32)>,
    ) -> Result<Self, TransportError> {
        let doorbell = match doorbell {
            Some((register, qpn)) => Some(Doorbell { register: register.cells(0, 1)?, qpn }),
            None => None,
        };
        Ok(Self {
            log_depth: log_depth.into(),
            state: state.cells(0, size_of::<QueueState>() / 8)?,
            ring_token: state.cells(offset_of!(QueueState, ring_token) as u64, 1)?,
            ready: ready.cells(0, (1usize << log_depth).div_ceil(64))?,
            record: record.cells(0, 1)?,
            doorbell,
        })
    }

    /// End of the newest request without a CQE of its own; posters raise it.
    #[inline]
    pub(crate) fn unsignaled(&self) -> &AtomicU64 {
        &self.state[UNSIGNALED]
    }

    /// Consumer index of the queue's ring CQ; only the poller stores it.
    #[inline]
    pub(crate) fn cq_ci(&self) -> &AtomicU64 {
        &self.state[CQ_CI]
    }
}

impl Ring for WorkQueue {
    type Counter = AtomicU64;
    type Poll = AtomicU64;
    type Token = AtomicU32;
    type Record = AtomicU32;
    type Doorbell = AtomicU64;

    #[inline]
    fn log_depth(&self) -> u32 {
        self.log_depth
    }
    #[inline]
    fn reserved(&self) -> &AtomicU64 {
        &self.state[RESERVED]
    }
    #[inline]
    fn published(&self) -> &AtomicU64 {
        &self.state[PUBLISHED]
    }
    #[inline]
    fn poll(&self) -> &AtomicU64 {
        &self.state[POLL]
    }
    #[inline]
    fn ring_token(&self) -> &AtomicU32 {
        &self.ring_token[0]
    }
    #[inline]
    fn ready(&self, word: usize) -> &AtomicU64 {
        &self.ready[word]
    }
    #[inline]
    fn record(&self) -> &AtomicU32 {
        &self.record[0]
    }
    #[inline]
    fn doorbell(&self) -> Option<(&AtomicU64, u32)> {
        self.doorbell.as_ref().map(|Doorbell { register, qpn }| (&register[0], *qpn))
    }
}
