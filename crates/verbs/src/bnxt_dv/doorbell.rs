//! Doorbell pages.

use super::library::BnxtDv;
use crate::call::{check, object};
use crate::register::region;
use crate::vendor::VendorError;
use crate::{CallError, Pd};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use warpverbs_bnxt::dv::DbRegionAttr;
use warpverbs_mem::Region;

/// A doorbell page, whose first 8 bytes are the register. Doorbells say which queue they are for. Cloning
/// shares it.
#[derive(Clone)]
pub struct DbRegion {
    inner: Arc<Inner>,
}

struct Inner {
    register: u64,
    /// The library's object, of a page that is not the context's.
    own: Option<NonNull<DbRegionAttr>>,
    /// By which the library has mapped that of the context.
    _pd: Option<Pd>,
    dv: BnxtDv,
}

// SAFETY: libbnxt_re allows the use of a page from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above; ours is only read.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        let (Some(own), Some(free)) = (self.own, self.dv.api().bnxt_re_dv_free_db_region) else {
            return;
        };
        // SAFETY: allocated from this context, and given back once, here.
        let freed = unsafe { free(self.dv.context().ptr().as_ptr(), own.as_ptr()) };
        if let Err(error) = check("bnxt_re_dv_free_db_region", freed) {
            tracing::error!(%error, "a doorbell page is left");
        }
    }
}

impl fmt::Debug for DbRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.inner.own.is_some() { "own" } else { "the context's" };
        write!(f, "DbRegion({:#x}, {whose})", self.inner.register)
    }
}

impl DbRegion {
    /// A page of its own.
    ///
    /// # Errors
    /// The library has no such function, or the device no more pages.
    pub fn alloc(dv: &BnxtDv) -> Result<Self, VendorError> {
        let call = "bnxt_re_dv_alloc_db_region";
        let Some(alloc) = dv.api().bnxt_re_dv_alloc_db_region else {
            return Err(CallError::absent(call).into());
        };
        // SAFETY: a live context.
        let ptr = object(call, unsafe { alloc(dv.context().ptr().as_ptr()) })?;
        // SAFETY: a live page.
        let register = unsafe { ptr.as_ref() }.dbr;
        let inner = Inner { register, own: Some(ptr), _pd: None, dv: dv.clone() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The context's page, which all its queues share that have no own. The library maps it with the first
    /// protection domain.
    ///
    /// # Errors
    /// The library has no such function, or does not say where the page is.
    pub fn of_context(dv: &BnxtDv, pd: &Pd) -> Result<Self, VendorError> {
        let call = "bnxt_re_dv_get_default_db_region";
        let Some(get) = dv.api().bnxt_re_dv_get_default_db_region else {
            return Err(CallError::absent(call).into());
        };
        let mut out = DbRegionAttr::default();
        // SAFETY: a live context, and room for the answer.
        check(call, unsafe { get(dv.context().ptr().as_ptr(), &mut out) })?;
        if out.dbr == 0 {
            let errno = nix::errno::Errno::ENODATA;
            return Err(CallError { call, errno }.into());
        }
        let inner = Inner { register: out.dbr, own: None, _pd: Some(pd.clone()), dv: dv.clone() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The register: 8 bytes, written by one store and never read.
    pub fn register(&self) -> Region {
        // SAFETY: the page is mapped until it is freed, or the context closed, which is when the last holder of
        // `Inner` goes. On `warpverbs run` a store to it raises SIGBUS, whose handler executes it.
        unsafe { region(self.inner.register, size_of::<u64>(), self.inner.clone()) }
    }

    /// Its handle for a new QP: 0 for the page of the context.
    pub(super) fn handle(&self) -> u64 {
        self.inner.own.map_or(0, |own| own.as_ptr() as u64)
    }
}
