//! Completion queues, as the engine has them.

use super::cut::Cut;
use super::waiters::Waiters;
use crate::NicError;
use crate::arm::{ArmWatch, CompletionNotice};
pub use crate::format::{CqMode, CqeSize};
use crate::format::{CqeRing, Dialect, Done, Names, is_reached};
use crate::slots::QpSlot;
use std::collections::VecDeque;
use std::time::Duration;
use warpverbs_mem::{CompletionRecord, Kind, MemError, Region};

/// How a CQ is made.
#[derive(Clone, Debug)]
pub struct CqConfig {
    /// The format of its entries.
    pub dialect: Dialect,
    /// A ring, or collapsed into its first entry.
    pub mode: CqMode,
    /// log2 of the number of CQEs, 0 to 22.
    pub log_size: u8,
    /// Bytes of an entry of mlx5's; those of other formats have 32.
    pub cqe_size: CqeSize,
    /// 2^`log_size` entries, aligned to one of them, 64 bytes at most; host memory or memory with a copy
    /// engine; filled with 0xff, for other formats than mlx5's with 0.
    pub buf: Region,
    /// be32 SET_CI and be32 ARM, 8 bytes, likewise; for other formats than mlx5's the last doorbell by
    /// which its consumer has told how far it is. Not read in collapsed mode.
    pub dbr: Region,
    /// Ring mode: overwrite CQEs that were not consumed instead of failing (`oi`).
    pub ignore_overrun: bool,
    /// The callback for a completion when the CQ is armed. The NIC writes the arm word once, when
    /// the CQ is made, and polls it: the record must be in host memory. Of other formats, `dbr` has 16 bytes then:
    /// the second half is for the last doorbell that arms, which the NIC replaces by 0 when it has seen it.
    /// bnxt_re's are [resized](crate::Cq::resize) if there are 8 more.
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
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) done: Done,
    /// Slot of the QP.
    pub(crate) slot: QpSlot,
    pub(crate) reports: Option<u64>,
    pub(crate) names: Names,
    /// In place of memory.
    pub(crate) payload: Option<Region>,
}

/// There was no room for a CQE, or the copy engine of the CQ's memory failed: the CQ is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwritten;

/// The NIC's half of a CQ.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) cqn: u32,
    ring: CqeRing,
    record: CompletionRecord,
    mode: CqMode,
    checks_room: bool,
    consumed: u64,
    cut: Option<Cut>,
    /// A CQE could not be written: none is any more.
    pub(crate) dead: bool,
    arm: Option<ArmWatch>,
    pub(crate) delay: Option<Delay>,
    pub(crate) held: VecDeque<Held>,
    pub(crate) waiters: Waiters,
}

impl CompletionQueue {
    /// A CQ that has no number yet. Not to be called under the NIC's lock: for a ring in a GPU's memory,
    /// calls of its driver are made, which may wait for kernels that wait for the NIC.
    pub(crate) fn new(config: &CqConfig) -> Result<Self, NicError> {
        let memory = |what| move |cause| NicError::Memory { what, cause };
        let record = CompletionRecord::new(&config.dbr).map_err(memory("CQ doorbell record"))?;
        if config.notice.is_some() && record.kind() != Kind::Host {
            let (what, addr) = ("doorbell record of a CQ that raises events", config.dbr.addr());
            return Err(NicError::Memory { what, cause: MemError::NotHost { addr } });
        }
        let format = (config.dialect, config.mode);
        let ring = CqeRing::new(&config.buf, format, config.log_size, config.cqe_size)?;
        let watch = |notice| match config.dialect {
            Dialect::Mlx5 => Ok::<_, NicError>(ArmWatch::new(notice, &record)),
            _ => {
                let place = config.dbr.slice(8, 8).map_err(memory("arm doorbell of a CQ"))?;
                place.atomic_u64(0).map_err(memory("arm doorbell of a CQ"))?;
                Ok(ArmWatch::by_doorbell(notice, config.dialect, place))
            }
        };
        let arm = config.notice.clone().map(watch).transpose()?;
        Ok(Self {
            cqn: 0,
            ring,
            record,
            mode: config.mode,
            checks_room: config.mode == CqMode::Ring && !config.ignore_overrun,
            consumed: 0,
            cut: Cut::new(config.dialect, &config.dbr),
            dead: false,
            arm,
            delay: None,
            held: VecDeque::new(),
            waiters: Waiters::default(),
        })
    }

