//! Making CQs, SRQs and QPs.

use super::profile::cq_entries;
use super::{Context, handle_bytes};
use crate::Refusal;
use crate::abi::{ModifyQp, QpCap};
use crate::call::Call;
use crate::device::{CqRequest, Device, OpenQp};
use crate::objects::{Made, Object, QpObject, SrqObject, file};
use crate::schema::UHW_OUT;
use warpverbs_rdma::Service;
use zerocopy::IntoBytes;

/// `IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION`, `IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN`.
const CQ_TIMESTAMPS: u64 = 1;
const CQ_IGNORE_OVERRUN: u64 = 2;
/// `IB_UVERBS_SRQT_BASIC`.
const SRQ_BASIC: u64 = 0;
/// `IB_UVERBS_QP_CREATE_SQ_SIG_ALL`.
const QP_SIGNAL_ALL: u64 = 1 << 12;
/// `IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK`: without multicast, nothing comes back.
const QP_BLOCK_MULTICAST_LOOPBACK: u64 = 1 << 1;

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
        let common = CqRequest {
            driver: self.driver,
            log_size: entries.ilog2() as u8,
            cqe_size: 0,
            buf: 0,
            dbr: 0,
            ignore_overrun: flags & CQ_IGNORE_OVERRUN != 0,
            collapsed: false,
            user_handle: call.number(2),
            reported: false,
        };
        let request = self.driver.cq(call, common)?;
        let of = |fd: u32| self.objects.channel(file(&self.device, fd.into())?);
        let channel = call.handle(3).map(of).transpose()?;
        let (cq, cqn) = self.device.create_cq(&request, channel)?;
        let made = Made { number: cqn, by_mailbox: false };
        let handle = self.add_made(call, Object::Cq(cq), made, &[])?;
        self.first.report((&self.device, &mut self.objects), call, handle, (7, 2));
        call.answer(0, handle_bytes(handle));
        call.answer(6, (entries - 1).to_ne_bytes());
        call.answer(UHW_OUT, self.driver.cq_made(cqn));
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
        // One entry stays free: the list's end, or what tells a full ring from an empty one.
        let entries = (wr + 1).next_power_of_two();
        let request = self.driver.srq(call, entries, sge)?;
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
        call.answer(UHW_OUT, self.driver.srq_made(srqn));
        Ok(())
    }

    pub(super) fn create_qp(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let driver = self.driver;
        let service = driver.service(call.number(9))?;
        let flags = call.flags(10, u64::from(u32::MAX))?;
        let known = match service {
            Service::Datagram => QP_SIGNAL_ALL | QP_BLOCK_MULTICAST_LOOPBACK,
            _ => QP_SIGNAL_ALL,
        };
        if flags & !known != 0 {
            return Err(Refusal::unsupported(format!("flags {:#x}", flags & !known)));
        }
        let (profile, indexed) = (self.device.profile(), self.has_user_indexes());
        let (request, uar) = driver.qp(call, service, profile, indexed)?;
        let uar = uar.map(|uar| self.objects.uar(uar)).transpose()?;
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
        call.answer(UHW_OUT, driver.qp_made(qpn));
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
