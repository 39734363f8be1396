//! The functions of the vendor's libbnxt_re. They have no symbol versions.

// The names are the header's.
#![allow(missing_docs)]

use crate::sys::{functions, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr};
use std::ffi::{c_int, c_void};
use warpverbs_bnxt::dv::{CqInitAttr, DbRegionAttr, Obj, QpInitAttr, UmemRegAttr};

functions! {
    /// The functions of a loaded libbnxt_re of the vendor's that are used.
    BnxtApi
    required {
        "" fn bnxt_re_dv_umem_reg(context: *mut ibv_context, attr: *mut UmemRegAttr) -> *mut c_void;
        "" fn bnxt_re_dv_umem_dereg(umem: *mut c_void) -> c_int;
        "" fn bnxt_re_dv_create_cq(context: *mut ibv_context, attr: *mut CqInitAttr) -> *mut ibv_cq;
        "" fn bnxt_re_dv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        "" fn bnxt_re_dv_init_obj(obj: *mut Obj, kinds: u64) -> c_int;
        "" fn bnxt_re_dv_create_qp(pd: *mut ibv_pd, attr: *mut QpInitAttr) -> *mut ibv_qp;
        "" fn bnxt_re_dv_destroy_qp(qp: *mut ibv_qp) -> c_int;
        "" fn bnxt_re_dv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, kind: u32, value: u32) -> c_int;
    }
    optional {
        "" fn bnxt_re_dv_alloc_db_region(context: *mut ibv_context) -> *mut DbRegionAttr;
        "" fn bnxt_re_dv_free_db_region(context: *mut ibv_context, region: *mut DbRegionAttr) -> c_int;
        "" fn bnxt_re_dv_get_default_db_region(context: *mut ibv_context, out: *mut DbRegionAttr) -> c_int;
    }
}
