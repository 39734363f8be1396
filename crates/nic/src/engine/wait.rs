//! WAIT: a send queue stands still until a CQ has a CQE. It is off the run list meanwhile, and the CQ
//! knows it.

use super::outcome::{Stop, local};
use super::queues::Queues;
use crate::objects::cq::CompletionQueue;
use crate::objects::send::SendQueue;
use crate::slots::{CqSlot, QpSlot, Slots};
use crate::violation::Rule;

/// Whether `q`, whose next WQE waits for the CQE of `index` of the CQ `cqn`, may go on.
pub(super) fn wait(
    cqs: &mut Slots<CqSlot, CompletionQueue>,
    q: &mut SendQueue,
    cqn: u32,
    index: u32,
) -> Result<(), Stop> {
    let lost = || local(Rule::AwaitedCq { cqn });
    let at = CqSlot(cqn.checked_sub(1).ok_or_else(lost)?);
    let cq = cqs.get_mut(at).ok_or_else(lost)?;
    if cq.has(index) {
        q.turn.waits = None;
        return Ok(());
    }
    if cq.dead {
        return Err(lost());
    }
    cq.waiters.add(q.slot, index);
    q.turn.waits = Some(at);
    Err(Stop::Wait)
}

impl Queues {
    /// Puts the QPs on the run list for which a CQE has come.
    #[inline]
    pub(super) fn wake_waiting(&mut self) {
        while let Some(slot) = self.completer.woken.pop() {
            // The QP may be gone.
            if let Some(q) = self.tables.sends.get_mut(slot) {
                self.schedule.enqueue(q);
            }
        }
    }

    /// A CQE was written to the CQ in `at` without the completer.
    pub(crate) fn look_at_waiters(&mut self, at: CqSlot) {
        let Some(cq) = self.tables.cqs.get_mut(at) else { return };
        cq.wake(&mut self.completer.woken);
        if cq.dead {
            let (cqn, waiters) = (cq.cqn, cq.waiters.take());
            self.fail_waiting(at, cqn, waiters);
        }
    }

    /// Takes a CQ out, which no QP uses. Those that wait for it fail.
    pub(crate) fn remove_cq(&mut self, at: CqSlot) -> Option<Box<CompletionQueue>> {
        let mut cq = self.tables.cqs.remove(at)?;
        self.fail_waiting(at, cq.cqn, cq.waiters.take());
        Some(cq)
    }

    /// The CQ in `at` gets no CQE any more.
    pub(super) fn fail_waiting(
        &mut self,
        at: CqSlot,
        cqn: u32,
        waiters: impl Iterator<Item = QpSlot>,
    ) {
        for slot in waiters {
            let q = self.tables.sends.get_mut(slot).filter(|q| q.turn.waits == Some(at));
            if let Some(q) = q {
                q.turn.deferred_error.get_or_insert(Rule::AwaitedCq { cqn });
                self.schedule.enqueue(q);
            }
        }
    }
}
