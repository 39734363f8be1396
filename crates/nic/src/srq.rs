//! Shared receive queues, as their users hold them.

use crate::engine::registry;
use crate::format::Dialect;
use crate::pd::Pd;
use crate::shared::Shared;
use crate::slots::SrqSlot;
use std::sync::Arc;

/// A shared receive queue. Clones share it; it is destroyed with the last one, and no sooner
/// than the last QP that uses it.
#[derive(Clone, Debug)]
pub struct Srq(pub(crate) Arc<SrqInner>);

#[derive(Debug)]
pub(crate) struct SrqInner {
    pub(crate) nic: Arc<Shared>,
    pub(crate) pd: Pd,
    pub(crate) slot: SrqSlot,
    pub(crate) srqn: u32,
    pub(crate) proxied: bool,
    pub(crate) dialect: Dialect,
}

impl Srq {
    /// Number of the SRQ, in CQEs and events.
    pub fn srqn(&self) -> u32 {
        self.0.srqn
    }

    /// Raises [`AsyncEvent::SrqLimit`](crate::AsyncEvent::SrqLimit) once, when fewer than `limit`
    /// receives are left after one was taken. 0 disarms.
    pub fn set_limit(&self, limit: u16) {
        registry::set_srq_limit(&mut self.0.nic.lock(), self.0.slot, limit);
    }

    /// The limit that is armed; 0 without, and once its event was raised.
    pub fn limit(&self) -> u16 {
        registry::srq_limit(&self.0.nic.lock(), self.0.slot)
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // Memory is freed after the lock.
        let removed = self.nic.take_down(|core| registry::remove_srq(core, self.slot));
        drop(removed);
    }
}
