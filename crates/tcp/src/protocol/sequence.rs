//! Which transfers of a numbered sequence are finished.

use std::collections::BTreeSet;

/// Finished numbers: all below `low`, and some above it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    low: u64,
    above: BTreeSet<u64>,
}

impl Sequence {
    /// The first number that is not finished.
    pub(super) fn low(&self) -> u64 {
        self.low
    }

    pub(super) fn is_finished(&self, id: u64) -> bool {
        id < self.low || self.above.contains(&id)
    }

    pub(super) fn finish(&mut self, id: u64) {
        debug_assert!(!self.is_finished(id));
        if id != self.low {
            self.above.insert(id);
            return;
        }
        self.low += 1;
        while self.above.remove(&self.low) {
            self.low += 1;
        }
    }
}
