//! Completion queues, as their users hold them.

use crate::NicError;
use crate::engine::registry;
use crate::format::{CqMode, CqeRing, CqeSize, Dialect};
use crate::shared::Shared;
use crate::slots::CqSlot;
use std::sync::Arc;
use warpverbs_mem::Region;

/// A completion queue. Clones share it; it is destroyed with the last one, and no sooner than the
/// last QP that uses it.
#[derive(Clone, Debug)]
pub struct Cq(pub(crate) Arc<CqInner>);

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) nic: Arc<Shared>,
    pub(crate) slot: CqSlot,
    pub(crate) cqn: u32,
    pub(crate) cqe_size: CqeSize,
    pub(crate) dialect: Dialect,
}

impl Cq {
    /// Number of the CQ, in events.
    pub fn cqn(&self) -> u32 {
        self.0.cqn
    }

    /// Goes on in another ring, of entries of the same size: `buf` is as [`CqConfig::buf`](crate::CqConfig::buf), and is
    /// filled likewise. Returns once a CQE with the opcode "resized"
    /// ([`CqeOpcode::ResizeCq`](warpverbs_mlx5::opcode::CqeOpcode)) is in the old ring, which is
    /// not used any more. It takes an index, so the consumer moves each CQE before it from index
    /// `i` of the old ring to `i + 1` of the new one, with the owner bit of that index, and goes on
    /// at its consumer index + 1.
    ///
    /// bnxt_re's ends with a CQE that says so, and its consumer goes on at index 0 of the new ring, once it has
    /// consumed that one. It says so by a doorbell in [`CqConfig::dbr`](crate::CqConfig::dbr), at offset 16. With it
    /// the word at offset 0 is to be 0; what was there before is of the old ring.
    ///
    /// # Errors
    /// A size out of range or unsuitable memory; a collapsed CQ; one of ionic, or of bnxt_re without a place for
    /// that doorbell; one that has failed, or whose CQEs, as far as its doorbell record says, do not leave room in
    /// the old ring, or in mlx5's new one.
    pub fn resize(&self, log_size: u8, buf: &Region) -> Result<(), NicError> {
        let format = (self.0.dialect, CqMode::Ring);
        let mut ring = CqeRing::new(buf, format, log_size, self.0.cqe_size)?;
        let mut core = self.0.nic.lock_running()?;
        let resized = registry::resize_cq(&mut core, self.0.slot, &mut ring);
        drop(core);
        resized
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // Memory is freed after the lock is released.
        let removed = self.nic.take_down(|core| registry::remove_cq(core, self.slot));
        drop(removed);
    }
}
