//! CQs and QPs in memory of the program.

use super::call::{Message, code, get, of_libibverbs, pointer};
use super::objects::{Room, VerbsContext, VerbsCq, VerbsPd, VerbsQp};
use super::within;
use crate::files;
use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, from_ref};
use warpverbs_bnxt::dv::{CqInfo, CqInitAttr, OBJ_CQ, OBJ_PD, Obj, PdInfo, QpInitAttr};
use warpverbs_uverbs::abi::{
    BnxtCreateCqResp, BnxtCreateQpResp, BnxtFixedCq, BnxtFixedQp, BnxtFixedReceives, FIXED, QpCap,
};
use warpverbs_uverbs::schema::{UHW_IN, UHW_OUT};

/// `IBV_QPT_RC`, and `IB_UVERBS_QPT_RC`.
const QPT_RC: u32 = 2;
/// Objects and methods of the kernel's interface: CQ, QP, and how each is made.
const CQ: u16 = 3;
const QP: u16 = 4;
const CREATE: u16 = 0;

/// `struct ibv_cq *bnxt_re_dv_create_cq(struct ibv_context *, struct bnxt_re_dv_cq_init_attr *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_create_cq(
    context: *const VerbsContext,
    attr: *const CqInitAttr,
) -> *mut VerbsCq {
    pointer(|| {
        // SAFETY: as the caller says.
        let at = unsafe { get(context) }?;
        // SAFETY: as the caller says.
        let attr = unsafe { get(attr) }?;
        let bytes = u64::from(attr.ncqe) * warpverbs_bnxt::cqe::CQE as u64;
        // SAFETY: as the caller says.
        let cq_va = unsafe { within(attr.umem_handle, attr.cq_umem_offset, bytes) }?;
        let driver = BnxtFixedCq { cq_va, cq_handle: attr.cq_handle, comp_mask: FIXED };
        let (mut made, mut entries) = (BnxtCreateCqResp::default(), 0u32);
        let (user, channel) = (std::ptr::null(), std::ptr::null());
        let cq = VerbsCq { context, channel, user, handle: 0, entries: attr.ncqe as c_int };
        let cq = Room::leak(cq);
        let message = Message::new(CQ, CREATE)
            .handle(0, 0)
            .with(1, 4, attr.ncqe.into())
            .with(2, 8, cq as u64)
            .with(4, 4, 0)
            .at(6, from_mut(&mut entries))
            .at(UHW_IN, from_ref(&driver))
            .at(UHW_OUT, from_mut(&mut made));
        match message.send(at.fd) {
            Ok(handle) => {
                // SAFETY: made above, and nobody else knows it.
                unsafe { (*cq).handle = handle };
                Ok(cq)
            }
            Err(errno) => {
                // SAFETY: made above, and nobody else knows it.
                unsafe { Room::free(cq) };
                Err(errno)
            }
        }
    })
}

/// `int bnxt_re_dv_destroy_cq(struct ibv_cq *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_destroy_cq(cq: *mut VerbsCq) -> c_int {
    type Destroy = unsafe extern "C" fn(*mut VerbsCq) -> c_int;
    // SAFETY: its type. It waits until events that were read are acknowledged.
    let destroyed = match unsafe { of_libibverbs::<Destroy>(c"ibv_cmd_destroy_cq") } {
        // SAFETY: a live CQ, as the caller says.
        Ok(destroy) => unsafe { destroy(cq) },
        Err(errno) => errno,
    };
    if destroyed == 0 {
        // SAFETY: made here, as the caller says, and destroyed once.
        unsafe { Room::free(cq) };
    }
    destroyed
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
        let out = out as *mut T;
        if out.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: room for it, as the caller says.
        unsafe { out.write(with(number)) };
        Ok(())
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
    pointer(|| {
        // SAFETY: as the caller says.
        let domain = unsafe { get(pd) }?;
        // SAFETY: as the caller says.
        let attr = unsafe { get(attr) }?;
        if attr.qp_type != QPT_RC || attr.srq != 0 || attr.comp_mask != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let (send_cq, recv_cq) = (attr.send_cq as *const VerbsCq, attr.recv_cq as *const VerbsCq);
        // SAFETY: as the caller says.
        let sends = unsafe { get(send_cq) }?.handle;
        // SAFETY: as the caller says.
        let arrivals = unsafe { get(recv_cq) }?.handle;
        // SAFETY: as the caller says.
        let driver = unsafe { queues(attr) }?;
        let cap = QpCap {
            max_send_wr: attr.max_send_wr,
            max_recv_wr: attr.max_recv_wr,
            max_send_sge: attr.max_send_sge,
            max_recv_sge: attr.max_recv_sge,
            max_inline_data: attr.max_inline_data,
        };
        let (mut made, mut room, mut number) = (BnxtCreateQpResp::default(), cap, 0u32);
        let qp = Room::leak(VerbsQp {
            context: domain.context,
            user: std::ptr::null(),
            pd,
            send_cq,
            recv_cq,
            srq: std::ptr::null(),
            handle: 0,
            number: 0,
            state: 0,
            kind: QPT_RC,
        });
        let message = Message::new(QP, CREATE)
            .handle(0, 0)
            .handle(2, domain.handle)
            .handle(4, sends)
            .handle(5, arrivals)
            .with(7, 8, qp as u64)
            .at(8, from_ref(&cap))
            .with(9, 8, QPT_RC.into())
            .at(13, from_mut(&mut room))
            .at(14, from_mut(&mut number))
            .at(UHW_IN, from_ref(&driver))
            .at(UHW_OUT, from_mut(&mut made));
        // SAFETY: as the caller says.
        match message.send(unsafe { get(domain.context) }?.fd) {
            Ok(handle) => {
                // SAFETY: made above, and nobody else knows it.
                let new = unsafe { &mut *qp };
                // SAFETY: a live value, which the device has written.
                (new.handle, new.number) = (handle, unsafe { (&raw const number).read_volatile() });
                Ok(qp)
            }
            Err(errno) => {
                // SAFETY: made above, and nobody else knows it.
                unsafe { Room::free(qp) };
                Err(errno)
            }
        }
    })
}

/// `int bnxt_re_dv_destroy_qp(struct ibv_qp *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_destroy_qp(qp: *mut VerbsQp) -> c_int {
    type Destroy = unsafe extern "C" fn(*mut VerbsQp) -> c_int;
    // SAFETY: its type. It waits until events that were read are acknowledged.
    let destroyed = match unsafe { of_libibverbs::<Destroy>(c"ibv_cmd_destroy_qp") } {
        // SAFETY: a live QP, as the caller says.
        Ok(destroy) => unsafe { destroy(qp) },
        Err(errno) => errno,
    };
    if destroyed == 0 {
        // SAFETY: made here, as the caller says, and destroyed once.
        unsafe { Room::free(qp) };
    }
    destroyed
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
    /// Words of `struct ibv_modify_qp`, which libibverbs fills.
    const COMMAND: usize = 15;
    type Modify = unsafe extern "C" fn(*mut VerbsQp, *mut c_void, c_int, *mut u64, usize) -> c_int;
    if (kind, value) != (0, 0) {
        return libc::EOPNOTSUPP;
    }
    let mut command = [0u64; COMMAND];
    // SAFETY: its type.
    match unsafe { of_libibverbs::<Modify>(c"ibv_cmd_modify_qp") } {
        // SAFETY: a live QP and attributes, as the caller says, and room for the command.
        Ok(modify) => unsafe { modify(qp, attr, mask, command.as_mut_ptr(), 8 * COMMAND) },
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
