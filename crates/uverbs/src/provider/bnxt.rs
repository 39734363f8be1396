//! bnxt_re, as libbnxt_re has it: static WQEs of 128 bytes, packet numbers of 16 bytes. No public source has the kernel's side; sizes are those that the library computes.
//!
//! A program may also say itself what its queues are (`FIXED`), as GPU libraries do: those have WQEs of any
//! number of slots and the table of messages of a Thor 2.

use crate::abi::{
    BnxtCreateCq, BnxtCreateCqResp, BnxtCreateQp, BnxtCreateQpResp, BnxtCreateSrq,
    BnxtCreateSrqResp, BnxtFixedCq, BnxtFixedQp, BnxtFixedReceives, BnxtPdResp, BnxtUcontextResp,
    FIXED, QpCap, UCONTEXT_HAS_CHIP, UCONTEXT_HAS_MODE, take,
};
use crate::call::Call;
use crate::device::{BnxtFixed, CqRequest, Profile, QpRequest, Queues, ResizeRequest, SrqRequest};
use crate::schema::UHW_IN;
use crate::{BnxtLibrary, Driver, Refusal};
use warpverbs_rdma::Service;
use zerocopy::IntoBytes;

/// `IB_UVERBS_QPT_RC`, `IB_UVERBS_QPT_UD`.
const QP_RC: u64 = 2;
const QP_UD: u64 = 4;
/// Bytes of a CQE.
const CQE: u32 = 32;
/// log2 of the bytes of a WQE, whatever it holds.
const LOG_WQE: u8 = 7;
/// The library leaves so many WQEs of a send queue free.
const GAP: u32 = 128;
/// Bytes that a WQE holds at most in place of entries.
const MAX_INLINE: u32 = 96;
/// Bytes of a slot.
const SLOT: u32 = warpverbs_bnxt::slot::SLOT as u32;
/// Slots of a WQE at least that names memory, and of a receive at most.
const MIN_SLOTS: u32 = 3;
const MOST_SLOTS: u32 = 64;
/// log2 of the slots of a queue at most.
const LOG_SLOTS: u32 = 16;
/// 57508: the library takes it for the generation whose packet numbers have 16 bytes.
const CHIP: u32 = 0x1750;

/// The library that opens a context, and the answer.
pub(super) fn open(call: &Call, profile: &Profile) -> (BnxtLibrary, Vec<u8>) {
    // Libraries from v50 on say what they understand, and ring other doorbells.
    let says = call.bytes(UHW_IN).is_some_and(|bytes| !bytes.is_empty());
    let library = if says { BnxtLibrary::Current } else { BnxtLibrary::Early };
    let answer = BnxtUcontextResp {
        max_qp: profile.max_qp,
        pg_size: 4096,
        cqe_sz: CQE,
        max_cqd: profile.max_cqe - 1,
        comp_mask: UCONTEXT_HAS_CHIP | UCONTEXT_HAS_MODE,
        chip_id0: CHIP,
        ..Default::default()
    };
    (library, answer.as_bytes().to_vec())
}

pub(super) fn pd(pdid: u32, doorbells: u64) -> Vec<u8> {
    let dbr = [doorbells as u32, (doorbells >> 32) as u32];
    BnxtPdResp { pdid, dpi: 0, dbr }.as_bytes().to_vec()
}

pub(super) fn cq(call: &Call, common: CqRequest) -> Result<CqRequest, Refusal> {
    let driver: BnxtFixedCq = take(call.driver_input(size_of::<BnxtCreateCq>())?);
    let request = CqRequest { cqe_size: CQE, buf: driver.cq_va, ..common };
    if driver.comp_mask & FIXED == 0 {
        return Ok(request);
    }
    let entries = call.word(1);
    if !entries.is_power_of_two() {
        let why = format!("a CQ of {entries} entries, expected a power of two");
        return Err(Refusal::invalid(why));
    }
    // One entry is written over and over, and nobody says that it was read.
    let collapsed = entries == 1;
    let ignore_overrun = request.ignore_overrun || collapsed;
    let (driver, log_size) = (common.driver.of_gpus(), entries.ilog2() as u8);
    Ok(CqRequest { driver, log_size, collapsed, ignore_overrun, ..request })
}

pub(super) fn cq_made(cqid: u32) -> Vec<u8> {
    // The first lap of a CQ has phase 1: its memory is zero.
    BnxtCreateCqResp { cqid, phase: 1, ..Default::default() }.as_bytes().to_vec()
}

pub(super) fn resize(call: &Call, entries: u32) -> Result<ResizeRequest, Refusal> {
    // `struct bnxt_re_resize_cq_req`, which older headers do not have.
    let buf: u64 = take(call.driver_input(size_of::<u64>())?);
    Ok(ResizeRequest { log_size: entries.ilog2() as u8, cqe_size: CQE, buf })
}

pub(super) fn srq(call: &Call, own: Driver, entries: u32) -> Result<SrqRequest, Refusal> {
    let driver: BnxtCreateSrq = take(call.driver_input(size_of::<BnxtCreateSrq>())?);
    let log_size = entries.ilog2() as u8;
    let (log_stride, buf) = (LOG_WQE, driver.srqva);
    Ok(SrqRequest { driver: own, ring: true, log_size, log_stride, buf, dbr: 0 })
}

pub(super) fn srq_made(srqid: u32) -> Vec<u8> {
    BnxtCreateSrqResp { srqid }.as_bytes().to_vec()
}

