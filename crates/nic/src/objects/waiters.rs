//! Send queues that stand still until their CQ has a CQE.

use crate::slots::QpSlot;

/// Indexes of CQEs have 24 bits, as in the CQ's doorbell record.
const INDEX: u32 = 0xff_ffff;

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

/// Whether the CQE of `index` is one of the newest 2^23 of `produced`.
pub(super) fn is_reached(produced: u64, index: u32) -> bool {
    (produced as u32).wrapping_sub(index).wrapping_sub(1) & INDEX <= INDEX >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_reached_once_its_cqe_is_there() {
        // CQEs there are, the index of the newest, and one ahead.
        for (produced, newest) in
            [(1, 0), (6, 5), (1 << 24, INDEX), ((1 << 24) + 1, 0), ((7 << 24) + 3, 2)]
        {
            let old = newest.wrapping_sub(INDEX >> 1);
            for index in [newest, newest | 0xa500_0000, newest.wrapping_sub(1), old] {
                assert!(is_reached(produced, index), "{produced} {index:#x}");
            }
            for index in [newest + 1, newest.wrapping_add(1 << 23), old.wrapping_sub(1)] {
                assert!(!is_reached(produced, index), "{produced} {index:#x}");
            }
        }
        assert!(!is_reached(0, 0));
    }
}
