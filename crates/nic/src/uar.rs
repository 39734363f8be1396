//! Pages of doorbell registers.

use crate::engine::registry;
use crate::shared::Shared;
use crate::slots::UarSlot;
use std::sync::Arc;

/// A page of doorbell registers ("UAR") in shared memory, for QPs whose posters write there
/// instead of [`SoftNic::doorbells`](crate::SoftNic::doorbells). QPs may share its registers: a
/// value that another one overwrites is not lost, since the NIC then looks at the doorbell records
/// of all QPs of the page. Clones share it; it is removed with the last one, and no sooner than the
/// last QP that uses it.
#[derive(Clone, Debug)]
pub struct UarPage(pub(crate) Arc<UarInner>);

#[derive(Debug)]
pub(crate) struct UarInner {
    pub(crate) nic: Arc<Shared>,
    pub(crate) slot: UarSlot,
}

impl Drop for UarInner {
    fn drop(&mut self) {
        // Memory is freed after the lock.
        let removed = self.nic.take_down(|core| registry::remove_uar(core, self.slot));
        drop(removed);
    }
}
