//! An endpoint's QP: the device's, alone or with one of the software NIC.

use super::events::device_number;
use super::opened::Opened;
use crate::TransportError;
use crate::provider::events::{Objects, Subscription};
use crate::provider::soft::attributes;
use crate::provider::{Events, PathSpec, QueuePair};
use std::fmt;
use std::sync::Arc;
use warpverbs_mem::Access;
use warpverbs_nic::{Cq, FirstError, NicError, Path, Qp, QpAttrs, QpState};
use warpverbs_verbs as verbs;

/// A QP of a device.
pub(super) struct DeviceQp {
    pub(super) qp: Arc<verbs::Qp>,
    pub(super) opened: Arc<Opened>,
}

impl fmt::Debug for DeviceQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.qp)
    }
}

impl DeviceQp {
    /// Numbers that events of the device name.
    pub(super) fn objects(&self) -> Objects {
        let cqs = [self.qp.send_cq(), self.qp.recv_cq()];
        let cqns = cqs.iter().map(|cq| device_number(cq.id())).collect();
        Objects { qpn: self.qp.qpn(), cqns, srqns: Vec::new() }
    }

    /// Its state, as the device has it.
    pub(super) fn state(&self) -> QpState {
        match self.qp.state() {
            Ok(state) if !self.opened.is_gone() => state,
            // A QP whose device does not answer cannot be used.
            _ => QpState::Err,
        }
    }

    /// From INIT to RTS.
    pub(super) fn connect(&self, path: &PathSpec) -> Result<(), TransportError> {
        let rtr = verbs::QpAttrs {
            max_dest_rd_atomic: Some(path.max_dest_rd_atomic),
            min_rnr_timer: Some(path.min_rnr_timer),
            ..verbs::QpAttrs::rtr(
                self.opened.path(&path.dest)?,
                path.mtu,
                path.dest_qpn,
                path.rq_psn,
            )
        };
        let rts = verbs::QpAttrs {
            timeout: Some(path.ack_timeout),
            // Soft-RoCE takes seven for "for ever", and a dead peer would never be missed.
            retry: Some(path.retry.min(6)),
            rnr_retry: Some(path.rnr_retry),
            max_rd_atomic: Some(path.max_rd_atomic),
            ..verbs::QpAttrs::rts(path.sq_psn)
        };
        self.qp.modify(QpState::Rtr, &rtr)?;
        Ok(self.qp.modify(QpState::Rts, &rts)?)
    }

    pub(super) fn init(&self, access: Access) -> Result<(), TransportError> {
        let attrs = verbs::QpAttrs::init(self.opened.port, access);
        Ok(self.qp.modify(QpState::Init, &attrs)?)
    }

    pub(super) fn go(&self, state: QpState) -> Result<(), TransportError> {
        Ok(self.qp.modify(state, &verbs::QpAttrs::default())?)
    }
}

/// A QP of the software NIC, proxied to one of the device: both change state together. Dropped in
/// this order: the software NIC lets go of the device's QP before that is destroyed.
#[derive(Debug)]
pub(super) struct ProxiedQp {
    pub(super) qp: Qp,
    pub(super) cqs: [Cq; 2],
    pub(super) device: DeviceQp,
    pub(super) events: Subscription,
}

impl QueuePair for ProxiedQp {
    fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    fn cqns(&self) -> [u32; 2] {
        [self.cqs[0].cqn(), self.cqs[1].cqn()]
    }

    fn doorbell_offset(&self) -> Option<u64> {
        Some(self.qp.doorbell_offset())
    }

    fn state(&self) -> QpState {
        self.qp.state()
    }

    fn first_error(&self) -> Option<FirstError> {
        self.qp.first_error()
    }

    fn stopped(&self) -> Option<NicError> {
        self.device.opened.running.nic.stopped()
    }

    fn events(&self) -> Events {
        // Either of the two may be the first to fail.
        let state = || match self.qp.state() {
            failed @ (QpState::Sqe | QpState::Err) => failed,
            _ => self.device.state(),
        };
        self.device.opened.running.events(&self.events).of_qp(self.qpn(), state)
    }

    fn connect(&self, path: &PathSpec) -> Result<(), TransportError> {
        let [rtr, rts] = attributes(path, Path::Proxied)?;
        // The device first: work that a poster announces finds it ready.
        self.device.connect(path)?;
        self.qp.modify(QpState::Rtr, &rtr)?;
        Ok(self.qp.modify(QpState::Rts, &rts)?)
    }

    fn reset(&self) -> Result<(), TransportError> {
        self.qp.modify(QpState::Reset, &QpAttrs::default())?;
        self.device.go(QpState::Reset)?;
        self.device.opened.running.forget_events(&self.events);
        Ok(())
    }

    fn init(&self, access: Access) -> Result<(), TransportError> {
        self.device.init(access)?;
        Ok(self.qp.modify(QpState::Init, &QpAttrs::init(access))?)
    }

    fn fail(&self) -> Result<(), TransportError> {
        // The proxy device brings the device along.
        Ok(self.qp.modify(QpState::Err, &QpAttrs::default())?)
    }
}
