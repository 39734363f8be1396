//! QPs of a bnxt_re device whose queues the device reads itself: the vendor's library makes them in the memory
//! that posters use.

use super::direct_queues::{DirectQueues, failed, no_shared_queues};
use super::opened::Opened;
use super::vendor_qp::{Doorbells, VendorQp};
use crate::TransportError;
use crate::limits::BNXT_SLOTS;
use crate::provider::{CqSpec, QpSpec, QueuePair, RecvSpec};
use std::sync::Arc;
use warpverbs_bnxt::cqe::CQE;
use warpverbs_bnxt::slot::SLOT;
use warpverbs_mem::Region;
use warpverbs_mlx5::export::NicFormat;
use warpverbs_verbs as verbs;
use warpverbs_verbs::bnxt_dv::{BnxtDv, DbRegion, QpPlace, Umem};

/// Library and doorbell page for the QPs of a protection domain.
pub(super) struct Bnxt {
    dv: BnxtDv,
    page: DbRegion,
    register: Region,
}

impl Bnxt {
    pub(super) fn new(opened: &Opened, pd: &verbs::Pd) -> Result<Self, TransportError> {
        let dv = BnxtDv::of(&opened.context).map_err(failed)?;
        // Either function may be absent; the first failure says more.
        let page = DbRegion::of_context(&dv, pd)
            .or_else(|first| DbRegion::alloc(&dv).map_err(|_| first))
            .map_err(failed)?;
        let register = page.register();
        Ok(Self { dv, page, register })
    }

    /// A CQ and its number, with the memory that it is given.
    fn create_cq(&self, spec: &CqSpec<'_>) -> Result<(verbs::Cq, u32), TransportError> {
        // The device finds every entry zeroed.
        spec.buf.fill(0, spec.buf.len(), 0)?;
        let entries = spec.buf.slice(0, CQE << spec.log_size)?;
        let umem = Umem::register(&self.dv, &entries).map_err(failed)?;
        Ok(umem.cq(spec.log_size)?)
    }

    /// A page of the QP's own, for one to which kernels post, as long as the device has more: of what lanes of
    /// an AMD GPU store to one register in one instruction, only one store may reach the bus.
    fn page(&self, spec: &QpSpec<'_>) -> (DbRegion, bool) {
        let own = (!spec.host_only).then(|| DbRegion::alloc(&self.dv).ok()).flatten();
        let is_own = own.is_some();
        (own.unwrap_or_else(|| self.page.clone()), is_own)
    }
}

impl DirectQueues for Bnxt {
    fn provider(&self) -> &'static str {
        "bnxt_re"
    }

    fn format(&self) -> NicFormat {
        NicFormat::Bnxt
    }

    fn register(&self) -> &Region {
        &self.register
    }

    fn create_qp(
        &self,
        opened: &Arc<Opened>,
        pd: &verbs::Pd,
        spec: &QpSpec<'_>,
    ) -> Result<Arc<dyn QueuePair>, TransportError> {
        let umem = |region: &Region| Umem::register(&self.dv, region).map_err(failed);
        let rq = match spec.recv {
            RecvSpec::None => None,
            RecvSpec::Own { buf, log_depth, bytes } => {
                let each = u32::from(bytes) / SLOT as u32;
                Some((umem(buf)?, each << log_depth, each))
            }
            RecvSpec::Shared(_) => return Err(no_shared_queues(opened)),
        };
        let (send_cq, send_cqn) = self.create_cq(&spec.send_cq)?;
        let (recv_cq, recv_cqn) = self.create_cq(&spec.recv_cq)?;
        let (doorbells, is_own) = self.page(spec);
        let register = is_own.then(|| doorbells.register());
        let place = QpPlace {
            sq: umem(spec.sq)?,
            sq_slots: BNXT_SLOTS << spec.log_sq,
            send_slots: BNXT_SLOTS,
            rq,
            cqs: [send_cq, recv_cq],
            doorbells,
            // Of posters nobody looks at it: a CQ has CQEs of one queue alone.
            handle: 0,
            inline_bytes: spec.inline_bytes as u32,
        };
        let doorbells = Doorbells { own: register, offsets: [0; 3] };
        let cqns = [send_cqn, recv_cqn];
        VendorQp::initialised(place.create(pd)?, cqns, doorbells, (opened, spec.access))
    }
}
