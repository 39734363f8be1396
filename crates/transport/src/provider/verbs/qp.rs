//! An endpoint's two QPs, the software NIC's and the device's, brought along together.

use super::nic::Opened;
use crate::provider::soft::attributes;
use crate::provider::{PathSpec, QueuePair};
use crate::reach::gid_of;
use crate::{Error, Reach, UsageError};
use std::fmt;
use std::sync::Arc;
use warpverbs_mem::Access;
use warpverbs_nic::{Cq, FirstError, Path, Qp, QpAttrs, QpState};
use warpverbs_verbs as verbs;
use warpverbs_verbs::Gid;

/// Dropped in this order: the software NIC lets go of the device's QP before that is destroyed.
pub(super) struct VerbsQp {
    pub(super) qp: Qp,
    pub(super) cqs: [Cq; 2],
    pub(super) device: Arc<verbs::Qp>,
    pub(super) opened: Arc<Opened>,
}

impl fmt::Debug for VerbsQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.device)
    }
}

impl VerbsQp {
    /// How the device reaches a peer, if it does.
    fn path(&self, peer: &Reach) -> Result<verbs::Path, UsageError> {
        let opened = &*self.opened;
        let (own, port, index) = (opened.reach, opened.port, opened.gid.entry.index as u8);
        own.check(opened.name(), peer)?;
        let routed = |gid| verbs::Path::roce(port, index, Gid(gid));
        Ok(match (own, *peer) {
            (_, Reach::RoceV2 { gid } | Reach::RoceV1 { gid }) => routed(gid),
            (_, Reach::Udp(addr)) => routed(gid_of(addr.ip())),
            (Reach::Infiniband { gid: own, .. }, Reach::Infiniband { gid, lid }) => {
                let local = verbs::Path::infiniband(port, lid);
                // The first half of a GID is the subnet's.
                let same_subnet = own[..8] == gid[..8] && lid != 0 && !opened.grh_required;
                let global = (!same_subnet).then_some(routed(gid).global).flatten();
                verbs::Path { global, ..local }
            }
            // The check has refused every other pair.
            (_, peer) => {
                let (nic, why) =
                    (opened.name().to_owned(), "they are on networks of different kinds");
                return Err(UsageError::NoWay { nic, own, peer, why });
            }
        })
    }

    /// The device's QP from INIT to RTS.
    fn connect_device(&self, path: &PathSpec) -> Result<(), Error> {
        let rtr = verbs::QpAttrs {
            max_dest_rd_atomic: Some(path.max_dest_rd_atomic),
            min_rnr_timer: Some(path.min_rnr_timer),
            ..verbs::QpAttrs::rtr(self.path(&path.dest)?, path.mtu, path.dest_qpn, path.rq_psn)
        };
        let rts = verbs::QpAttrs {
            timeout: Some(path.ack_timeout),
            // Soft-RoCE takes seven for "for ever", and a dead peer would never be missed.
            retry: Some(path.retry.min(6)),
            rnr_retry: Some(path.rnr_retry),
            max_rd_atomic: Some(path.max_rd_atomic),
            ..verbs::QpAttrs::rts(path.sq_psn)
        };
        self.device.modify(verbs::QpState::Rtr, &rtr)?;
        Ok(self.device.modify(verbs::QpState::Rts, &rts)?)
    }
}

impl QueuePair for VerbsQp {
    fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    fn cqns(&self) -> [u32; 2] {
        [self.cqs[0].cqn(), self.cqs[1].cqn()]
    }

    fn doorbell_offset(&self) -> u64 {
        self.qp.doorbell_offset()
    }

    fn state(&self) -> QpState {
        self.qp.state()
    }

    fn first_error(&self) -> Option<FirstError> {
        self.qp.first_error()
    }

    fn connect(&self, path: &PathSpec) -> Result<(), Error> {
        let [rtr, rts] = attributes(path, Path::Carried)?;
        // The device first: work that a poster announces finds it ready.
        self.connect_device(path)?;
        self.qp.modify(QpState::Rtr, &rtr)?;
        Ok(self.qp.modify(QpState::Rts, &rts)?)
    }

    fn reset(&self) -> Result<(), Error> {
        self.qp.modify(QpState::Reset, &QpAttrs::default())?;
        Ok(self.device.modify(verbs::QpState::Reset, &verbs::QpAttrs::default())?)
    }

    fn init(&self, access: Access) -> Result<(), Error> {
        let attrs = verbs::QpAttrs::init(self.opened.port, access);
        self.device.modify(verbs::QpState::Init, &attrs)?;
        Ok(self.qp.modify(QpState::Init, &QpAttrs::init(access))?)
    }

    fn fail(&self) -> Result<(), Error> {
        // The carrier brings the device along.
        Ok(self.qp.modify(QpState::Err, &QpAttrs::default())?)
    }
}
