//! Making CQs, SRQs and QPs.

use super::profile::cq_entries;
use super::{Context, handle_bytes};
use crate::Refusal;
use crate::abi::{
    CQ_FLAG_UAR_PAGE_INDEX, Mlx5CreateCq, Mlx5CreateCqResp, Mlx5CreateQp, Mlx5CreateQpResp,
    Mlx5CreateSrq, Mlx5CreateSrqResp, ModifyQp, QP_FLAG_ALLOW_SCATTER_CQE, QP_FLAG_SCATTER_CQE,
    QP_FLAG_TYPE_DCT, QP_FLAG_UAR_PAGE_INDEX, QpCap, take,
};
use crate::call::Call;
use crate::device::{CqRequest, Device, OpenQp, Profile, QpRequest, SrqRequest};
use crate::objects::{Made, Object, QpObject, SrqObject, file};
use crate::schema::{UHW_IN, UHW_OUT};
use warpverbs_rdma::Service;
use zerocopy::IntoBytes;

/// `IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION`, `IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN`.
const CQ_TIMESTAMPS: u64 = 1;
const CQ_IGNORE_OVERRUN: u64 = 2;
/// `IB_UVERBS_QPT_RC`, `IB_UVERBS_QPT_UD`, `IB_UVERBS_QPT_DRIVER`, `IB_UVERBS_SRQT_BASIC`.
const QP_RC: u64 = 2;
const QP_UD: u64 = 4;
const QP_DRIVER: u64 = 0xff;
const SRQ_BASIC: u64 = 0;
/// `IB_UVERBS_QP_CREATE_SQ_SIG_ALL`.
const QP_SIGNAL_ALL: u64 = 1 << 12;
/// `IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK`: without multicast, nothing comes back.
const QP_BLOCK_MULTICAST_LOOPBACK: u64 = 1 << 1;
/// A send WQE is at most this many WQEBBs, and a receive 2^10 bytes.
const MAX_LOG_STRIDE: u32 = 10;

/// Input for the driver, if it has at least `min` bytes.
pub(super) fn driver_input(call: &Call, min: usize) -> Result<&[u8], Refusal> {
    let bytes = call.bytes(UHW_IN).unwrap_or(&[]);
    if bytes.len() < min {
        let why = format!("{} bytes for the driver, expected at least {min}", bytes.len());
        return Err(Refusal::invalid(why));
    }
    Ok(bytes)
}

/// log2 of a number of entries that is a power of two, at most `max`.
fn log_of(what: &str, count: u32, max: u32) -> Result<u8, Refusal> {
    if !count.is_power_of_two() || count > max {
        let why = format!("{count} entries of {what}, expected a power of two up to {max}");
        return Err(Refusal::invalid(why));
    }
    Ok(count.ilog2() as u8)
}

impl<D: Device> Context<D> {
    pub(super) fn create_cq(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let flags = call.flags(5, CQ_TIMESTAMPS | CQ_IGNORE_OVERRUN)?;
        if flags & CQ_TIMESTAMPS != 0 {
            return Err(Refusal::unsupported("CQEs have no time stamps"));
        }
        let profile = self.device.profile();
        let vector = call.word(4);
        if vector >= profile.comp_vectors {
            let why = format!("completion vector {vector} of {}", profile.comp_vectors);
            return Err(Refusal::invalid(why));
        }
        let entries = cq_entries(profile, call.word(1))?;
        let driver: Mlx5CreateCq = take(driver_input(call, 22)?);
        check_cq(&driver)?;
        let request = CqRequest {
            log_size: entries.ilog2() as u8,
            cqe_size: driver.cqe_size,
            buf: driver.buf_addr,
            dbr: driver.db_addr,
            ignore_overrun: flags & CQ_IGNORE_OVERRUN != 0,
            collapsed: false,
            user_handle: call.number(2),
            reported: false,
        };
        let of = |fd: u32| self.objects.channel(file(&self.device, fd.into())?);
        let channel = call.handle(3).map(of).transpose()?;
        let (cq, cqn) = self.device.create_cq(&request, channel)?;
        let made = Made { number: cqn, by_mailbox: false };
        let handle = self.add_made(call, Object::Cq(cq), made, &[])?;
        self.first.report((&self.device, &mut self.objects), call, handle, (7, 2));
        call.answer(0, handle_bytes(handle));
        call.answer(6, (entries - 1).to_ne_bytes());
        call.answer(UHW_OUT, Mlx5CreateCqResp { cqn, reserved: 0 }.as_bytes());
        Ok(())
    }

