//! Timers of QPs that wait for a receive of the peer or for an answer.

use super::Core;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Deadlines, with the slot and QPN that wait. A QP that no longer waits for its deadline
/// ignores it.
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(u64, u32, u32)>>);

impl Timers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((deadline, ..))| *deadline)
    }

    fn pop_due(&mut self, now: u64) -> Option<(u64, u32, u32)> {
        self.next().filter(|&deadline| deadline <= now)?;
        self.0.pop().map(|Reverse(timer)| timer)
    }
}

impl Core {
    /// Nothing of the QP in `slot` starts for `delay` nanoseconds.
    pub(crate) fn sleep(&mut self, slot: u32, delay: u64) {
        let deadline = self.time.now().saturating_add(delay);
        let Some(q) = self.sends.get_mut(slot) else { return };
        q.wake = Some(deadline);
        if deadline != u64::MAX {
            self.timers.0.push(Reverse((deadline, slot, q.qpn.get())));
        }
    }

    /// Lets QPs go on whose time has come.
    pub(crate) fn wake_sleepers(&mut self) {
        let now = self.time.now();
        while let Some((deadline, slot, qpn)) = self.timers.pop_due(now) {
            if let Some(q) = self.sends.get_mut(slot)
                && q.qpn.get() == qpn
                && q.wake == Some(deadline)
            {
                q.wake = None;
                self.enqueue(slot);
            }
        }
    }
}
