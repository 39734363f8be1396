//! Address handles, as their users hold them.

use crate::engine::registry;
use crate::pd::Pd;
use crate::slots::AhSlot;
use std::sync::Arc;

/// An address for datagrams, which send queues of other formats than mlx5's name by a number: those of QPs of
/// its protection domain. Clones share it; the number dies with the last one.
#[derive(Clone, Debug)]
pub struct AddressHandle(pub(crate) Arc<AhInner>);

#[derive(Debug)]
pub(crate) struct AhInner {
    pub(crate) pd: Pd,
    pub(crate) slot: AhSlot,
}

impl AddressHandle {
    /// The number, 20 bits.
    pub fn number(&self) -> u32 {
        self.0.slot.0
    }
}

impl Drop for AhInner {
    fn drop(&mut self) {
        self.pd.0.nic.take_down(|core| registry::remove_ah(core, self.slot));
    }
}
