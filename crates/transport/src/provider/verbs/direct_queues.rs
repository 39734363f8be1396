//! Queues that a device reads itself, whichever interface of its vendor makes them.

use super::opened::Opened;
use crate::TransportError;
use crate::provider::{NicInfo, QpSpec, QueuePair, SharedQueue, SrqSpec};
use std::sync::Arc;
use warpverbs_mem::Region;
use warpverbs_mlx5::export::NicFormat;
use warpverbs_verbs as verbs;
use warpverbs_verbs::vendor::VendorError;

/// Maker of queues of a protection domain.
pub(super) trait DirectQueues: Send + Sync {
    /// The kernel's driver of the device.
    fn provider(&self) -> &'static str;

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

    /// A shared receive queue, in a format whose receives have links.
    fn create_srq(
        &self,
        opened: &Opened,
        _spec: &SrqSpec<'_>,
    ) -> Result<Arc<dyn SharedQueue>, TransportError> {
        Err(no_shared_queues(opened))
    }

    /// Description of the device, which reads its queues itself.
    fn info(&self, of: &NicInfo) -> NicInfo {
        let description =
            of.description.replace("queues by the CPU", "queues by the device itself");
        NicInfo { provider: self.provider(), description, ..of.clone() }
    }
}

/// A failure of a vendor's library.
pub(super) fn failed(error: VendorError) -> TransportError {
    verbs::VerbsError::from(Box::new(error)).into()
}

/// The device has no queues that several QPs take receives from, in a format without their links.
pub(super) fn no_shared_queues(opened: &Opened) -> TransportError {
    let what = "the direct way has no shared receive queues but in mlx5's format";
    verbs::VerbsError::Unsupported { device: opened.name().to_owned(), what }.into()
}
