//! Send queues that stand still until their CQ has a CQE.

use crate::format::is_reached;
use crate::slots::QpSlot;

/// The QPs, each once, and the indexes of the CQEs that they wait for. One that does so no more may
/// still be here.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<(QpSlot, u32)>);

impl Waiters {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them; none waits here any more.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = QpSlot> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|(slot, _)| slot)
    }

    /// The QP in `slot` waits for the CQE of `index`, and for no other of this CQ.
    pub(crate) fn add(&mut self, slot: QpSlot, index: u32) {
        match self.0.iter_mut().find(|(waiter, _)| *waiter == slot) {
            Some(waiter) => waiter.1 = index,
            None => self.0.push((slot, index)),
        }
    }

    /// Moves the QPs whose CQE is among `produced` to `woken`.
    #[cold]
    pub(super) fn wake(&mut self, produced: u64, woken: &mut Vec<QpSlot>) {
        let reached = self.0.extract_if(.., |(_, index)| is_reached(produced, *index));
        woken.extend(reached.map(|(slot, _)| slot));
    }
}
