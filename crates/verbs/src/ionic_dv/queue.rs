//! A QP and its CQs in memory of the program.

use super::domain::{Domain, failed};
use super::library::IonicDv;
use super::sys::CQ_OF_DOMAIN;
use super::sys::IonicApi;
use crate::call::{check, object};
use crate::safe::{Maker, Uses};
use crate::sys::{extension_op, ibv_cq_init_attr_ex, zeroed};
use crate::vendor::VendorError;
use crate::{CallError, Cq, CqOptions, CqParts, Pd, Qp, QpCaps, QpOptions, VerbsError};
use nix::errno::Errno;
use std::ptr::NonNull;
use std::sync::Arc;
use warpverbs_ionic::body::WQE;
use warpverbs_ionic::cqe::CQE;
use warpverbs_ionic::dv::{DvQp, DvQueue, TAG_CQ, TAG_RQ, TAG_SQ, cqes_to_ask, wqes_to_ask};
use warpverbs_mem::{Kind, Region};

/// Bytes ahead of the entries of a WQE, and of one entry.
const HEAD: u32 = 32;
const ENTRY: u32 = 16;

/// Where a QP and its CQs lie. All memory begins on pages, and is of whole pages.
#[derive(Clone, Debug)]
pub struct QpPlace {
    /// The send queue: 2^`log_sq` WQEs of 64 bytes, of which one stays free.
    pub sq: Region,
    /// log2 of its WQEs, from 6 on.
    pub log_sq: u8,
    /// The receive queue, log2 of its receives, and of the bytes of one; `None` without receives.
    pub rq: Option<(Region, u8, u8)>,
    /// Completions of sends and of receives, and log2 of the CQEs of 32 bytes, from 7 on. They are zeroed.
    pub cqs: [(Region, u8); 2],
    /// Bytes of inline data of a send at most, up to 32.
    pub inline_bytes: u32,
}

/// The request cannot be: before the library sees it.
fn invalid(call: &'static str) -> VerbsError {
    failed(CallError { call, errno: Errno::EINVAL })
}

/// The first 2^`log_bytes` bytes of `region`.
fn part(region: &Region, log_bytes: u8, call: &'static str) -> Result<Region, VerbsError> {
    region.slice(0, 1 << log_bytes).map_err(|_| invalid(call))
}

/// The ring is as it was meant, where it was meant.
fn is_as_meant(
    what: &'static str,
    told: &DvQueue,
    (region, log, log_stride): (&Region, u8, u8),
) -> Result<(), VerbsError> {
    let tell =
        |address: u64, log, stride| format!("2^{log} entries of 2^{stride} bytes at {address:#x}");
    let found = tell(told.ptr, told.depth_log2, told.stride_log2);
    let expected = tell(region.addr(), log, log_stride);
    if found == expected {
        return Ok(());
    }
    Err(failed(VendorError::Layout { of: "libionic", what, found, expected }))
}

/// A CQ of `log` CQEs in `region`. libionic reads and cleans CQEs itself when a QP is reset or destroyed.
fn create_cq(domain: &Domain, pd: &Pd, (region, log): (&Region, u8)) -> Result<Cq, VerbsError> {
    let call = "ibv_create_cq_ex";
    if let kind @ Kind::Cuda(_) = region.kind() {
        let why = "libionic reads CQEs by the CPU when a QP is reset".to_owned();
        return Err(failed(VendorError::NotReached { kind: kind.to_string(), why }));
    }
    let entries = cqes_to_ask(log).ok_or_else(|| invalid(call))?;
    let memory = part(region, log + CQE.ilog2() as u8, call)?;
    let context = pd.context();
    let create = |parts: CqParts| {
        let create = extension_op!(context.ptr().as_ptr(), create_cq_ex);
        let create = create.ok_or(CallError::absent(call))?;
        let mut attr: ibv_cq_init_attr_ex = zeroed();
        (attr.cqe, attr.comp_vector) = (entries, parts.vector as u32);
        (attr.cq_context, attr.channel) = (parts.user, parts.channel);
        (attr.comp_mask, attr.parent_domain) = (CQ_OF_DOMAIN, domain.ptr());
        // SAFETY: a live context, and a live domain of it.
        object(call, unsafe { create(context.ptr().as_ptr(), &mut attr) }).map(NonNull::cast)
    };
    let options = CqOptions::new(entries);
    let uses: Uses = Some(Arc::new((domain.clone(), memory.clone())));
    let destroy = ("ibv_destroy_cq", context.api().ibv_destroy_cq);
    domain.giving(vec![(TAG_CQ, memory)], || {
        // SAFETY: a CQ of these parts, for the object, which holds what it uses.
        unsafe { Cq::of_vendor(context, &options, (destroy, uses), create) }
    })
}