    pub(super) fn create_srq(&mut self, call: &mut Call) -> Result<(), Refusal> {
        if call.number(9) != SRQ_BASIC {
            let why = format!("an SRQ of type {}, only type 0 is modelled", call.number(9));
            return Err(Refusal::unsupported(why));
        }
        let profile = self.device.profile();
        let (wr, sge) = (call.word(5), call.word(6));
        if wr >= profile.max_srq_wr || sge > profile.max_sge {
            let (max, sges) = (profile.max_srq_wr, profile.max_sge);
            let why = format!("{wr} receives of {sge} entries, expected below {max} of {sges}");
            return Err(Refusal::invalid(why));
        }
        let driver: Mlx5CreateSrq = take(driver_input(call, 24)?);
        if driver.flags != 0 || driver.reserved1 != 0 {
            return Err(Refusal::unsupported(format!("flags {:#x} of the driver", driver.flags)));
        }
        // One entry is the list's end. A receive is 16 bytes of list and 16 for each entry.
        let entries = (wr + 1).next_power_of_two();
        let stride = (16 + 16 * sge).next_power_of_two().max(32);
        let request = SrqRequest {
            ring: false,
            log_size: entries.ilog2() as u8,
            log_stride: stride.ilog2() as u8,
            buf: driver.buf_addr,
            dbr: driver.db_addr,
        };
        let pd_handle = call.handle(1).unwrap_or(u32::MAX);
        let (srq, srqn) = self.device.create_srq(self.objects.pd(pd_handle)?, &request)?;
        let srq = SrqObject { srq, max_wr: entries - 1, max_sge: sge };
        srq.set_limit(&self.device, call.word(7))?;
        let made = Made { number: srqn, by_mailbox: false };
        let handle = self.add_made(call, Object::Srq(srq), made, &[pd_handle])?;
        self.first.report((&self.device, &mut self.objects), call, handle, (10, 4));
        call.answer(0, handle_bytes(handle));
        call.answer(11, (entries - 1).to_ne_bytes());
        call.answer(12, sge.to_ne_bytes());
        call.answer(13, srqn.to_ne_bytes());
        call.answer(UHW_OUT, Mlx5CreateSrqResp { srqn, reserved: 0 }.as_bytes());
        Ok(())
    }

    pub(super) fn create_qp(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let service = match call.number(9) {
            QP_RC => Service::Connected,
            QP_UD => Service::Datagram,
            QP_DRIVER => Service::DcTarget,
            kind => {
                let why = "only reliable connections (2), datagrams (4) and the driver's own (255)";
                return Err(Refusal::unsupported(format!("a QP of type {kind}, {why}")));
            }
        };
        let flags = call.flags(10, u64::from(u32::MAX))?;
        let known = match service {
            Service::Datagram => QP_SIGNAL_ALL | QP_BLOCK_MULTICAST_LOOPBACK,
            _ => QP_SIGNAL_ALL,
        };
        if flags & !known != 0 {
            return Err(Refusal::unsupported(format!("flags {:#x}", flags & !known)));
        }
        let (request, uar) = match service {
            Service::DcTarget => (target_request(call, self.has_user_indexes())?, None),
            _ => {
                let (profile, indexed) = (self.device.profile(), self.has_user_indexes());
                let (request, uar) = qp_request(call, service, profile, indexed)?;
                (request, Some(self.objects.uar(uar)?))
            }
        };
        let missing = |what: &str| Refusal::invalid(format!("{what} is missing"));
        let pd = call.handle(2).ok_or_else(|| missing("the protection domain"))?;
        let send_cq = call.handle(4).ok_or_else(|| missing("the send CQ"))?;
        let recv_cq = call.handle(5).ok_or_else(|| missing("the receive CQ"))?;
        let srq = call.handle(3);
        let with = OpenQp {
            pd: self.objects.pd(pd)?,
            send_cq: self.objects.cq(send_cq)?,
            recv_cq: self.objects.cq(recv_cq)?,
            srq: srq.map(|srq| self.objects.srq(srq)).transpose()?.map(|srq| &srq.srq),
            uar,
        };
        let (qp, qpn) = self.device.create_qp(&request, with)?;
        let (cap, signals_all) = (request.cap, flags & QP_SIGNAL_ALL != 0);
        let attrs = ModifyQp::default();
        // QUERY_QP says how many receives there is room for, not how many were asked for.
        let max_recv_wr = request.rq.map_or(cap.max_recv_wr, |(log, _)| 1 << log);
        let kept = QpCap { max_recv_wr, ..cap };
        let object = Object::Qp(Box::new(QpObject { qp, cap: kept, attrs, signals_all, service }));
        let uses: Vec<u32> =
            [Some(pd), Some(send_cq), Some(recv_cq), srq].into_iter().flatten().collect();
        let made = Made { number: qpn, by_mailbox: false };
        let handle = self.add_made(call, object, made, &uses)?;
        self.first.report((&self.device, &mut self.objects), call, handle, (12, 7));
        call.answer(0, handle_bytes(handle));
        call.answer(13, cap.as_bytes());
        // A target gets its number with RTR.
        let said = if service == Service::DcTarget { 0 } else { qpn };
        call.answer(14, said.to_ne_bytes());
        call.answer(UHW_OUT, Mlx5CreateQpResp::default().as_bytes());
        Ok(())
    }
}

impl<D: Device> SrqObject<D> {
    /// A limit that the SRQ can fall below.
    pub(super) fn set_limit(&self, device: &D, limit: u32) -> Result<(), Refusal> {
        match u16::try_from(limit).ok().filter(|_| limit < self.max_wr.max(1)) {
            Some(limit) => device.set_srq_limit(&self.srq, limit),
            None => {
                let why = format!("a limit of {limit}, the SRQ has {} receives", self.max_wr);
                return Err(Refusal::invalid(why));
            }
        }
        Ok(())
    }
}

/// A target of dynamic connections takes receives of an SRQ, and has nothing else.
fn target_request(call: &Call, indexed: bool) -> Result<QpRequest, Refusal> {
    let driver: Mlx5CreateQp = take(driver_input(call, 48)?);
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
    let driver: Mlx5CreateQp = take(driver_input(call, 40)?);
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
    };
    Ok((request, driver.bfreg_index))
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
