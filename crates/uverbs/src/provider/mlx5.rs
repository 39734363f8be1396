//! mlx5, as libmlx5 has it.

use super::{QpOfDriver, cut};
use crate::abi::{
    AllocUcontext, AllocUcontextResp, CQ_FLAG_UAR_PAGE_INDEX, LIB_CAP_DYN_UAR, Mlx5AllocPdResp,
    Mlx5CreateAhResp, Mlx5CreateCq, Mlx5CreateCqResp, Mlx5CreateQp, Mlx5CreateQpResp,
    Mlx5CreateSrq, Mlx5CreateSrqResp, Mlx5ModifyQpResp, Mlx5QueryDeviceResp, Mlx5ResizeCq,
    QP_FLAG_ALLOW_SCATTER_CQE, QP_FLAG_SCATTER_CQE, QP_FLAG_TYPE_DCT, QP_FLAG_UAR_PAGE_INDEX,
    QpCap, UCONTEXT_DEVX, take,
};
use crate::call::Call;
use crate::device::{CqRequest, Profile, QpRequest, Queues, ResizeRequest, SrqRequest};
use crate::schema::UHW_IN;
use crate::{Driver, Errno, Refusal};
use warpverbs_rdma::Service;
use zerocopy::IntoBytes;

/// `IB_UVERBS_QPT_RC`, `IB_UVERBS_QPT_UD`, `IB_UVERBS_QPT_DRIVER`.
const QP_RC: u64 = 2;
const QP_UD: u64 = 4;
const QP_DRIVER: u64 = 0xff;
/// `IB_UVERBS_QP_CREATE_SQ_SIG_ALL`.
const QP_SIGNAL_ALL: u64 = 1 << 12;
/// A receive has at most 2^10 bytes.
const MAX_LOG_STRIDE: u32 = 10;
/// Bytes of [`AllocUcontext`] that every library of interest sends.
const MIN_ALLOC_UCONTEXT: usize = 32;
/// Doorbell registers of a context at most.
const MAX_BFREGS: u32 = 512;
/// Drivers' answer to QUERY_DEVICE is in UHW_OUT.
const UHW_QUERY_DEVICE: u8 = 1;
/// So is the Ethernet address of a new address handle.
const UHW_CREATE_AH: u8 = 2;
/// `eth_min_inline`: Ethernet headers need not lie in the WQE.
const INLINE_NONE: u8 = 1;

/// The library and the device agree on the version of CQEs.
pub(super) fn open(call: &Call, profile: &Profile) -> Result<(u8, Vec<u8>), Refusal> {
    let bytes = call.bytes(UHW_IN).unwrap_or(&[]);
    if bytes.len() < MIN_ALLOC_UCONTEXT {
        let why = format!("{} bytes for the driver, expected at least 32", bytes.len());
        return Err(Refusal::invalid(why));
    }
    let request: AllocUcontext = take(bytes);
    check_ucontext(&request)?;
    let cqe_version = request.max_cqe_version.min(profile.cqe_version);
    let answer = AllocUcontextResp {
        qp_tab_size: 1 << 18,
        bf_reg_size: 512,
        // 0 for a library that takes its pages one by one.
        tot_bfregs: 0,
        cache_line_size: 64,
        max_sq_desc_sz: 1024,
        max_rq_desc_sz: 512,
        max_send_wqebb: profile.max_qp_wr,
        max_recv_wr: profile.max_qp_wr,
        max_srq_recv_wr: profile.max_srq_wr,
        num_ports: 1,
        response_length: size_of::<AllocUcontextResp>() as u32,
        cqe_version,
        cmds_supp_uhw: UHW_QUERY_DEVICE | UHW_CREATE_AH,
        eth_min_inline: INLINE_NONE,
        log_uar_size: 12,
        num_uars_per_page: 1,
        ..Default::default()
    };
    Ok((cqe_version, answer.as_bytes().to_vec()))
}

fn check_ucontext(request: &AllocUcontext) -> Result<(), Refusal> {
    let AllocUcontext { total_num_bfregs: total, num_low_latency_bfregs: low, .. } = *request;
    if request.flags & !UCONTEXT_DEVX != 0 {
        return Err(Refusal::invalid(format!("flags {:#x}, expected 0 or 1", request.flags)));
    }
    if request.comp_mask != 0
        || request.reserved0 != 0
        || request.reserved1 != 0
        || request.reserved2 != 0
    {
        return Err(Refusal::unsupported("reserved words of the request are set"));
    }
    if total == 0 || low > total - 1 {
        let why = format!("{low} low-latency doorbell registers of {total}");
        return Err(Refusal::invalid(why));
    }
    if total > MAX_BFREGS {
        let why = format!("{total} doorbell registers, at most {MAX_BFREGS} are possible");
        return Err(Refusal::new(Errno::ENOMEM, why));
    }
    if request.lib_caps & LIB_CAP_DYN_UAR == 0 {
        let why = "the library does not allocate doorbell pages one by one: \
                   rdma-core before 2020 is not supported";
        return Err(Refusal::unsupported(why));
    }
    Ok(())
}