    /// Writes a CQE now, of a queue with these names, with payload that fits.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        done: &Done,
        names: Names,
        payload: Option<&Region>,
    ) -> Result<(), Unwritten> {
        if self.dead {
            return Ok(());
        }
        if self.checks_room && !self.ring.has_room(self.consumed) {
            self.look_for_room()?;
        }
        self.ring.publish(done, names, payload).map_err(|_| self.die())?;
        if let Some(arm) = &mut self.arm {
            if done.is_solicited() {
                arm.solicit(self.ring.produced);
            }
            self.look_for_consumer(self.ring.produced - 1);
        }
        Ok(())
    }

    /// Goes on in `ring`, and leaves the old one in its place, which is to be dropped after the lock. The
    /// last CQE in the old ring says so; the next one has the index after it. The consumer copies what
    /// it has not consumed.
    pub(crate) fn resize(&mut self, ring: &mut CqeRing) -> Result<(), NicError> {
        if self.mode == CqMode::Collapsed {
            return Err(NicError::CollapsedResize);
        }
        self.read_consumed();
        let outstanding = self.ring.produced - self.consumed;
        let (from, to, moves) = (self.ring.depth(), ring.depth(), self.ring.moves());
        if !moves && self.cut.is_none() {
            return Err(NicError::NotOfFormat { what: "a resized CQ" });
        }
        // The CQE that announces the new ring has a place in the old one and, if CQEs move, an index in both.
        if self.dead || !self.ring.has_room(self.consumed) || (moves && outstanding >= to) {
            return Err(NicError::CqFull { cqn: self.cqn, outstanding, from, to });
        }
        // A failure shows at the next CQE: the old ring is gone.
        if self.ring.go_on_in(ring).is_err() {
            self.die();
        }
        // CQEs that are not consumed move by one index, and so does the consumer. Until it writes
        // its record, the record is behind, which `read_consumed` takes for an index ahead.
        self.consumed = if moves { self.consumed + 1 } else { 0 };
        if let Some(cut) = self.cut.as_mut().filter(|_| !moves) {
            cut.begin();
            self.arm.iter_mut().for_each(ArmWatch::begin);
        }
        std::mem::swap(&mut self.ring, ring);
        Ok(())
    }

    /// Nothing is written from now on.
    #[cold]
    fn die(&mut self) -> Unwritten {
        self.dead = true;
        Unwritten
    }

    /// Looks whether the consumer has armed the CQ. `false`: it never does.
    pub(crate) fn look_at_arm(&mut self) -> bool {
        self.look_for_consumer(self.ring.produced);
        self.arm.is_some()
    }

    /// Raises the event if the consumer waits for one; `old` CQEs were there at the last look.
    fn look_for_consumer(&mut self, old: u64) {
        let Some(arm) = &mut self.arm else { return };
        let Some(is_armed) = arm.take(old) else {
            let consumer = self.checks_room.then(|| self.record.consumer());
            return arm.look(&self.record, (old, self.ring.produced), consumer);
        };
        if is_armed {
            self.read_consumed();
            if let Some(arm) = &mut self.arm {
                arm.look_at_doorbell(self.ring.produced, self.consumed);
            }
        }
    }

    /// Reads how far the consumer has come. An index ahead of the producer is ignored, and so is a
    /// record that cannot be copied: the consumer has come no further than it was.
    fn read_consumed(&mut self) {
        if !self.cut.as_mut().is_none_or(Cut::is_over) {
            return;
        }
        let _as_it_was = self.record.fetch();
        let consumed = self.ring.consumed(&self.record, self.consumed);
        if consumed <= self.ring.produced {
            self.consumed = consumed;
        }
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<(), Unwritten> {
        self.read_consumed();
        if !self.ring.has_room(self.consumed) {
            return Err(self.die());
        }
        Ok(())
    }
}

