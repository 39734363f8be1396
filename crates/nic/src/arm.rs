//! Completion events: one for each time that the consumer arms its CQ.

use crate::format::{self, Dialect};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use warpverbs_mem::{CompletionRecord, Region};

/// The callback for a completion of an armed CQ. The engine calls it with the NIC's lock held: it
/// must not wait and must not call the NIC. It returns whether the event was delivered; otherwise
/// it is called again with the next slice.
#[derive(Clone)]
pub struct CompletionNotice(Arc<dyn Fn() -> bool + Send + Sync>);

impl CompletionNotice {
    /// Calls `notify`.
    pub fn new(notify: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(notify))
    }
}

impl fmt::Debug for CompletionNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompletionNotice")
    }
}

/// Looks that pass before a CQE raises an event that was there before its consumer armed the CQ.
/// Consumers arm first and then poll, so that none is missed: most such CQEs are consumed at once.
pub(crate) const PATIENCE: u32 = 16;

/// The arm word of a CQ, and which of its values has had its event.
#[derive(Debug)]
pub(crate) struct ArmWatch {
    notice: CompletionNotice,
    /// Sequence number of the last arm that had its event.
    served: Option<u8>,
    /// Sequence number of the last arm that was seen, CQEs that were there before it, and looks
    /// since then.
    seen: Option<u8>,
    before: u64,
    looks: u32,
    /// Index behind the newest solicited CQE, for consumers armed for solicited ones only.
    solicited: u64,
    /// Of a format without a record.
    doorbell: Option<ArmDoorbell>,
}

/// The place of the doorbell by which a consumer arms its CQ, 8 bytes, and the request that was taken from
/// there and has had no event.
#[derive(Debug)]
struct ArmDoorbell {
    dialect: Dialect,
    place: Region,
    solicited_only: Option<bool>,
}

impl ArmWatch {
    /// Nothing is armed. The word 0 is the first arm of a consumer, so the record gets a value that
    /// no consumer writes.
    pub(crate) fn new(notice: CompletionNotice, record: &CompletionRecord) -> Self {
        record.disarm();
        Self { notice, served: None, seen: None, before: 0, looks: 0, solicited: 0, doorbell: None }
    }

    /// Nothing is armed. Doorbells are put to `place`, 8 bytes of host memory.
    pub(crate) fn by_doorbell(notice: CompletionNotice, dialect: Dialect, place: Region) -> Self {
        let doorbell = Some(ArmDoorbell { dialect, place, solicited_only: None });
        Self { notice, served: None, seen: None, before: 0, looks: 0, solicited: 0, doorbell }
    }

    /// Indexes begin anew. An arm that had no event stays.
    pub(crate) fn begin(&mut self) {
        (self.before, self.looks, self.solicited) = (0, 0, 0);
    }

    /// Takes a doorbell from its place, so that another one with the same value is seen. Whether the CQ is
    /// armed; `None`: it has a record. The consumer says how far it is before it arms.
    pub(crate) fn take(&mut self, old: u64) -> Option<bool> {
        let doorbell = self.doorbell.as_mut()?;
        // The place was looked at when the CQ was made.
        let word = doorbell.place.atomic_u64(0).map_or(0, |word| word.swap(0, Ordering::AcqRel));
        if let Some(solicited_only) = doorbell.dialect.armed(u64::from_le(word)) {
            doorbell.solicited_only = Some(solicited_only);
            (self.before, self.looks) = (old, 0);
        }
        Some(doorbell.solicited_only.is_some())
    }

    /// Raises the event if the CQ is armed by a doorbell and has CQEs that were not consumed. The index in the
    /// doorbell says no more: the consumer has told it before.
    pub(crate) fn look_at_doorbell(&mut self, produced: u64, consumed: u64) {
        let Some(doorbell) = &mut self.doorbell else { return };
        let Some(solicited_only) = doorbell.solicited_only else { return };
        let reached = if solicited_only { self.solicited } else { produced };
        if reached <= consumed {
            return;
        }
        self.looks += 1;
        let is_due = reached > self.before || self.looks >= PATIENCE;
        if is_due && (self.notice.0)() {
            doorbell.solicited_only = None;
        }
    }

    /// The CQE before `produced` asks for an event of its own.
    pub(crate) fn solicit(&mut self, produced: u64) {
        self.solicited = produced;
    }

    /// Raises the event if the CQ is armed and has CQEs beyond the index that it was armed with.
    /// `old` of all `produced` CQEs were there at the last look. `consumer` is the consumer index of the
    /// record, if it is readable: consumed CQEs need no event.
    pub(crate) fn look(
        &mut self,
        record: &CompletionRecord,
        (old, produced): (u64, u64),
        consumer: Option<u32>,
    ) {
        let Some(word) = record.arm() else { return };
        let arm = format::requested(word);
        if self.served == Some(arm.sn) {
            return;
        }
        if self.seen != Some(arm.sn) {
            (self.seen, self.before, self.looks) = (Some(arm.sn), old, 0);
        }
        let reached = if arm.solicited_only { self.solicited } else { produced };
        let is_reached = |index| format::is_reached(reached, index);
        if !is_reached(arm.ci) || !consumer.is_none_or(is_reached) {
            return;
        }
        self.looks += 1;
        let is_due = reached > self.before || self.looks >= PATIENCE;
        if is_due && (self.notice.0)() {
            self.served = Some(arm.sn);
        }
    }
}