pub(super) fn pd(pdn: u32) -> Vec<u8> {
    Mlx5AllocPdResp { pdn }.as_bytes().to_vec()
}

pub(super) fn cq(call: &Call, common: CqRequest) -> Result<CqRequest, Refusal> {
    let driver: Mlx5CreateCq = take(call.driver_input(22)?);
    check_cq(&driver)?;
    let (cqe_size, buf, dbr) = (driver.cqe_size, driver.buf_addr, driver.db_addr);
    Ok(CqRequest { cqe_size, buf, dbr, ..common })
}

fn check_cq(driver: &Mlx5CreateCq) -> Result<(), Refusal> {
    if !matches!(driver.cqe_size, 64 | 128) {
        return Err(Refusal::invalid(format!("CQEs of {} bytes", driver.cqe_size)));
    }
    if driver.cqe_comp_en != 0 {
        return Err(Refusal::unsupported("compressed CQEs are not modelled"));
    }
    if driver.flags & !CQ_FLAG_UAR_PAGE_INDEX != 0 {
        return Err(Refusal::unsupported(format!("flags {:#x} of the driver", driver.flags)));
    }
    if driver.reserved0 != 0 || driver.reserved1 != 0 {
        return Err(Refusal::invalid("reserved words are set"));
    }
    Ok(())
}

pub(super) fn cq_made(cqn: u32) -> Vec<u8> {
    Mlx5CreateCqResp { cqn, reserved: 0 }.as_bytes().to_vec()
}

pub(super) fn resize(call: &Call, entries: u32) -> Result<ResizeRequest, Refusal> {
    let driver: Mlx5ResizeCq = take(call.driver_input(size_of::<Mlx5ResizeCq>())?);
    let (cqe_size, buf) = (driver.cqe_size.into(), driver.buf_addr);
    Ok(ResizeRequest { log_size: entries.ilog2() as u8, cqe_size, buf })
}

pub(super) fn srq(call: &Call, entries: u32, sge: u32) -> Result<SrqRequest, Refusal> {
    let driver: Mlx5CreateSrq = take(call.driver_input(24)?);
    if driver.flags != 0 || driver.reserved1 != 0 {
        return Err(Refusal::unsupported(format!("flags {:#x} of the driver", driver.flags)));
    }
    // A receive is 16 bytes of list and 16 for each entry.
    let stride = (16 + 16 * sge).next_power_of_two().max(32);
    Ok(SrqRequest {
        driver: Driver::Mlx5,
        ring: false,
        log_size: entries.ilog2() as u8,
        log_stride: stride.ilog2() as u8,
        buf: driver.buf_addr,
        dbr: driver.db_addr,
    })
}

pub(super) fn srq_made(srqn: u32) -> Vec<u8> {
    Mlx5CreateSrqResp { srqn, reserved: 0 }.as_bytes().to_vec()
}

pub(super) fn service(kind: u64) -> Result<Service, Refusal> {
    match kind {
        QP_RC => Ok(Service::Connected),
        QP_UD => Ok(Service::Datagram),
        QP_DRIVER => Ok(Service::DcTarget),
        kind => {
            let why = "only reliable connections (2), datagrams (4) and the driver's own (255)";
            Err(Refusal::unsupported(format!("a QP of type {kind}, {why}")))
        }
    }
}

pub(super) fn qp(
    call: &Call,
    service: Service,
    profile: &Profile,
    indexed: bool,
) -> Result<QpOfDriver, Refusal> {
    match service {
        Service::DcTarget => Ok((target_request(call, indexed)?, None)),
        _ => qp_request(call, service, profile, indexed).map(|(qp, uar)| (qp, Some(uar))),
    }
}

