//! ionic, as libionic of rdma-core has it from v61 on: protocol 2, one pipeline, no queues in the device's
//! memory. No public source has the kernel's side; what is answered is what the library goes on with.

use crate::Refusal;
use crate::abi::{
    IONIC_CQES, IONIC_RECEIVES, IONIC_SENDS, IonicAhResp, IonicCqReq, IonicCqResp, IonicCtxResp,
    IonicQdesc, IonicQpReq, IonicQpResp, QpCap, take,
};
use crate::call::Call;
use crate::device::{CqRequest, QpRequest, Queues};
use warpverbs_rdma::Service;
use zerocopy::IntoBytes;

/// `IB_UVERBS_QPT_RC`, `IB_UVERBS_QPT_UD`.
const QP_RC: u64 = 2;
const QP_UD: u64 = 4;
/// log2 of the bytes of a page.
const PAGE: u32 = 12;
/// log2 of the bytes of a CQE.
const LOG_CQE: u8 = 5;
/// log2 of the bytes of the shortest and of the longest WQE.
const LOG_WQE: [u8; 2] = [6, 9];
/// log2 of the entries of a ring at most: indexes have 16 bits, and send queues of the NIC 2^15 entries.
const LOG_CQES: u8 = 16;
const LOG_WQES: u8 = 15;
/// Opcodes of protocol 2 are below.
const OPCODES: u8 = 0xa1;
/// The one pipeline, of two that a device may have.
const PIPELINE: u8 = 1;

pub(super) fn open(doorbells: u64) -> Vec<u8> {
    let answer = IonicCtxResp {
        page_shift: PAGE,
        dbell_offset: doorbells,
        version: 2,
        qp_opcodes: OPCODES,
        sq_qtype: IONIC_SENDS,
        rq_qtype: IONIC_RECEIVES,
        cq_qtype: IONIC_CQES,
        max_stride: LOG_WQE[1],
        udma_count: 1,
        ..Default::default()
    };
    answer.as_bytes().to_vec()
}

/// A ring whose parts agree, of entries of 2^`strides` bytes.
fn ring(
    what: &str,
    ring: IonicQdesc,
    strides: [u8; 2],
    max_depth: u8,
) -> Result<IonicQdesc, Refusal> {
    let IonicQdesc { size, mask, depth_log2: depth, stride_log2: stride, .. } = ring;
    let [min, max] = strides;
    if !(min..=max).contains(&stride) || depth > max_depth {
        let why = format!(
            "{what} of 2^{depth} entries of 2^{stride} bytes, expected 2^{max_depth} at most \
             of 2^{min} to 2^{max}"
        );
        return Err(Refusal::invalid(why));
    }
    let (bytes, last) = (1u32 << (depth + stride), (1u32 << depth) - 1);
    if (size, u32::from(mask)) != (bytes, last) {
        let why =
            format!("{what} of {size} bytes with mask {mask:#x}, expected {bytes} and {last:#x}");
        return Err(Refusal::invalid(why));
    }
    Ok(ring)
}

fn pipeline(mask: u8) -> Result<(), Refusal> {
    if mask != PIPELINE {
        return Err(Refusal::invalid(format!("udma_mask is {mask:#x}, expected {PIPELINE:#x}")));
    }
    Ok(())
}

pub(super) fn cq(call: &Call, common: CqRequest) -> Result<CqRequest, Refusal> {
    let driver: IonicCqReq = take(call.driver_input(size_of::<IonicCqReq>())?);
    pipeline(driver.udma_mask)?;
    let cq = ring("a CQ", driver.cq[0], [LOG_CQE; 2], LOG_CQES)?;
    Ok(CqRequest { log_size: cq.depth_log2, cqe_size: 1 << LOG_CQE, buf: cq.addr, ..common })
}

pub(super) fn cq_made(cqn: u32) -> Vec<u8> {
    let answer = IonicCqResp { cqid: [cqn, 0], udma_mask: PIPELINE, rsvd: [0; 7] };
    answer.as_bytes().to_vec()
}

pub(super) fn service(kind: u64) -> Result<Service, Refusal> {
    match kind {
        QP_RC => Ok(Service::Connected),
        QP_UD => Ok(Service::Datagram),
        kind => {
            let has = "reliable connections (2) and datagrams (4) alone";
            Err(Refusal::unsupported(format!("a QP of type {kind}, ionic has {has}")))
        }
    }
}

pub(super) fn ah(ahid: u32) -> Vec<u8> {
    IonicAhResp { ahid, pad: 0 }.as_bytes().to_vec()
}

pub(super) fn qp(call: &Call, service: Service) -> Result<QpRequest, Refusal> {
    let cap: QpCap = take(call.bytes(8).unwrap_or(&[]));
    let driver: IonicQpReq = take(call.driver_input(size_of::<IonicQpReq>())?);
    pipeline(driver.udma_mask)?;
    if (driver.sq_spec, driver.rq_spec) != (0, 0) {
        let why = format!(
            "lists of entries of forms {} and {}, none but 0 was offered",
            driver.sq_spec, driver.rq_spec
        );
        return Err(Refusal::unsupported(why));
    }
    let sq = ring("a send queue", driver.sq, LOG_WQE, LOG_WQES)?;
    let rq = ring("a receive queue", driver.rq, LOG_WQE, LOG_WQES)?;
    Ok(QpRequest {
        service,
        buf: rq.addr,
        dbr: 0,
        log_sq: Some(sq.depth_log2),
        rq: Some((rq.depth_log2, rq.stride_log2)),
        user_index: None,
        scatter_requests: false,
        scatter_receives: false,
        cap,
        queues: Queues::Ionic { sq: sq.addr, log_wqe: sq.stride_log2 },
    })
}

pub(super) fn qp_made(qpid: u32) -> Vec<u8> {
    // Neither queue lies in the device's memory, which the library has asked for.
    IonicQpResp { qpid, ..Default::default() }.as_bytes().to_vec()
}
