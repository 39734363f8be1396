//! The end of a ring of a resized CQ, of a format that has no doorbell record.

use crate::format::Dialect;
use std::sync::atomic::{AtomicU64, Ordering};
use warpverbs_mem::Region;

/// Of bnxt_re: the place of the doorbell by which the consumer says that it has seen the end of a ring and goes
/// on in the next one.
#[derive(Debug)]
pub(super) struct Cut {
    place: Region,
    /// The ring has ended, and its consumer has not said so: what it tells is of that ring.
    awaited: bool,
}

impl Cut {
    /// Of a CQ of this format, in its record of doorbells.
    pub(super) fn new(dialect: Dialect, dbr: &Region) -> Option<Self> {
        let place = dbr.slice(16, 8).ok().filter(|place| place.atomic_u64(0).is_ok())?;
        matches!(dialect, Dialect::Bnxt(_)).then_some(Self { place, awaited: false })
    }

    fn word(&self) -> Option<&AtomicU64> {
        self.place.atomic_u64(0).ok()
    }

    /// The ring ends.
    pub(super) fn begin(&mut self) {
        if let Some(word) = self.word() {
            word.store(0, Ordering::Release);
        }
        self.awaited = true;
    }

    /// Whether the consumer tells of the ring that is.
    pub(super) fn is_over(&mut self) -> bool {
        self.awaited &= self.word().is_some_and(|word| word.load(Ordering::Acquire) == 0);
        !self.awaited
    }
}