/// A target of dynamic connections takes receives of an SRQ, and has nothing else.
fn target_request(call: &Call, indexed: bool) -> Result<QpRequest, Refusal> {
    let driver: Mlx5CreateQp = take(call.driver_input(48)?);
    if driver.flags != QP_FLAG_TYPE_DCT {
        let why = format!("flags {:#x} of the driver, only a target (DCT)", driver.flags);
        return Err(Refusal::unsupported(why));
    }
    // Any key will do: it is compared with those of requests, and none come.
    let rest = Mlx5CreateQp { flags: 0, uidx: 0, sq_buf_addr: 0, ..driver };
    if rest != Mlx5CreateQp::default() {
        return Err(Refusal::invalid(format!("a target (DCT) with queues: {rest:x?}")));
    }
    if call.handle(3).is_none() {
        return Err(Refusal::invalid("a target (DCT) without an SRQ"));
    }
    Ok(QpRequest {
        service: Service::DcTarget,
        buf: 0,
        dbr: 0,
        log_sq: None,
        rq: None,
        user_index: indexed.then_some(driver.uidx),
        scatter_requests: false,
        scatter_receives: false,
        cap: take(call.bytes(8).unwrap_or(&[])),
        queues: Queues::Mlx5,
    })
}

/// Besides, the number of the doorbell page.
fn qp_request(
    call: &Call,
    service: Service,
    profile: &Profile,
    indexed: bool,
) -> Result<(QpRequest, u32), Refusal> {
    let cap: QpCap = take(call.bytes(8).unwrap_or(&[]));
    let driver: Mlx5CreateQp = take(call.driver_input(40)?);
    let known = QP_FLAG_SCATTER_CQE | QP_FLAG_ALLOW_SCATTER_CQE | QP_FLAG_UAR_PAGE_INDEX;
    let unknown = driver.flags & !known;
    if unknown != 0 {
        return Err(Refusal::unsupported(format!("flags {unknown:#x} of the driver")));
    }
    if driver.flags & QP_FLAG_UAR_PAGE_INDEX == 0 {
        return Err(Refusal::invalid("no doorbell page is named"));
    }
    let max = profile.max_qp_wr;
    let log_sq = match driver.sq_wqe_count {
        0 => None,
        count => Some(log_of("the send queue", count, max)?),
    };
    let rq = match driver.rq_wqe_count {
        0 => None,
        _ if call.handle(3).is_some() => None,
        count => {
            let log = log_of("the receive queue", count, max)?;
            if !(4..=MAX_LOG_STRIDE).contains(&driver.rq_wqe_shift) {
                let why =
                    format!("receives of 2^{} bytes, expected 2^4 to 2^10", driver.rq_wqe_shift);
                return Err(Refusal::invalid(why));
            }
            Some((log, driver.rq_wqe_shift as u8))
        }
    };
    let (buf, dbr) = (driver.buf_addr, driver.db_addr);
    let user_index = indexed.then_some(driver.uidx);
    // As the kernel does: a request without a CQE would lose its result.
    let scatter_receives = driver.flags & QP_FLAG_SCATTER_CQE != 0 && service == Service::Connected;
    let signals_all = call.flags(10, u64::from(u32::MAX))? & QP_SIGNAL_ALL != 0;
    let allowed = driver.flags & QP_FLAG_ALLOW_SCATTER_CQE != 0;
    let request = QpRequest {
        service,
        buf,
        dbr,
        log_sq,
        rq,
        user_index,
        scatter_requests: scatter_receives && (signals_all || allowed),
        scatter_receives,
        cap,
        queues: Queues::Mlx5,
    };
    Ok((request, driver.bfreg_index))
}

/// log2 of a number of entries that is a power of two, at most `max`.
fn log_of(what: &str, count: u32, max: u32) -> Result<u8, Refusal> {
    if !count.is_power_of_two() || count > max {
        let why = format!("{count} entries of {what}, expected a power of two up to {max}");
        return Err(Refusal::invalid(why));
    }
    Ok(count.ilog2() as u8)
}

pub(super) fn qp_made() -> Vec<u8> {
    Mlx5CreateQpResp::default().as_bytes().to_vec()
}

pub(super) fn qp_changed(room: usize, dctn: u32) -> Vec<u8> {
    let response_length = room.min(size_of::<Mlx5ModifyQpResp>()) as u32;
    cut(Mlx5ModifyQpResp { response_length, dctn, ..Default::default() }.as_bytes(), room)
}

pub(super) fn ah(room: usize, gid: [u8; 16]) -> Vec<u8> {
    let response_length = room.min(size_of::<Mlx5CreateAhResp>()) as u32;
    let [.., a, b, c, d] = gid;
    // Nobody reads it: a locally administered address made of the GID.
    let dmac = [2, 0, a, b, c, d];
    cut(Mlx5CreateAhResp { response_length, dmac, ..Default::default() }.as_bytes(), room)
}

pub(super) fn capabilities(room: usize) -> Vec<u8> {
    let response_length = room.min(size_of::<Mlx5QueryDeviceResp>()) as u32;
    cut(Mlx5QueryDeviceResp { response_length, ..Default::default() }.as_bytes(), room)
}
