//! CQs and QPs in memory of the program.

use super::within;
use crate::dv::call::{Place, at, code, get, of_libibverbs, pointer, put};
use crate::dv::objects::{QpInit, VerbsContext, VerbsCq, VerbsPd, VerbsQp};
use crate::files;
use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null, null_mut};
use warpverbs_bnxt::dv::{CqInfo, CqInitAttr, OBJ_CQ, OBJ_PD, Obj, PdInfo, QpInitAttr};
use warpverbs_uverbs::abi::{BnxtFixedCq, BnxtFixedQp, BnxtFixedReceives, FIXED};

/// `IBV_QPT_RC`.
const QPT_RC: u32 = 2;
/// Objects of the kernel's interface.
const CQ: u16 = 3;
const QP: u16 = 4;

type CreateCq = unsafe extern "C" fn(
    *const VerbsContext,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
) -> *mut VerbsCq;
type CreateQp = unsafe extern "C" fn(*const VerbsPd, *mut QpInit) -> *mut VerbsQp;

/// The result of `work`; `None`, with `errno`, if it fails.
fn prepared<T>(work: impl FnOnce() -> Result<T, c_int>) -> Option<T> {
    let made = pointer(|| work().map(|value| Box::into_raw(Box::new(value))));
    // SAFETY: null, or from the box above.
    (!made.is_null()).then(|| *unsafe { Box::from_raw(made) })
}

/// `struct ibv_cq *bnxt_re_dv_create_cq(struct ibv_context *, struct bnxt_re_dv_cq_init_attr *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_create_cq(
    context: *const VerbsContext,
    attr: *const CqInitAttr,
) -> *mut VerbsCq {
    let prepared = prepared(|| {
        // SAFETY: as the caller says.
        unsafe { get(context) }?;
        // SAFETY: as the caller says.
        let attr = unsafe { get(attr) }?;
        let bytes = u64::from(attr.ncqe) * warpverbs_bnxt::cqe::CQE as u64;
        // SAFETY: as the caller says.
        let cq_va = unsafe { within(attr.umem_handle, attr.cq_umem_offset, bytes) }?;
        let driver = BnxtFixedCq { cq_va, cq_handle: attr.cq_handle, comp_mask: FIXED };
        // SAFETY: its type.
        let create = unsafe { of_libibverbs::<CreateCq>(c"ibv_create_cq") }?;
        Ok((driver, attr.ncqe, create))
    });
    let Some((driver, entries, create)) = prepared else { return null_mut() };
    let request = (from_ref(&driver) as u64, size_of::<BnxtFixedCq>() as u16);
    let place = Place { object: CQ, request, entries: Some(entries) };
    // SAFETY: a live context.
    at(place, || unsafe { create(context, 1, null(), null(), 0) })
}

/// `int bnxt_re_dv_destroy_cq(struct ibv_cq *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_destroy_cq(cq: *mut VerbsCq) -> c_int {
    // SAFETY: its type.
    match unsafe { of_libibverbs::<unsafe extern "C" fn(*mut VerbsCq) -> c_int>(c"ibv_destroy_cq") }
    {
        // SAFETY: a live CQ, as the caller says.
        Ok(destroy) => unsafe { destroy(cq) },
        Err(errno) => errno,
    }
}

/// `int bnxt_re_dv_init_obj(struct bnxt_re_dv_obj *, uint64_t)`: of CQs and protection domains, whoever has
/// made them.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_init_obj(obj: *const Obj, kinds: u64) -> c_int {
    /// # Safety
    /// Live objects, or null, and room for the answer.
    unsafe fn answer<T>(
        (context, handle): (*const VerbsContext, u32),
        out: u64,
        with: impl FnOnce(u32) -> T,
    ) -> Result<(), c_int> {
        // SAFETY: as the caller says.
        let fd = unsafe { get(context) }?.fd;
        let number = files::number(fd, handle).ok_or(libc::EINVAL)?;
        // SAFETY: null, or room for it, as the caller says.
        unsafe { put(out as *mut T, with(number)) }
    }
    code(|| {
        // SAFETY: as the caller says.
        let obj = unsafe { get(obj) }?;
        if kinds & !(OBJ_CQ | OBJ_PD) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if kinds & OBJ_CQ != 0 {
            let cqe_size = warpverbs_bnxt::cqe::CQE as u32;
            // SAFETY: as the caller says.
            let cq = unsafe { get(obj.cq[0] as *const VerbsCq) }?;
            let with = |cqn| CqInfo { cqn, cqe_size, comp_mask: 0 };
            // SAFETY: as the caller says.
            unsafe { answer((cq.context, cq.handle), obj.cq[1], with) }?;
        }
        if kinds & OBJ_PD != 0 {
            // SAFETY: as the caller says.
            let pd = unsafe { get(obj.pd[0] as *const VerbsPd) }?;
            let with = |pdn| PdInfo { pdn, ..PdInfo::default() };
            // SAFETY: as the caller says.
            unsafe { answer((pd.context, pd.handle), obj.pd[1], with) }?;
        }
        Ok(())
    })
}