pub(super) fn service(kind: u64) -> Result<Service, Refusal> {
    match kind {
        QP_RC => Ok(Service::Connected),
        QP_UD => Ok(Service::Datagram),
        kind => {
            let has = "reliable connections (2) and datagrams (4) alone";
            Err(Refusal::unsupported(format!("a QP of type {kind}, bnxt_re has {has}")))
        }
    }
}

pub(super) fn qp(
    call: &Call,
    library: BnxtLibrary,
    service: Service,
    profile: &Profile,
) -> Result<QpRequest, Refusal> {
    let cap: QpCap = take(call.bytes(8).unwrap_or(&[]));
    let driver: BnxtCreateQp = take(call.driver_input(size_of::<BnxtCreateQp>())?);
    let (max_wr, max_sge) = (profile.max_qp_wr, profile.max_sge);
    for (what, value, max) in [
        ("sends", cap.max_send_wr, max_wr),
        ("receives", cap.max_recv_wr, max_wr),
        ("entries of a send", cap.max_send_sge, max_sge),
        ("entries of a receive", cap.max_recv_sge, max_sge),
        ("bytes in a WQE", cap.max_inline_data, MAX_INLINE),
    ] {
        if value > max {
            return Err(Refusal::invalid(format!("{value} {what}, expected {max} at most")));
        }
    }
    // Libraries do not always initialise the mask, which means nothing with static WQEs; theirs is the
    // shorter request.
    let bytes = call.bytes(UHW_IN).unwrap_or(&[]);
    let fixed: BnxtFixedQp = take(bytes);
    if fixed.comp_mask & FIXED != 0 && bytes.len() > size_of::<BnxtFixedQp>() {
        return fixed_qp(call, &fixed, service, cap);
    }
    let log = |entries: u32| entries.next_power_of_two().ilog2() as u8;
    let has_srq = call.handle(3).is_some();
    Ok(QpRequest {
        service,
        buf: driver.qprva,
        dbr: 0,
        log_sq: Some(log(cap.max_send_wr + 1 + GAP)),
        rq: (!has_srq).then(|| (log(cap.max_recv_wr + 1), LOG_WQE)),
        user_index: None,
        scatter_requests: false,
        scatter_receives: false,
        cap,
        queues: Queues::Bnxt { sq: driver.qpsva, handle: driver.qp_handle, library, fixed: None },
    })
}

/// A QP whose program says what its queues are.
fn fixed_qp(
    call: &Call,
    driver: &BnxtFixedQp,
    service: Service,
    cap: QpCap,
) -> Result<QpRequest, Refusal> {
    let &BnxtFixedQp { qpsva: sq, qprva: buf, qp_handle: handle, sq_slots: slots, .. } = driver;
    let (fewest, most) = (MIN_SLOTS, 1 << LOG_SLOTS);
    if !(fewest..=most).contains(&slots) {
        let why = format!("a send queue of {slots} slots, expected {fewest} to {most}");
        return Err(Refusal::invalid(why));
    }
    let entries = warpverbs_bnxt::dv::msn_entries(slots).unwrap_or(0);
    if driver.sq_npsn != entries {
        let why = format!(
            "{} entries of packet numbers beside {slots} slots, expected {entries}",
            driver.sq_npsn
        );
        return Err(Refusal::invalid(why));
    }
    let (rq, receive_slots) = receives(call)?;
    let log_packets = entries.ilog2() as u8;
    let fixed = Some(BnxtFixed { slots, log_packets, receive_slots });
    let library = BnxtLibrary::Current;
    Ok(QpRequest {
        service,
        buf,
        dbr: 0,
        // WQEs of three slots, the shortest that name memory.
        log_sq: Some((slots / MIN_SLOTS).next_power_of_two().ilog2() as u8),
        rq,
        user_index: None,
        scatter_requests: false,
        scatter_receives: false,
        cap,
        queues: Queues::Bnxt { sq, handle, library, fixed },
    })
}

/// log2 of the receives and of their bytes, rounded up, if the QP has a receive queue of its own; slots of each.
type Receives = (Option<(u8, u8)>, Option<u8>);

fn receives(call: &Call) -> Result<Receives, Refusal> {
    let bytes = call.bytes(UHW_IN).unwrap_or(&[]);
    let own: BnxtFixedReceives = take(bytes.get(size_of::<BnxtFixedQp>()..).unwrap_or(&[]));
    if call.handle(3).is_some() || own.slots == 0 {
        return Ok((None, None));
    }
    let BnxtFixedReceives { slots, each } = own;
    let count = slots.checked_div(each).filter(|count| count * each == slots);
    let Some(count) = count.filter(|count| {
        count.is_power_of_two()
            && slots <= 1 << LOG_SLOTS
            && (MIN_SLOTS..=MOST_SLOTS).contains(&each)
    }) else {
        let why = format!(
            "{slots} slots for receives of {each}, expected 2^n receives of {MIN_SLOTS} to {MOST_SLOTS}, \
             {} slots at most",
            1 << LOG_SLOTS
        );
        return Err(Refusal::invalid(why));
    };
    let bytes = (each * SLOT).next_power_of_two();
    Ok((Some((count.ilog2() as u8, bytes.ilog2() as u8)), Some(each as u8)))
}

pub(super) fn qp_made(qpid: u32) -> Vec<u8> {
    BnxtCreateQpResp { qpid, rsvd: 0 }.as_bytes().to_vec()
}
