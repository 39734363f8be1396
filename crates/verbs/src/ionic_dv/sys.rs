//! The functions of the vendor's libionic, which has symbol versions for some of them in some packages; and what
//! libibverbs' bindings lack for parent domains.

// The names are the headers'.
#![allow(missing_docs)]

use crate::sys::{functions, ibv_context, ibv_cq, ibv_pd, ibv_qp};
use std::ffi::{c_int, c_void};
use warpverbs_ionic::dv::{DvCtx, DvQp, DvQueue};

functions! {
    /// The functions of a loaded libionic of the vendor's that are used.
    IonicApi
    required {
        "" fn ionic_dv_get_ctx(out: *mut DvCtx, context: *mut ibv_context) -> c_int;
        "" fn ionic_dv_get_cq(out: *mut DvQueue, cq: *mut ibv_cq, pipeline: u8) -> c_int;
        "" fn ionic_dv_get_qp(out: *mut DvQp, qp: *mut ibv_qp) -> c_int;
        "" fn ionic_dv_qp_get_udma_idx(qp: *mut ibv_qp) -> u8;
        "" fn ionic_dv_pd_set_udma_mask(pd: *mut ibv_pd, mask: u8) -> c_int;
        "" fn ionic_dv_pd_set_sqcmb(pd: *mut ibv_pd, enable: bool, expdb: bool, require: bool) -> c_int;
        "" fn ionic_dv_pd_set_rqcmb(pd: *mut ibv_pd, enable: bool, expdb: bool, require: bool) -> c_int;
    }
    optional {
        "" fn ionic_dv_ctx_get_udma_mask(context: *mut ibv_context) -> u8;
    }
}

/// Gives memory: of a domain, for its user's pointer, so many bytes with this alignment, for this use.
pub type Alloc = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
/// Takes it back.
pub type Free = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64);

/// `struct ibv_parent_domain_init_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct ParentDomainInitAttr {
    pub pd: *mut ibv_pd,
    pub td: *mut c_void,
    pub comp_mask: u32,
    pub alloc: Alloc,
    pub free: Free,
    pub pd_context: *mut c_void,
}

/// `ibv_alloc_parent_domain`, which libibverbs has in an open device's table.
pub type AllocParentDomain =
    unsafe extern "C" fn(*mut ibv_context, *mut ParentDomainInitAttr) -> *mut ibv_pd;

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS` and `IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT`.
pub const ALLOCATORS_AND_CONTEXT: u32 = 3;
/// `IBV_ALLOCATOR_USE_DEFAULT`.
pub const USE_DEFAULT: *mut c_void = usize::MAX as *mut c_void;
/// `IBV_CQ_INIT_ATTR_MASK_PD`.
pub const CQ_OF_DOMAIN: u32 = 2;
