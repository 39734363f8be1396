//! QPs whose queues a vendor's library makes in the memory that posters use.

use super::opened::Opened;
use super::qp::DeviceQp;
use crate::TransportError;
use crate::provider::events::Subscription;
use crate::provider::soft::attributes;
use crate::provider::{Events, PathSpec, QueuePair};
use std::fmt;
use std::sync::Arc;
use warpverbs_mem::{Access, Region};
use warpverbs_nic::{FirstError, NicError, Path, QpState};
use warpverbs_verbs as verbs;

/// Where doorbells are rung.
pub(super) struct Doorbells {
    /// Registers of the QP's own, if it does not ring those of the domain.
    pub(super) own: Option<Region>,
    /// Offsets of the registers for sends, for receives and for consumed CQEs.
    pub(super) offsets: [u64; 3],
}

/// A QP; its object keeps all that it uses.
pub(super) struct VendorQp {
    device: DeviceQp,
    cqns: [u32; 2],
    doorbells: Doorbells,
    events: Subscription,
}

impl VendorQp {
    /// A new QP with CQs of these numbers, in the state INIT, with these rights of its peer.
    pub(super) fn initialised(
        qp: verbs::Qp,
        cqns: [u32; 2],
        doorbells: Doorbells,
        (opened, access): (&Arc<Opened>, Access),
    ) -> Result<Arc<dyn QueuePair>, TransportError> {
        let device = DeviceQp { qp: Arc::new(qp), opened: opened.clone() };
        let events = opened.running.subscribe(device.objects());
        let pair = Self { device, cqns, doorbells, events };
        pair.init(access)?;
        Ok(Arc::new(pair))
    }
}

impl fmt::Debug for VendorQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.device)
    }
}

impl QueuePair for VendorQp {
    fn qpn(&self) -> u32 {
        self.device.qp.qpn()
    }

    fn cqns(&self) -> [u32; 2] {
        self.cqns
    }

    fn doorbell_offset(&self) -> Option<u64> {
        Some(self.doorbells.offsets[0])
    }

    fn other_doorbells(&self) -> Option<[u64; 2]> {
        let [_, receives, cqs] = self.doorbells.offsets;
        Some([receives, cqs])
    }

    fn own_doorbells(&self) -> Option<&Region> {
        self.doorbells.own.as_ref()
    }

    fn state(&self) -> QpState {
        self.device.state()
    }

    /// The device writes it into the CQ, which keeps it, and remembers nothing.
    fn first_error(&self) -> Option<FirstError> {
        None
    }

    fn stopped(&self) -> Option<NicError> {
        self.device.opened.running.nic.stopped()
    }

    fn events(&self) -> Events {
        self.device.opened.running.events(&self.events).of_qp(self.qpn(), || self.state())
    }

    fn connect(&self, path: &PathSpec) -> Result<(), TransportError> {
        // Everything is in range, or nothing is changed.
        attributes(path, Path::Proxied)?;
        self.device.connect(path)
    }

    fn reset(&self) -> Result<(), TransportError> {
        self.device.go(QpState::Reset)?;
        self.device.opened.running.forget_events(&self.events);
        Ok(())
    }

    fn init(&self, access: Access) -> Result<(), TransportError> {
        self.device.init(access)
    }

    fn fail(&self) -> Result<(), TransportError> {
        self.device.go(QpState::Err)
    }
}
