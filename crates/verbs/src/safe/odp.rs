//! On-demand paging: registered memory that is not pinned.

use super::{Mr, Offer, Pd, Registration, VerbsError};
use crate::{result, sys};
use bitflags::bitflags;
use warpverbs_mem::Access;

bitflags! {
    /// Operations that may touch memory which is paged in on demand (`ibv_odp_transport_cap_bits`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct OnDemandOps: u32 {
        /// SEND.
        const SEND = sys::IBV_ODP_SUPPORT_SEND;
        /// Receives.
        const RECV = sys::IBV_ODP_SUPPORT_RECV;
        /// WRITE.
        const WRITE = sys::IBV_ODP_SUPPORT_WRITE;
        /// READ.
        const READ = sys::IBV_ODP_SUPPORT_READ;
        /// Atomics.
        const ATOMIC = sys::IBV_ODP_SUPPORT_ATOMIC;
        /// Receives of a shared queue.
        const SRQ_RECV = sys::IBV_ODP_SUPPORT_SRQ_RECV;
        const _ = !0;
    }
}

/// How far a device supports on-demand paging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemandPaging {
    /// A whole address space can be registered.
    pub implicit: bool,
    /// What RC queue pairs may do with such memory.
    pub rc: OnDemandOps,
}

impl OnDemandPaging {
    pub(super) fn from_raw(raw: &sys::ibv_odp_caps) -> Option<Self> {
        let has = |bit: u32| raw.general_caps & u64::from(bit) != 0;
        has(sys::IBV_ODP_SUPPORT).then(|| Self {
            implicit: has(sys::IBV_ODP_SUPPORT_IMPLICIT),
            rc: OnDemandOps::from_bits_retain(raw.per_transport_caps.rc_odp_caps),
        })
    }
}

impl Registration {
    /// Pages are not pinned; the device faults them in ([`DeviceAttr::on_demand`] says whether it
    /// can, and for which operations). Needs no locked memory, and is slower at the first access.
    ///
    /// [`DeviceAttr::on_demand`]: super::DeviceAttr::on_demand
    #[must_use]
    pub fn on_demand(mut self, on_demand: bool) -> Self {
        self.on_demand = on_demand;
        self
    }
}

impl Mr {
    /// Asks the device to page this range in now. Only for memory that is registered on demand.
    pub fn prefetch(&self, offset: u64, len: u32) -> Result<(), VerbsError> {
        if !self.registration().on_demand {
            return Err(VerbsError::NotOnDemand);
        }
        let sge = self.sge(offset, len)?;
        let mut sges = [sys::ibv_sge { addr: sge.addr, length: sge.len, lkey: sge.lkey.0 }];
        let advice = match self.registration().access().contains(Access::LOCAL_WRITE) {
            true => sys::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
            false => sys::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
        };
        // SAFETY: a live domain.
        Ok(unsafe { result::advise_mr(self.pd().ptr(), advice, &mut sges) }?)
    }
}

/// A kernel refuses with EINVAL or EOPNOTSUPP, which could be anything.
pub(super) fn check(pd: &Pd, registration: Registration) -> Result<(), VerbsError> {
    if registration.on_demand && pd.context().attr()?.on_demand.is_none() {
        let device = pd.context().device().name().to_owned();
        return Err(VerbsError::NotOffered { device, what: Offer::OnDemandPaging });
    }
    Ok(())
}
