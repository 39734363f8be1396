//! Queues that a device reads itself, whichever interface of its vendor makes them.

use super::bnxt::Bnxt;
use super::mlx5::Mlx5;
use super::opened::Opened;
use crate::TransportError;
use crate::provider::{NicInfo, QpSpec, QueuePair, SharedQueue, SrqSpec};
use std::sync::Arc;
use warpverbs_mem::Region;
use warpverbs_mlx5::export::NicFormat;
use warpverbs_verbs as verbs;
use warpverbs_verbs::bnxt_dv::BROADCOM;

/// Maker of queues of a protection domain.
pub(super) trait DirectQueues: Send + Sync {
    /// Description of the device.
    fn info(&self, of: &NicInfo) -> NicInfo;

    /// The format of its queues.
    fn format(&self) -> NicFormat;

    /// The doorbell register of QPs that have none of their own.
    fn register(&self) -> &Region;

    /// A QP and its CQs. A step that fails leaves nothing behind.
    fn create_qp(
        &self,
        opened: &Arc<Opened>,
        pd: &verbs::Pd,
        spec: &QpSpec<'_>,
    ) -> Result<Arc<dyn QueuePair>, TransportError>;

    /// A shared receive queue.
    fn create_srq(
        &self,
        opened: &Opened,
        spec: &SrqSpec<'_>,
    ) -> Result<Arc<dyn SharedQueue>, TransportError>;
}

/// Description of a device of this kind that reads its queues itself.
pub(super) fn info(of: &NicInfo, provider: &'static str) -> NicInfo {
    let description = of.description.replace("queues by the CPU", "queues by the device itself");
    NicInfo { provider, description, ..of.clone() }
}

/// The maker for a device. Those of vendors without one are refused by the way of mlx5.
pub(super) fn of(opened: &Opened, pd: &verbs::Pd) -> Result<Box<dyn DirectQueues>, TransportError> {
    // The register is memory of the device; elsewhere a release store need not order writes of the rings before
    // one of it (docs/ordering.md).
    if !cfg!(target_arch = "x86_64") {
        let (device, what) = (opened.name().to_owned(), "the direct way is for hosts with x86-64");
        return Err(verbs::VerbsError::Unsupported { device, what }.into());
    }
    Ok(match opened.attr.vendor_id {
        BROADCOM => Box::new(Bnxt::new(opened, pd)?),
        _ => Box::new(Mlx5::new(opened, pd)?),
    })
}
