//! On-demand paging: registered memory that is not pinned.

use crate::{ExtraAttr, ExtraError, Offer};
use warpverbs_mem::{Access, Region};
use warpverbs_verbs::call::check;
use warpverbs_verbs::{CallError, Mr, Pd, Registration, sys};

/// Memory whose pages are not pinned: the device faults them in. [`ExtraAttr::on_demand`] says whether
/// it can, and for which operations. Needs no locked memory, and is slower at the first access.
#[derive(Debug)]
pub struct OnDemandMr {
    mr: Mr,
}

impl OnDemandMr {
    /// Registers `region` by its address.
    pub fn register(
        pd: &Pd,
        region: &Region,
        registration: Registration,
    ) -> Result<Self, ExtraError> {
        // A kernel refuses with EINVAL or EOPNOTSUPP, which could be anything.
        if ExtraAttr::of(pd.context())?.on_demand.is_none() {
            return Err(Offer::OnDemandPaging.lacks(pd.context()));
        }
        let registration = registration.with_flag(sys::IBV_ACCESS_ON_DEMAND, true);
        Ok(Self { mr: Mr::register(pd, region, registration)? })
    }

    /// The registration, for work requests and peers.
    pub fn mr(&self) -> &Mr {
        &self.mr
    }

    /// Asks the device to page this range in now.
    pub fn prefetch(&self, offset: u64, len: u32) -> Result<(), ExtraError> {
        let sge = self.mr.sge(offset, len)?;
        let mut sge = sys::ibv_sge { addr: sge.addr, length: sge.len, lkey: sge.lkey.0 };
        let advice = match self.mr.registration().access().contains(Access::LOCAL_WRITE) {
            true => sys::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
            false => sys::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
        };
        let (call, pd) = ("ibv_advise_mr", self.mr.pd());
        let advise = extension_op!(pd.context(), advise_mr).ok_or(CallError::absent(call))?;
        // SAFETY: a live domain, and one live entry.
        let code = unsafe { advise(pd.ptr().as_ptr(), advice, 0, &mut sge, 1) };
        Ok(check(call, code)?)
    }
}