/// Send queues that wait.
impl CompletionQueue {
    /// The CQ has the CQE of `index`, of which the low 24 bits count.
    pub(crate) fn has(&self, index: u32) -> bool {
        is_reached(self.ring.produced, index)
    }

    /// Moves the QPs whose CQE the CQ has to `woken`.
    pub(crate) fn wake(&mut self, woken: &mut Vec<QpSlot>) {
        self.waiters.wake(self.ring.produced, woken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::PATIENCE;
    use crate::format::{BnxtLibrary, CqArm, Ended, Qpn, ReceivedKind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use warpverbs_mem::HostBuf;

    struct Armed {
        dialect: Dialect,
        cq: CompletionQueue,
        dbr: Region,
        events: Arc<AtomicU32>,
    }

    impl Armed {
        fn new(ignore_overrun: bool) -> Self {
            Self::of(Dialect::Mlx5, HostBuf::region(8).unwrap(), ignore_overrun)
        }

        fn of(dialect: Dialect, dbr: Region, ignore_overrun: bool) -> Self {
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
                dialect,
                cqe_size: CqeSize::B64,
                mode: CqMode::Ring,
                log_size: 4,
                buf: HostBuf::region(64 << 4).unwrap(),
                dbr: dbr.clone(),
                ignore_overrun,
                notice: Some(notice),
            };
            Self { dialect, cq: CompletionQueue::new(&config).unwrap(), dbr, events }
        }

        fn complete(&mut self, solicited: bool) {
            let (kind, qpn) = (ReceivedKind::Send, Qpn::new(5).unwrap());
            let what = Ended::Received { kind, len: 0, srqn: 0, solicited, from: None };
            let done = Done { qpn, index: 0, ended: 0, what };
            self.cq.publish(&done, Names::NONE, None).unwrap();
        }

        /// Arms as the consumer does, and looks often enough. Events so far.
        fn arm(&mut self, sn: u8, ci: u32, solicited_only: bool) -> u32 {
            self.arm_word(sn, ci, solicited_only);
            self.look()
        }

        fn arm_word(&mut self, sn: u8, ci: u32, solicited_only: bool) {
            let word = CqArm { sn, ci, solicited_only }.word();
            self.dbr.atomic_u32(4).unwrap().store(word.to_be(), Ordering::Release);
        }

        /// Events after two looks, the first of which may fail to deliver one.
        fn soon(&mut self) -> u32 {
            (0..2).for_each(|_| assert!(self.cq.look_at_arm()));
            self.events()
        }

        fn events(&self) -> u32 {
            self.events.load(Ordering::Relaxed)
        }

        fn look(&mut self) -> u32 {
            (0..=PATIENCE).for_each(|_| assert!(self.cq.look_at_arm()));
            self.events()
        }
    }

    #[test]
    fn each_arm_has_one_event() {
        let mut armed = Armed::new(true);
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
        assert_eq!(armed.soon(), 2);
    }

    #[test]
    fn a_cqe_that_is_consumed_after_arming_raises_no_event() {
        let mut armed = Armed::new(false);
        armed.complete(false);
        // Armed with a CQE in the CQ, which is then polled, as programs do to miss none.
        armed.arm_word(0, 0, false);
        assert_eq!(armed.soon(), 0);
        armed.dbr.atomic_u32(0).unwrap().store(1u32.to_be(), Ordering::Release);
        assert_eq!(armed.look(), 0, "consumed");
        armed.complete(false);
        assert_eq!(armed.soon(), 1);
        // One that comes between the arm and the first look at it is new.
        armed.arm_word(1, 2, false);
        armed.complete(false);
        assert_eq!(armed.soon(), 2);
        // One that nobody consumes raises an event after some looks.
        armed.arm_word(2, 2, false);
        (1..PATIENCE).for_each(|_| assert!(armed.cq.look_at_arm()));
        assert_eq!(armed.events(), 2);
        assert_eq!(armed.soon(), 3);
    }

    #[test]
    fn who_waits_for_solicited_completions_gets_no_others() {
        let mut armed = Armed::new(true);
        assert_eq!(armed.arm(0, 0, true), 0);
        armed.complete(false);
        assert_eq!(armed.look(), 0);
        armed.complete(true);
        assert_eq!(armed.look(), 1);
        armed.complete(false);
        assert_eq!(armed.arm(1, 2, true), 1);
        assert_eq!(armed.arm(1, 2, false), 2);
    }

    /// A CQ of each format without a record, and its doorbells, in a ring of 16.
    fn by_doorbells() -> [Armed; 2] {
        let of = |dialect| Armed::of(dialect, HostBuf::region(16).unwrap(), false);
        [of(Dialect::Bnxt(BnxtLibrary::Early)), of(Dialect::Ionic)]
    }

    /// Doorbells of a CQ, and one that says nothing about it.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Bell {
        Consumed,
        Arm,
        ArmSolicited,
        Other,
    }

    impl Armed {
        fn ring(&self, bell: Bell, index: u64) {
            let word = match self.dialect {
                Dialect::Ionic => 7 << 24 | (bell as u64) << 16 | index,
                _ => [4, 6, 5, 7][bell as usize] << 60 | 7 << 32 | index,
            };
            let place = if bell == Bell::Consumed { 0 } else { 8 };
            self.dbr.atomic_u64(place).unwrap().store(word.to_le(), Ordering::Release);
        }
    }

    #[test]
    fn each_doorbell_that_arms_has_one_event() {
        for mut armed in by_doorbells() {
            armed.complete(false);
            assert_eq!(armed.look(), 0, "not armed");
            armed.ring(Bell::Arm, 0);
            assert_eq!(armed.look(), 1, "a CQE that is not consumed");
            armed.complete(false);
            assert_eq!(armed.look(), 1, "armed once");
            // The same doorbell again: nothing was consumed.
            armed.ring(Bell::Arm, 0);
            assert_eq!(armed.look(), 2);
            armed.ring(Bell::Consumed, 2);
            armed.ring(Bell::Arm, 2);
            assert_eq!(armed.look(), 2, "all are consumed");
            armed.complete(false);
            assert_eq!(armed.soon(), 3);
            armed.ring(Bell::Other, 3);
            armed.complete(false);
            assert_eq!(armed.look(), 3, "nothing is armed");
            // A CQE that was consumed after arming raises none, and the arm stays.
            armed.ring(Bell::Arm, 3);
            armed.ring(Bell::Consumed, 4);
            assert_eq!(armed.look(), 3);
            armed.complete(false);
            assert_eq!(armed.soon(), 4);
        }
    }

    #[test]
    fn doorbells_arm_for_solicited_completions() {
        for mut armed in by_doorbells() {
            armed.ring(Bell::ArmSolicited, 0);
            armed.complete(false);
            assert_eq!(armed.look(), 0);
            armed.complete(true);
            assert_eq!(armed.soon(), 1);
            armed.ring(Bell::Consumed, 2);
            armed.ring(Bell::ArmSolicited, 2);
            armed.complete(false);
            assert_eq!(armed.look(), 1);
            // For all, in its place.
            armed.ring(Bell::Arm, 2);
            assert_eq!(armed.look(), 2);
        }
    }

    #[test]
    fn consumers_arm_lap_after_lap() {
        for mut armed in by_doorbells() {
            for count in 1..100_u32 {
                armed.ring(Bell::Arm, u64::from(count - 1) % 16);
                armed.complete(false);
                assert_eq!(armed.soon(), count);
                armed.ring(Bell::Consumed, u64::from(count) % 16);
            }
        }
    }

    #[test]
    fn indexes_wrap() {
        let mut armed = Armed::new(true);
        armed.cq.ring.produced = (1 << 24) - 1;
        assert_eq!(armed.arm(0, 0xff_ffff, false), 0);
        armed.complete(false);
        assert_eq!(armed.look(), 1);
        assert_eq!(armed.arm(1, 0, false), 1);
        armed.complete(false);
        assert_eq!(armed.look(), 2);
    }
}
