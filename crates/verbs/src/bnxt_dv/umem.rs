//! Memory in which queues lie.

use super::library::BnxtDv;
use crate::call::object;
use crate::vendor::VendorError;
use crate::{Owned, sys};
use std::ffi::c_void;
use std::fmt;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use warpverbs_bnxt::dv::{UMEM_DMABUF, UmemRegAttr};
use warpverbs_mem::{Kind, Region};

/// Memory that the device reads and writes on behalf of queues in it. It stays alive until the device has
/// given it up. Cloning shares it.
#[derive(Clone)]
pub struct Umem {
    umem: Arc<Owned<c_void, BnxtDv, Region>>,
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Umem({:?})", self.umem.memory())
    }
}

impl Umem {
    /// Registers memory: of the host by its address, of a GPU by a dmabuf.
    pub fn register(dv: &BnxtDv, region: &Region) -> Result<Self, VendorError> {
        let attr = UmemRegAttr {
            addr: region.addr(),
            size: region.len() as u64,
            access_flags: sys::IBV_ACCESS_LOCAL_WRITE,
            ..UmemRegAttr::default()
        };
        let ptr = match region.kind() {
            Kind::Host => register(dv, attr)?,
            kind => {
                let refused = |why: String| VendorError::NotReached { kind: kind.to_string(), why };
                let dmabuf = region.export_dmabuf().map_err(|error| refused(error.to_string()))?;
                let attr = UmemRegAttr {
                    addr: dmabuf.offset,
                    comp_mask: UMEM_DMABUF,
                    dmabuf_fd: dmabuf.fd.as_raw_fd(),
                    ..attr
                };
                register(dv, attr).map_err(|error| refused(error.to_string()))?
            }
        };
        let destroy = ("bnxt_re_dv_umem_dereg", dv.api().bnxt_re_dv_umem_dereg);
        // SAFETY: registered above; queues in it hold it.
        let umem = unsafe { Owned::new(ptr, destroy, dv.clone(), region.clone()) };
        Ok(Self { umem: Arc::new(umem) })
    }

    /// The library that it was registered with.
    pub fn dv(&self) -> &BnxtDv {
        self.umem.parent()
    }

    /// The memory.
    pub fn region(&self) -> &Region {
        self.umem.memory()
    }

    /// The library's handle.
    pub(super) fn handle(&self) -> u64 {
        self.umem.ptr().as_ptr() as u64
    }
}

fn register(dv: &BnxtDv, mut attr: UmemRegAttr) -> Result<NonNull<c_void>, VendorError> {
    let context = dv.context().ptr().as_ptr();
    // SAFETY: a live context; the memory, or the dmabuf's, stays allocated while `Umem` holds its region.
    let ptr = unsafe { (dv.api().bnxt_re_dv_umem_reg)(context, &mut attr) };
    Ok(object("bnxt_re_dv_umem_reg", ptr)?)
}
