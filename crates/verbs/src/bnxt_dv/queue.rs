//! CQs and QPs in memory of the program.

use super::doorbell::DbRegion;
use super::library::BnxtDv;
use super::sys::BnxtApi;
use super::umem::Umem;
use crate::call::{check, object};
use crate::safe::{Maker, Uses};
use crate::vendor::VendorError;
use crate::{CallError, Cq, CqOptions, CqParts, Pd, Qp, QpCaps, QpOptions, VerbsError, sys};
use nix::errno::Errno;
use std::sync::Arc;
use warpverbs_bnxt::dv::{CqInfo, CqInitAttr, MSN_ENTRY, OBJ_CQ, Obj, QpInitAttr, msn_entries};
use warpverbs_bnxt::slot::SLOT;

/// Bytes of a CQE.
const CQE: usize = 32;

fn failed(error: impl Into<VendorError>) -> VerbsError {
    Box::new(error.into()).into()
}

/// The request cannot be: before the library sees it.
fn invalid(call: &'static str) -> VerbsError {
    failed(CallError { call, errno: Errno::EINVAL })
}

impl Umem {
    /// A CQ of 2^`log_size` entries of 32 bytes at the beginning of this memory, and its number, by which
    /// doorbells name it. Programs read the entries themselves: [`Cq::poll`] is refused.
    pub fn cq(&self, log_size: u8) -> Result<(Cq, u32), VerbsError> {
        let (dv, call) = (self.dv(), "bnxt_re_dv_create_cq");
        let entries = 1u32.checked_shl(log_size.into()).ok_or_else(|| invalid(call))?;
        if entries as usize > self.region().len() / CQE {
            return Err(invalid(call));
        }
        let mut attr =
            CqInitAttr { umem_handle: self.handle(), ncqe: entries, ..CqInitAttr::default() };
        let destroy = ("bnxt_re_dv_destroy_cq", dv.api().bnxt_re_dv_destroy_cq);
        let uses: Uses = Some(Arc::new(self.clone()));
        let (create, context) = (dv.api().bnxt_re_dv_create_cq, dv.context().ptr().as_ptr());
        let make = |parts: CqParts| {
            // SAFETY: a live context, and memory that is registered.
            let cq = object(call, unsafe { create(context, &mut attr) })?;
            // Its events are told by this.
            // SAFETY: a new CQ, which nobody else knows.
            unsafe { (*cq.as_ptr()).cq_context = parts.user };
            Ok(cq)
        };
        let options = CqOptions::new(entries);
        // SAFETY: it makes a CQ of this context for the object, which holds the memory.
        let cq = unsafe { Cq::of_vendor(dv.context(), &options, (destroy, uses), make) }?;
        let number = number(dv, &cq).map_err(failed)?;
        Ok((cq, number))
    }
}

fn number(dv: &BnxtDv, cq: &Cq) -> Result<u32, CallError> {
    let mut info = CqInfo::default();
    let out = std::ptr::from_mut(&mut info) as u64;
    let mut obj = Obj { cq: [cq.ptr().as_ptr() as u64, out], ..Obj::default() };
    // SAFETY: a live CQ, and room for what is asked of it.
    let code = unsafe { (dv.api().bnxt_re_dv_init_obj)(&mut obj, OBJ_CQ) };
    check("bnxt_re_dv_init_obj", code)?;
    Ok(info.cqn)
}

/// Where a QP lies and what it works with.
#[derive(Clone, Debug)]
pub struct QpPlace {
    /// The send queue, and behind its slots the table of packet numbers: one of 8 bytes for every two slots,
    /// whose number is rounded up to a power of two.
    pub sq: Umem,
    /// Slots of the send queue.
    pub sq_slots: u32,
    /// Slots of a send.
    pub send_slots: u32,
    /// The receive queue, its slots, and those of a receive; none with an SRQ, or without receives.
    pub rq: Option<(Umem, u32, u32)>,
    /// Of sends and of receives.
    pub cqs: [Cq; 2],
    /// The doorbell page.
    pub doorbells: DbRegion,
    /// The number by which CQEs name the QP.
    pub handle: u64,
    /// Bytes of inline data of a send at most.
    pub inline_bytes: u32,
}

