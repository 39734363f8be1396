//! The protocol's words where they really are: the posting state, the ready bits and the doorbells
//! of one work queue in host memory.

use super::format::{self, Named};
use super::protocol::Ring;
use crate::TransportError;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};
use warpverbs_mem::{Cells, Region};
use warpverbs_mlx5::doorbell::record_word;
use warpverbs_mlx5::export::{NicFormat, QueueState};

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
    bell: Bell,
    qpn: u32,
}

/// How work is made known.
#[derive(Debug)]
pub(super) enum Bell {
    /// By a record, and with a register for a send queue.
    Record(Cells<AtomicU32>, Option<Cells<AtomicU64>>),
    /// By the doorbell alone, of a queue of this format.
    Alone { format: NicFormat, is_send: bool, doorbell: Cells<AtomicU64> },
}

impl WorkQueue {
    /// `state` is a [`QueueState`], `ready` its ready bits.
    pub(super) fn new(
        log_depth: u8,
        state: &Region,
        ready: &Region,
        bell: Bell,
        qpn: u32,
    ) -> Result<Self, TransportError> {
        Ok(Self {
            log_depth: log_depth.into(),
            state: state.cells(0, size_of::<QueueState>() / 8)?,
            ring_token: state.cells(offset_of!(QueueState, ring_token) as u64, 1)?,
            ready: ready.cells(0, (1usize << log_depth).div_ceil(64))?,
            bell,
            qpn,
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
    fn record(&self, next: u64) -> Option<(&AtomicU32, u32)> {
        match &self.bell {
            Bell::Record(record, _) => Some((&record[0], record_word(next))),
            Bell::Alone { .. } => None,
        }
    }
    #[inline]
    fn doorbell(&self, next: u64) -> Option<(&AtomicU64, u64)> {
        match &self.bell {
            Bell::Record(_, register) => {
                let next = (next & 0xffff) as u32;
                let value = u64::from(next << 8) << 32 | u64::from(self.qpn << 8);
                register.as_ref().map(|register| (&register[0], value.to_be()))
            }
            Bell::Alone { format, is_send, doorbell } => {
                let named = if *is_send { Named::Send(self.qpn) } else { Named::Receive(self.qpn) };
                Some((&doorbell[0], format::doorbell(*format, named, next, self.log_depth)))
            }
        }
    }
    #[inline]
    fn counts_packets(&self) -> bool {
        matches!(self.bell, Bell::Alone { format: NicFormat::Bnxt, is_send: true, .. })
    }
    #[inline]
    fn unused(&self) -> u64 {
        match &self.bell {
            Bell::Record(..) => 0,
            Bell::Alone { format, .. } => format::unused(*format),
        }
    }
}
