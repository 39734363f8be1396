//! Functions of AMD's own libionic that tell where queues and registers lie, which rdma-core's does not have, and
//! those that restrict a protection domain, which it has from v64 on. `warpverbs run` makes `libionic.so` a name of
//! this library.
//!
//! CQs and QPs are made by rdma-core's libionic, in memory that a parent domain's allocator gives it. The device has
//! one pipeline and no memory of its own for queues.

use super::call::{code, get, page_of, put};
use super::objects::{VerbsContext, VerbsCq, VerbsPd, VerbsQp};
use crate::device::SoftDevice;
use crate::files;
use crate::queues::Ring;
use crate::settings::Settings;
use std::ffi::c_int;
use warpverbs_ionic::doorbell::Doorbell;
use warpverbs_ionic::dv::{DvCtx, DvQp, DvQueue};
use warpverbs_rdma::Qpn;
use warpverbs_uverbs::abi::{IONIC_CQES, IONIC_RECEIVES, IONIC_SENDS};
use warpverbs_uverbs::{Context, Driver};

/// The mask of the one pipeline, and its number.
const PIPELINES: u8 = 1;
const PIPELINE: u8 = 0;

/// A ring as the program sees it.
fn told(ring: Ring, number: u32) -> DvQueue {
    let Ring { address, log_size, log_stride } = ring;
    let bytes = 1u64 << (log_size + log_stride);
    let doorbell = Doorbell { queue: Qpn::truncate(number), index: 0, arm: None };
    DvQueue {
        ptr: address,
        size: bytes,
        db_val: doorbell.word(),
        mask: ((1u32 << log_size) - 1) as u16,
        depth_log2: log_size,
        stride_log2: log_stride,
        reserved: 0,
    }
}

/// The result of `look` for the context that is open as `context`, of an ionic device.
///
/// # Safety
/// Null, or a live context.
unsafe fn found<T>(
    context: *const VerbsContext,
    look: impl FnOnce(&Context<SoftDevice>) -> Option<T>,
) -> Result<T, c_int> {
    // SAFETY: as the caller says.
    let context = unsafe { get(context) }?;
    let is_ionic = matches!(Settings::get().driver, Driver::Ionic { .. });
    is_ionic.then(|| files::look(context.fd, look)).flatten().ok_or(libc::EINVAL)
}

/// `int ionic_dv_get_ctx(struct ionic_dv_ctx *, struct ibv_context *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ionic_dv_get_ctx(out: *mut DvCtx, context: *const VerbsContext) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        unsafe { found(context, |_| Some(())) }?;
        // SAFETY: as the caller says.
        let page = page_of(unsafe { get(context) }?)?;
        let told = DvCtx {
            db_page: page,
            db_ptr: page,
            sq_qtype: IONIC_SENDS,
            rq_qtype: IONIC_RECEIVES,
            cq_qtype: IONIC_CQES,
            reserved: [0; 5],
        };
        // SAFETY: null, or room for it, as the caller says.
        unsafe { put(out, told) }
    })
}

/// `int ionic_dv_get_cq(struct ionic_dv_cq *, struct ibv_cq *, uint8_t)`, of a pipeline.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ionic_dv_get_cq(
    out: *mut DvQueue,
    cq: *const VerbsCq,
    pipeline: u8,
) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        let VerbsCq { context, handle, .. } = *unsafe { get(cq) }?;
        if pipeline != PIPELINE {
            return Err(libc::EINVAL);
        }
        let look = |open: &Context<SoftDevice>| {
            Some(told(open.cq(handle).ok()?.ring, open.number(handle)))
        };
        // SAFETY: as the caller says.
        let queue = unsafe { found(context, look) }?;
        // SAFETY: null, or room for it, as the caller says.
        unsafe { put(out, queue) }
    })
}

