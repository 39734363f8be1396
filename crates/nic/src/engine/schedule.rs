//! Which QPs have something to do, now or later.

use crate::objects::send::SendQueue;
use crate::slots::{CqSlot, QpSlot, Slots};
use crate::violation::Rule;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The result of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This many WQEs were completed or flushed; 0 if copies are under way. There may be more work.
    Busy(u32),
    /// Nothing can go on until a doorbell is rung or time passes.
    Idle,
}

/// The run list and the timers of QPs.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    /// QPs that may have something to do.
    run: VecDeque<QpSlot>,
    /// Deadlines, with the QP and its number. A QP that no longer waits for its deadline ignores
    /// it.
    timers: BinaryHeap<Reverse<(u64, QpSlot, u32)>>,
    /// QPs whose doorbell records are polled: those with a pending doorbell, and those in ERR,
    /// whose receives are flushed as they are posted.
    pub(super) watched: Vec<QpSlot>,
}

impl Scheduler {
    /// Puts a QP on the run list, once.
    #[inline]
    pub(crate) fn enqueue(&mut self, q: &mut SendQueue) {
        if !q.turn.queued {
            q.turn.queued = true;
            self.run.push_back(q.slot);
        }
    }

    /// Puts a QP that ran back on the run list.
    #[inline]
    pub(crate) fn requeue(&mut self, slot: QpSlot) {
        self.run.push_back(slot);
    }

    /// The next QP to run.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<QpSlot> {
        self.run.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.run.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.run.is_empty()
    }

    /// Polls the doorbell record of a QP from now on.
    pub(crate) fn watch(&mut self, slot: QpSlot) {
        if !self.watched.contains(&slot) {
            self.watched.push(slot);
        }
    }

    /// Nothing of `q` starts before `deadline`, or at all if it is `u64::MAX`.
    pub(crate) fn sleep(&mut self, q: &mut SendQueue, deadline: u64) {
        q.turn.wake = Some(deadline);
        if deadline != u64::MAX {
            self.timers.push(Reverse((deadline, q.slot, q.qpn.get())));
        }
    }

    /// Puts QPs whose deadline has passed on the run list.
    pub(crate) fn wake(&mut self, sends: &mut Slots<QpSlot, SendQueue>, now: u64) {
        while let Some(Reverse((deadline, slot, qpn))) = self.timers.peek().copied()
            && deadline <= now
        {
            self.timers.pop();
            // The QP may be gone.
            if let Some(q) = sends.get_mut(slot)
                && q.qpn.get() == qpn
                && q.turn.wake == Some(deadline)
            {
                q.turn.wake = None;
                self.enqueue(q);
            }
        }
    }

    /// Puts the QPs on the run list that waited for a CQE which has come.
    #[inline]
    pub(crate) fn wake_waiting(
        &mut self,
        sends: &mut Slots<QpSlot, SendQueue>,
        woken: &mut Vec<QpSlot>,
    ) {
        while let Some(slot) = woken.pop() {
            // The QP may be gone.
            if let Some(q) = sends.get_mut(slot) {
                self.enqueue(q);
            }
        }
    }

    /// The CQ in `at`, whose number is `cqn`, gets no CQE any more: those that wait for one fail.
    pub(crate) fn fail_waiting(
        &mut self,
        sends: &mut Slots<QpSlot, SendQueue>,
        at: CqSlot,
        cqn: u32,
        waiters: impl Iterator<Item = QpSlot>,
    ) {
        for slot in waiters {
            let q = sends.get_mut(slot).filter(|q| q.turn.waits == Some(at));
            if let Some(q) = q {
                q.turn.deferred_error.get_or_insert(Rule::AwaitedCq { cqn });
                self.enqueue(q);
            }
        }
    }

    pub(crate) fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    /// The earliest deadline.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((deadline, ..))| *deadline)
    }

    /// The QP is being removed.
    pub(crate) fn remove(&mut self, slot: QpSlot) {
        self.run.retain(|queued| *queued != slot);
        self.watched.retain(|watched| *watched != slot);
    }
}
