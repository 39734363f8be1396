//! Completion queues.

use crate::NicError;
use crate::arm::{ArmWatch, CompletionNotice};
use crate::nic::Shared;
use crate::slots::{CqSlot, QpSlot};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::{CompletionRecord, CompletionRing, Region};
use warpverbs_mlx5::cqe::{Cqe, Cqe64, owner_bit};
pub use warpverbs_mlx5::export::CqMode;

/// Bytes of an entry of a CQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CqeSize {
    /// 64: the CQE alone.
    #[default]
    B64,
    /// 128: the CQE is the second half; the first is not written.
    B128,
}

impl CqeSize {
    /// The number.
    pub fn bytes(self) -> usize {
        match self {
            Self::B64 => 64,
            Self::B128 => 128,
        }
    }
}

/// How a CQ is made.
#[derive(Clone, Debug)]
pub struct CqConfig {
    /// A ring, or collapsed into its first entry.
    pub mode: CqMode,
    /// log2 of the number of CQEs, 0 to 22.
    pub log_size: u8,
    /// Bytes of an entry.
    pub cqe_size: CqeSize,
    /// 2^`log_size` entries, 64-byte aligned, host memory; filled with 0xff.
    pub buf: Region,
    /// be32 SET_CI and be32 ARM, 8 bytes, host memory. Not read in collapsed mode.
    pub dbr: Region,
    /// Ring mode: overwrite CQEs that were not consumed instead of failing (`oi`).
    pub ignore_overrun: bool,
    /// What happens when the CQ was armed and has a completion. The NIC writes the arm word once,
    /// when the CQ is made.
    pub notice: Option<CompletionNotice>,
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
    pub(crate) user_index: Option<u32>,
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
    /// 1 if entries have 128 bytes, otherwise 0.
    wide: u8,
    produced: u64,
    consumed: u64,
    /// Overrun: nothing is written any more.
    pub(crate) dead: bool,
    arm: Option<ArmWatch>,
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
        let wide = u8::from(config.cqe_size == CqeSize::B128);
        let record = CompletionRecord::new(&config.dbr).map_err(memory("CQ doorbell record"))?;
        let ring = CompletionRing::new(&config.buf, config.log_size + wide)
            .map_err(memory("CQ buffer"))?;
        let arm = config.notice.clone().map(|notice| ArmWatch::new(notice, &record));
        Ok(Self {
            cqn,
            ring,
            record,
            mode: config.mode,
            checks_room: config.mode == CqMode::Ring && !config.ignore_overrun,
            log_size: config.log_size,
            wide,
            produced: 0,
            consumed: 0,
            dead: false,
            arm,
            delay: None,
            held: VecDeque::new(),
        })
    }

    /// Writes a CQE now, of a QP with this user index.
    #[inline]
    pub(crate) fn publish(&mut self, cqe: &Cqe, user_index: Option<u32>) -> Result<(), Overrun> {
        if self.dead {
            return Ok(());
        }
        if self.checks_room && (self.produced - self.consumed) >> self.log_size != 0 {
            self.look_for_room()?;
        }
        let mut bytes = cqe.emit(owner_bit(self.produced, self.log_size));
        if let Some(user_index) = user_index {
            // CQEs of version 1: it stands where version 0 has the number of an SRQ.
            let place = offset_of!(Cqe64, srqn_uidx);
            bytes[place..place + 4].copy_from_slice(&user_index.to_be_bytes());
        }
        let index = if self.mode == CqMode::Collapsed { 0 } else { self.produced };
        // The second half of an entry of 128 bytes.
        let index = (index << self.wide) + u64::from(self.wide);
        self.ring.publish(index, &zerocopy::transmute!(bytes));
        self.produced += 1;
        if let Some(arm) = &mut self.arm {
            if matches!(cqe, Cqe::Receive { solicited: true, .. } | Cqe::Error { .. }) {
                arm.solicit(self.produced);
            }
            arm.look(&self.record, self.produced);
        }
        Ok(())
    }

    /// Looks whether the consumer has armed the CQ. `false`: it never does.
    pub(crate) fn look_at_arm(&mut self) -> bool {
        let Some(arm) = &mut self.arm else { return false };
        arm.look(&self.record, self.produced);
        true
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use warpverbs_mem::HostBuf;
    use warpverbs_mlx5::cqe::ReceivedKind;
    use warpverbs_mlx5::doorbell::CqArm;
    use warpverbs_mlx5::num::Qpn;

    struct Armed {
        cq: CompletionQueue,
        dbr: Region,
        events: Arc<AtomicU32>,
    }

    impl Armed {
        fn new() -> Self {
            let dbr = HostBuf::region(8).unwrap();
            let events = Arc::new(AtomicU32::new(0));
            let count = events.clone();
            // Every other delivery fails at first.
            let tries = AtomicU32::new(0);
            let notice = CompletionNotice::new(move || {
                let done = tries.fetch_add(1, Ordering::Relaxed) % 2 == 1;
                count.fetch_add(done.into(), Ordering::Relaxed);
                done
            });
            let config = CqConfig {
                cqe_size: CqeSize::B64,
                mode: CqMode::Ring,
                log_size: 4,
                buf: HostBuf::region(64 << 4).unwrap(),
                dbr: dbr.clone(),
                ignore_overrun: true,
                notice: Some(notice),
            };
            Self { cq: CompletionQueue::new(1, &config).unwrap(), dbr, events }
        }

        fn complete(&mut self, solicited: bool) {
            let (kind, qpn) = (ReceivedKind::Send, Qpn::new(5).unwrap());
            let cqe = Cqe::Receive {
                qpn,
                wqe_counter: 0,
                kind,
                byte_cnt: 0,
                srqn: 0,
                solicited,
                from: None,
            };
            self.cq.publish(&cqe, None).unwrap();
        }

        /// Arms as the consumer does, and looks often enough. Events so far.
        fn arm(&mut self, sn: u8, ci: u32, solicited_only: bool) -> u32 {
            let word = CqArm { sn, ci, solicited_only }.word();
            self.dbr.atomic_u32(4).unwrap().store(word.to_be(), Ordering::Release);
            self.look()
        }

        fn look(&mut self) -> u32 {
            (0..4).for_each(|_| assert!(self.cq.look_at_arm()));
            self.events.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn each_arm_has_one_event() {
        let mut armed = Armed::new();
        armed.complete(false);
        assert_eq!(armed.look(), 0, "not armed");
        // The first arm is the word 0; a CQE is there already.
        assert_eq!(armed.arm(0, 0, false), 1);
        armed.complete(false);
        assert_eq!(armed.look(), 1, "armed once");
        // Armed again with the same number, as by a consumer that has not seen the event.
        assert_eq!(armed.arm(0, 2, false), 1);
        assert_eq!(armed.arm(1, 2, false), 1, "nothing beyond index 2");
        armed.complete(false);
        assert_eq!(armed.look(), 2);
    }

    #[test]
    fn who_waits_for_solicited_completions_gets_no_others() {
        let mut armed = Armed::new();
        assert_eq!(armed.arm(0, 0, true), 0);
        armed.complete(false);
        assert_eq!(armed.look(), 0);
        armed.complete(true);
        assert_eq!(armed.look(), 1);
        armed.complete(false);
        assert_eq!(armed.arm(1, 2, true), 1);
        assert_eq!(armed.arm(1, 2, false), 2);
    }

    #[test]
    fn indexes_wrap() {
        let mut armed = Armed::new();
        armed.cq.produced = (1 << 24) - 1;
        assert_eq!(armed.arm(0, 0xff_ffff, false), 0);
        armed.complete(false);
        assert_eq!(armed.look(), 1);
        assert_eq!(armed.arm(1, 0, false), 1);
        armed.complete(false);
        assert_eq!(armed.look(), 2);
    }
}