impl QpPlace {
    /// An RC QP of `pd` in this place, in the state RESET. Programs post to its queues themselves: posting by
    /// calls is refused.
    pub fn create(&self, pd: &Pd) -> Result<Qp, VerbsError> {
        let (dv, call) = (self.sq.dv().clone(), "bnxt_re_dv_create_qp");
        let table = msn_entries(self.sq_slots).ok_or_else(|| invalid(call))?;
        let sq_len = self.sq_slots as usize * SLOT + (table * MSN_ENTRY) as usize;
        let fits = |slots: u32, of: u32, bytes: usize, umem: &Umem| {
            of >= 3 && slots >= of && slots.is_multiple_of(of) && bytes <= umem.region().len()
        };
        let mut right = fits(self.sq_slots, self.send_slots, sq_len, &self.sq);
        if let Some((umem, slots, of)) = &self.rq {
            right &= fits(*slots, *of, *slots as usize * SLOT, umem);
        }
        if !right {
            return Err(invalid(call));
        }
        let caps = QpCaps {
            max_send_wr: self.sq_slots / self.send_slots,
            max_recv_wr: self.rq.as_ref().map_or(0, |(_, slots, of)| slots / of),
            max_send_sge: self.send_slots - 2,
            max_recv_sge: self.rq.as_ref().map_or(0, |(.., of)| of - 2),
            max_inline: self.inline_bytes,
        };
        let [send_cq, recv_cq] = self.cqs.clone();
        let options =
            QpOptions { send_cq: send_cq.clone(), recv_cq, srq: None, caps, signal_all: false };
        let mut attr = self.attr(&caps, sq_len as u32, table);
        let uses: Uses = Some(Arc::new(self.clone()));
        let api: &'static BnxtApi = dv.api();
        let make = |_: &mut sys::ibv_qp_init_attr| {
            // SAFETY: a live domain, and live objects of the same context.
            object(call, unsafe { (api.bnxt_re_dv_create_qp)(pd.ptr().as_ptr(), &mut attr) })
        };
        // SAFETY: it makes a QP of this domain for the object, which holds what it uses.
        unsafe { Qp::of_vendor(pd, &options, (Maker::Bnxt(api), uses), make) }
    }

    fn attr(&self, caps: &QpCaps, sq_len: u32, table: u32) -> QpInitAttr {
        let [send_cq, recv_cq] = [0, 1].map(|i: usize| self.cqs[i].ptr().as_ptr() as u64);
        let slots = |slots: u32| slots * SLOT as u32;
        let (rq_umem_handle, rq_slots, rq_wqe) = match &self.rq {
            Some((umem, slots, of)) => (umem.handle(), *slots, *of),
            None => (0, 0, 0),
        };
        QpInitAttr {
            qp_type: sys::IBV_QPT_RC,
            max_send_wr: caps.max_send_wr,
            max_recv_wr: caps.max_recv_wr,
            max_send_sge: caps.max_send_sge,
            max_recv_sge: caps.max_recv_sge,
            max_inline_data: caps.max_inline,
            send_cq,
            recv_cq,
            srq: 0,
            qp_handle: self.handle,
            dbr_handle: self.doorbells.handle(),
            sq_umem_handle: self.sq.handle(),
            sq_umem_offset: 0,
            sq_len,
            sq_slots: self.sq_slots,
            rq_umem_handle,
            rq_umem_offset: 0,
            sq_wqe_sz: slots(self.send_slots),
            sq_psn_sz: MSN_ENTRY,
            sq_npsn: table,
            rq_len: slots(rq_slots),
            rq_slots,
            rq_wqe_sz: slots(rq_wqe),
            comp_mask: 0,
        }
    }
}