/// The driver's part of a request for a QP.
#[repr(C)]
struct Queues {
    qp: BnxtFixedQp,
    receives: BnxtFixedReceives,
}

/// # Safety
/// Handles in `attr` are of memory that is registered.
unsafe fn queues(attr: &QpInitAttr) -> Result<Queues, c_int> {
    let slot = warpverbs_bnxt::slot::SLOT as u32;
    let table = attr.sq_npsn.checked_mul(attr.sq_psn_sz).ok_or(libc::EINVAL)?;
    let slots = attr.sq_slots.checked_mul(slot).ok_or(libc::EINVAL)?;
    // The device takes the table to be directly behind the slots, and programs at the end.
    if attr.sq_psn_sz != warpverbs_bnxt::dv::MSN_ENTRY
        || slots.checked_add(table) != Some(attr.sq_len)
    {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller says.
    let qpsva = unsafe { within(attr.sq_umem_handle, attr.sq_umem_offset, attr.sq_len.into()) }?;
    let (mut qprva, mut receives) = (0, BnxtFixedReceives::default());
    if attr.rq_umem_handle != 0 && attr.rq_slots > 0 {
        let bytes = u64::from(attr.rq_slots) * u64::from(slot);
        // SAFETY: as the caller says.
        qprva = unsafe { within(attr.rq_umem_handle, attr.rq_umem_offset, bytes) }?;
        receives = BnxtFixedReceives { slots: attr.rq_slots, each: attr.rq_wqe_sz / slot };
    }
    let (sq_slots, sq_npsn) = (attr.sq_slots, attr.sq_npsn);
    let qp_handle = attr.qp_handle;
    let qp = BnxtFixedQp { qpsva, qprva, qp_handle, comp_mask: FIXED, sq_slots, sq_npsn };
    Ok(Queues { qp, receives })
}

/// `struct ibv_qp *bnxt_re_dv_create_qp(struct ibv_pd *, struct bnxt_re_dv_qp_init_attr *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_create_qp(
    pd: *const VerbsPd,
    attr: *const QpInitAttr,
) -> *mut VerbsQp {
    let prepared = prepared(|| {
        // SAFETY: as the caller says.
        unsafe { get(pd) }?;
        // SAFETY: as the caller says.
        let attr = unsafe { get(attr) }?;
        if attr.qp_type != QPT_RC || attr.srq != 0 || attr.comp_mask != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if attr.send_cq == 0 || attr.recv_cq == 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: as the caller says.
        let driver = unsafe { queues(attr) }?;
        let init = QpInit {
            user: null(),
            send_cq: attr.send_cq as *const VerbsCq,
            recv_cq: attr.recv_cq as *const VerbsCq,
            srq: null(),
            // Of the driver's own rings.
            cap: [1, 1, 1, 1, 0],
            kind: QPT_RC,
            signal_all: 0,
        };
        // SAFETY: its type.
        let create = unsafe { of_libibverbs::<CreateQp>(c"ibv_create_qp") }?;
        Ok((driver, init, create))
    });
    let Some((driver, mut init, create)) = prepared else { return null_mut() };
    let request = (from_ref(&driver) as u64, size_of::<Queues>() as u16);
    let place = Place { object: QP, request, entries: None };
    // SAFETY: a live domain, and live CQs.
    at(place, || unsafe { create(pd, &mut init) })
}

/// `int bnxt_re_dv_destroy_qp(struct ibv_qp *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_destroy_qp(qp: *mut VerbsQp) -> c_int {
    // SAFETY: its type.
    match unsafe { of_libibverbs::<unsafe extern "C" fn(*mut VerbsQp) -> c_int>(c"ibv_destroy_qp") }
    {
        // SAFETY: a live QP, as the caller says.
        Ok(destroy) => unsafe { destroy(qp) },
        Err(errno) => errno,
    }
}

/// `int bnxt_re_dv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int, uint32_t, uint32_t)`. The last two,
/// of which no public source says what they are, have to be 0.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_modify_qp(
    qp: *mut VerbsQp,
    attr: *mut c_void,
    mask: c_int,
    kind: u32,
    value: u32,
) -> c_int {
    type Modify = unsafe extern "C" fn(*mut VerbsQp, *mut c_void, c_int) -> c_int;
    if (kind, value) != (0, 0) {
        return libc::EOPNOTSUPP;
    }
    // SAFETY: its type.
    match unsafe { of_libibverbs::<Modify>(c"ibv_modify_qp") } {
        // SAFETY: a live QP and attributes, as the caller says.
        Ok(modify) => unsafe { modify(qp, attr, mask) },
        Err(errno) => errno,
    }
}

/// `int bnxt_re_dv_modify_qp_udp_sport(struct ibv_qp *, uint16_t)`: the software NIC chooses the ports itself.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_modify_qp_udp_sport(_: *mut VerbsQp, _: u16) -> c_int {
    libc::EOPNOTSUPP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_receives_lies_behind_the_queue_pair() {
        let offset = std::mem::offset_of!(Queues, receives);
        assert_eq!((offset, size_of::<Queues>()), (size_of::<BnxtFixedQp>(), 48));
    }
}