/// `int ionic_dv_get_qp(struct ionic_dv_qp *, struct ibv_qp *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ionic_dv_get_qp(out: *mut DvQp, qp: *const VerbsQp) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        let VerbsQp { context, handle, .. } = *unsafe { get(qp) }?;
        let look = |open: &Context<SoftDevice>| {
            let [sq, rq] = open.qp(handle).ok()?.rings?;
            let number = open.number(handle);
            Some(DvQp { rq: told(rq, number), sq: told(sq, number) })
        };
        // SAFETY: as the caller says.
        let queues = unsafe { found(context, look) }?;
        // SAFETY: null, or room for it, as the caller says.
        unsafe { put(out, queues) }
    })
}

/// `uint8_t ionic_dv_qp_get_udma_idx(struct ibv_qp *)`.
#[unsafe(no_mangle)]
pub extern "C" fn ionic_dv_qp_get_udma_idx(_: *const VerbsQp) -> u8 {
    PIPELINE
}

/// `uint8_t ionic_dv_ctx_get_udma_count(struct ibv_context *)`.
#[unsafe(no_mangle)]
pub extern "C" fn ionic_dv_ctx_get_udma_count(_: *const VerbsContext) -> u8 {
    PIPELINES.count_ones() as u8
}

/// `uint8_t ionic_dv_ctx_get_udma_mask(struct ibv_context *)`.
#[unsafe(no_mangle)]
pub extern "C" fn ionic_dv_ctx_get_udma_mask(_: *const VerbsContext) -> u8 {
    PIPELINES
}

/// `uint8_t ionic_dv_pd_get_udma_mask(struct ibv_pd *)`.
#[unsafe(no_mangle)]
pub extern "C" fn ionic_dv_pd_get_udma_mask(_: *const VerbsPd) -> u8 {
    PIPELINES
}

/// `int ionic_dv_pd_set_udma_mask(struct ibv_pd *, uint8_t)`.
#[unsafe(no_mangle)]
pub extern "C" fn ionic_dv_pd_set_udma_mask(_: *const VerbsPd, mask: u8) -> c_int {
    if mask == PIPELINES { 0 } else { libc::EINVAL }
}

/// Queues lie in the program's memory whatever is preferred; nothing else can be required.
fn in_device_memory(enable: u8, require: u8) -> c_int {
    if enable != 0 && require != 0 { libc::EINVAL } else { 0 }
}

/// `int ionic_dv_pd_set_sqcmb(struct ibv_pd *, bool enable, bool expdb, bool require)`.
#[unsafe(no_mangle)]
pub extern "C" fn ionic_dv_pd_set_sqcmb(
    _: *const VerbsPd,
    enable: u8,
    _: u8,
    require: u8,
) -> c_int {
    in_device_memory(enable, require)
}

/// `int ionic_dv_pd_set_rqcmb(struct ibv_pd *, bool enable, bool expdb, bool require)`.
#[unsafe(no_mangle)]
pub extern "C" fn ionic_dv_pd_set_rqcmb(
    _: *const VerbsPd,
    enable: u8,
    _: u8,
    require: u8,
) -> c_int {
    in_device_memory(enable, require)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;

    #[test]
    fn a_ring_is_told_with_its_mask_and_doorbell() {
        let ring = Ring { address: 0x7000, log_size: 16, log_stride: 5 };
        let told = told(ring, 0xab_cdef);
        assert_eq!((told.ptr, told.size, told.mask), (0x7000, 1 << 21, 0xffff));
        assert_eq!((told.depth_log2, told.stride_log2), (16, 5));
        assert_eq!(told.db_val, 0xab_cdef << 24);
    }

    #[test]
    fn there_is_one_pipeline_and_no_memory_of_the_device() {
        assert_eq!(
            [0, 1, 2, 3].map(|mask| ionic_dv_pd_set_udma_mask(null(), mask)),
            [libc::EINVAL, 0, libc::EINVAL, libc::EINVAL]
        );
        for set in [ionic_dv_pd_set_sqcmb, ionic_dv_pd_set_rqcmb] {
            assert_eq!(set(null(), 0, 0, 0), 0);
            assert_eq!((set(null(), 1, 1, 0), set(null(), 1, 0, 1)), (0, libc::EINVAL));
        }
    }
}
