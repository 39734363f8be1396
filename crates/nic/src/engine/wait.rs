//! WAIT: a send queue stands still until a CQ has a CQE. It is off the run list meanwhile, and the CQ
//! knows it.

use super::outcome::{Stop, local};
use super::queues::Queues;
use crate::objects::cq::CompletionQueue;
use crate::objects::send::SendQueue;
use crate::slots::{CqSlot, Slots};
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
    /// A CQE was written to the CQ in `at` without the completer.
    pub(crate) fn look_at_waiters(&mut self, at: CqSlot) {
        let Some(cq) = self.tables.cqs.get_mut(at) else { return };
        cq.wake(&mut self.completer.woken);
        if cq.dead {
            let (cqn, waiters) = (cq.cqn, cq.waiters.take());
            self.schedule.fail_waiting(&mut self.tables.sends, at, cqn, waiters);
        }
    }

    /// Takes a CQ out, which no QP uses. Those that wait for it fail.
    pub(crate) fn remove_cq(&mut self, at: CqSlot) -> Option<Box<CompletionQueue>> {
        let mut cq = self.tables.cqs.remove(at)?;
        self.schedule.fail_waiting(&mut self.tables.sends, at, cq.cqn, cq.waiters.take());
        Some(cq)
    }
}
