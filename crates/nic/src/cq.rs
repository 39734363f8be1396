//! Completion queues.

use crate::NicError;
use crate::nic::Shared;
use crate::slots::{CqSlot, QpSlot};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::{CompletionRecord, CompletionRing, Region};
use warpverbs_mlx5::cqe::{Cqe, owner_bit};
pub use warpverbs_mlx5::export::CqMode;

/// How a CQ is made.
#[derive(Clone, Debug)]
pub struct CqConfig {
    /// A ring, or collapsed into its first entry.
    pub mode: CqMode,
    /// log2 of the number of CQEs, 0 to 22.
    pub log_size: u8,
    /// 2^`log_size` CQEs of 64 bytes, 64-byte aligned, host memory; filled with 0xff.
    pub buf: Region,
    /// be32 SET_CI and be32 ARM, 8 bytes, host memory. Not read in collapsed mode.
    pub dbr: Region,
    /// Ring mode: overwrite CQEs that were not consumed instead of failing (`oi`).
    pub ignore_overrun: bool,
}

/// How long a fault holds CQEs back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// So many calls of [`step`](crate::SoftNic::step).
    Steps(u64),
    /// So long on the NIC's clock.
    Time(Duration),
}

/// A CQE held back by a fault.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) due: Due,
    pub(crate) entry: Entry,
}

/// When a held CQE may go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    Step(u64),
    Time(u64),
}

/// A CQE of a QP, and the send index that it makes known, if it is of a send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) cqe: Cqe,
    /// Slot of the QP.
    pub(crate) slot: QpSlot,
    pub(crate) reports: Option<u64>,
}

/// There was no room for a CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// The NIC's half of a CQ.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) cqn: u32,
    ring: CompletionRing,
    record: CompletionRecord,
    mode: CqMode,
    checks_room: bool,
    log_size: u8,
    produced: u64,
    consumed: u64,
    /// Overrun: nothing is written any more.
    pub(crate) dead: bool,
    pub(crate) delay: Option<Delay>,
    pub(crate) held: VecDeque<Held>,
}

impl CompletionQueue {
    pub(crate) fn new(cqn: u32, config: &CqConfig) -> Result<Self, NicError> {
        if config.log_size > 22 {
            let value = u64::from(config.log_size);
            return Err(NicError::OutOfRange { what: "log_size of a CQ", value, min: 0, max: 22 });
        }
        let memory = |what| move |cause| NicError::Memory { what, cause };
        let record = CompletionRecord::new(&config.dbr).map_err(memory("CQ doorbell record"))?;
        let ring =
            CompletionRing::new(&config.buf, config.log_size).map_err(memory("CQ buffer"))?;
        Ok(Self {
            cqn,
            ring,
            record,
            mode: config.mode,
            checks_room: config.mode == CqMode::Ring && !config.ignore_overrun,
            log_size: config.log_size,
            produced: 0,
            consumed: 0,
            dead: false,
            delay: None,
            held: VecDeque::new(),
        })
    }

    /// Writes a CQE now.
    #[inline]
    pub(crate) fn publish(&mut self, cqe: &Cqe) -> Result<(), Overrun> {
        if self.dead {
            return Ok(());
        }
        if self.checks_room && (self.produced - self.consumed) >> self.log_size != 0 {
            self.look_for_room()?;
        }
        let bytes = cqe.emit(owner_bit(self.produced, self.log_size));
        let index = if self.mode == CqMode::Collapsed { 0 } else { self.produced };
        self.ring.publish(index, &zerocopy::transmute!(bytes));
        self.produced += 1;
        Ok(())
    }

    /// Reads how far the consumer has come. An index ahead of the producer is ignored.
    #[cold]
    fn look_for_room(&mut self) -> Result<(), Overrun> {
        let news = self.record.consumer().wrapping_sub(self.consumed as u32) & 0xff_ffff;
        let consumed = self.consumed + u64::from(news);
        if consumed <= self.produced {
            self.consumed = consumed;
        }
        if (self.produced - self.consumed) >> self.log_size != 0 {
            self.dead = true;
            return Err(Overrun);
        }
        Ok(())
    }
}

/// A completion queue. Clones share it; it is destroyed with the last one, and no sooner than the
/// last QP that uses it.
#[derive(Clone, Debug)]
pub struct Cq(pub(crate) Arc<CqInner>);

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) nic: Arc<Shared>,
    pub(crate) slot: CqSlot,
    pub(crate) cqn: u32,
}

impl Cq {
    /// Number of the CQ, in events.
    pub fn cqn(&self) -> u32 {
        self.0.cqn
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // Memory is freed after the lock.
        let removed = self.nic.lock().queues.tables.cqs.remove(self.slot);
        drop(removed);
    }
}