impl QpPlace {
    /// An RC QP of `pd` in this place, in the state RESET, and the numbers of its CQs, by which doorbells name them.
    /// Of a device with two pipelines, it goes by that whose `turn` it is. Programs post to its queues themselves:
    /// posting by calls is refused.
    pub fn create(&self, dv: &IonicDv, pd: &Pd, turn: u32) -> Result<(Qp, [u32; 2]), VerbsError> {
        let domain = Domain::new(dv, pd, turn)?;
        let [sent, received] = &self.cqs;
        let send_cq = create_cq(&domain, pd, (&sent.0, sent.1))?;
        let recv_cq = create_cq(&domain, pd, (&received.0, received.1))?;
        let qp = self.create_qp(&domain, pd, [&send_cq, &recv_cq])?;
        let api = dv.api();
        self.check(api, &qp)?;
        // SAFETY: a live QP.
        let pipeline = unsafe { (api.ionic_dv_qp_get_udma_idx)(qp.ptr().as_ptr()) };
        let number = |cq: &Cq, (region, log): &(Region, u8)| {
            let mut told = DvQueue::default();
            // SAFETY: a live CQ, and room for the answer.
            let code = unsafe { (api.ionic_dv_get_cq)(&mut told, cq.ptr().as_ptr(), pipeline) };
            check("ionic_dv_get_cq", code).map_err(failed)?;
            is_as_meant("a CQ", &told, (region, *log, CQE.ilog2() as u8))?;
            Ok::<_, VerbsError>((told.db_val >> 24) as u32 & 0xff_ffff)
        };
        let numbers = [number(&send_cq, sent)?, number(&recv_cq, received)?];
        Ok((qp, numbers))
    }

    fn create_qp(&self, domain: &Domain, pd: &Pd, cqs: [&Cq; 2]) -> Result<Qp, VerbsError> {
        let (call, log_wqe) = ("ibv_create_qp", WQE.ilog2() as u8);
        let asked = |log, stride| wqes_to_ask(log, stride).ok_or_else(|| invalid(call));
        let mut memory = vec![(TAG_SQ, part(&self.sq, self.log_sq + log_wqe, call)?)];
        let mut caps = QpCaps {
            max_send_wr: asked(self.log_sq, log_wqe)?,
            max_recv_wr: 1,
            max_send_sge: (WQE as u32 - HEAD) / ENTRY,
            max_recv_sge: 1,
            max_inline: self.inline_bytes.min(WQE as u32 - HEAD),
        };
        if let Some((region, log, stride)) = &self.rq {
            // As many as fill it: lists of lengths, which some devices write of more than two, would take more.
            (caps.max_recv_wr, caps.max_recv_sge) =
                (asked(*log, *stride)?, ((1u32 << stride) - HEAD) / ENTRY);
            memory.push((TAG_RQ, part(region, log + stride, call)?));
        }
        let [send_cq, recv_cq] = cqs.map(Cq::clone);
        let options = QpOptions { send_cq, recv_cq, srq: None, caps, signal_all: false };
        let uses: Uses = Some(Arc::new((domain.clone(), memory.clone())));
        let create = pd.context().api().ibv_create_qp;
        domain.giving(memory, || {
            let make = |attr: &mut crate::sys::ibv_qp_init_attr| {
                // SAFETY: a live domain, and live CQs of it.
                object(call, unsafe { create(domain.ptr(), attr) })
            };
            // SAFETY: it makes a QP beside this domain for the object, which holds what it uses.
            unsafe { Qp::of_vendor(pd, &options, (Maker::Placed, uses), make) }
        })
    }

    /// The QP's queues are where they were meant.
    fn check(&self, api: &IonicApi, qp: &Qp) -> Result<(), VerbsError> {
        let mut told = DvQp::default();
        // SAFETY: a live QP, and room for the answer.
        let code = unsafe { (api.ionic_dv_get_qp)(&mut told, qp.ptr().as_ptr()) };
        check("ionic_dv_get_qp", code).map_err(failed)?;
        is_as_meant("the send queue", &told.sq, (&self.sq, self.log_sq, WQE.ilog2() as u8))?;
        match &self.rq {
            Some((region, log, stride)) => {
                is_as_meant("the receive queue", &told.rq, (region, *log, *stride))
            }
            None => Ok(()),
        }
    }
}
