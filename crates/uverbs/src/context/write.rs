//! Wrapped commands of the older interface.

use super::queues::driver_input;
use super::{Context, not_open};
use crate::abi::{
    AllocPdResp, CreateAh, CreateAhResp, CreateCompChannelResp, ExModifyQpResp, Mlx5AllocPdResp,
    Mlx5CreateAhResp, Mlx5ModifyQpResp, Mlx5ResizeCq, ModifyQp, ModifySrq, QueryQp, QueryQpResp,
    QuerySrq, QuerySrqResp, RegMr, RegMrResp, ResizeCq, ResizeCqResp, take,
};
use crate::call::Call;
use crate::device::{Device, MrRequest, ResizeRequest};
use crate::objects::{Made, Object};
use crate::schema::UHW_OUT;
use crate::write::{WriteCommand, id};
use crate::{Errno, Refusal};
use zerocopy::IntoBytes;

/// `IB_SRQ_LIMIT`.
const SRQ_LIMIT: u32 = 2;
/// Where a command's output goes.
const CORE_OUT: u16 = 1;
const PAGE_MASK: u64 = 0xfff;

/// Rights of registered memory: `IB_ACCESS_*`.
mod access {
    pub(super) const LOCAL_WRITE: u32 = 1;
    pub(super) const REMOTE_WRITE: u32 = 2;
    pub(super) const REMOTE_READ: u32 = 4;
    pub(super) const REMOTE_ATOMIC: u32 = 8;
    pub(super) const RIGHTS: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    /// Memory windows, zero-based addresses, on-demand paging.
    pub(super) const NOT_MODELLED: u32 = 1 << 4 | 1 << 5 | 1 << 6;
    /// Huge pages, a hint; and those that a device may ignore, bits 20 to 29.
    pub(super) const IGNORED: u32 = 1 << 7 | 0x3ff0_0000;
}

impl<D: Device> Context<D> {
    pub(super) fn invoke_write(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let input = call.bytes(0).map_or(0, <[u8]>::len);
        let output = call.room(CORE_OUT).unwrap_or(0);
        let command = WriteCommand::decode(call.number(2), input, output)?;
        let done = match command.id {
            _ if self.cqe_version.is_none() => Err(not_open()),
            id::QUERY_DEVICE => {
                call.answer(CORE_OUT, self.query_device().as_bytes());
                Ok(())
            }
            id::EX_QUERY_DEVICE => self.ex_query_device(call),
            id::ALLOC_PD => self.alloc_pd(call),
            id::CREATE_AH => self.create_ah(call),
            id::REG_MR => self.reg_mr(call),
            id::CREATE_COMP_CHANNEL => self.create_comp_channel(call),
            id::MODIFY_QP => self.modify_qp(call, false),
            id::EX_MODIFY_QP => self.modify_qp(call, true),
            id::QUERY_QP => self.query_qp(call),
            id::RESIZE_CQ => self.resize_cq(call),
            id::MODIFY_SRQ => self.modify_srq(call),
            id::QUERY_SRQ => self.query_srq(call),
            _ => Err(Refusal::unsupported("this command is not modelled")),
        };
        done.map_err(|refusal| command.refuse(refusal))
    }

    fn alloc_pd(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let (pd, pdn) = self.device.alloc_pd()?;
        let made = Made { number: pdn, by_mailbox: false };
        let pd_handle = self.add_made(call, Object::Pd(pd), made, &[])?;
        call.answer(CORE_OUT, AllocPdResp { pd_handle }.as_bytes());
        call.answer(UHW_OUT, Mlx5AllocPdResp { pdn }.as_bytes());
        Ok(())
    }

    fn create_ah(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let CreateAh { pd_handle, attr, .. } = take(call.bytes(0).unwrap_or(&[]));
        self.check_route(attr.port_num, attr.is_global, attr.grh.sgid_index)?;
        self.objects.pd(pd_handle).map_err(legacy)?;
        let ah_handle = self.add(call, Object::Ah, &[pd_handle])?;
        call.answer(CORE_OUT, CreateAhResp { ah_handle }.as_bytes());
        let room = call.room(UHW_OUT).unwrap_or(0).min(size_of::<Mlx5CreateAhResp>());
        let [.., a, b, c, d] = attr.grh.dgid;
        // Nobody reads it: a locally administered address made of the GID.
        let dmac = [2, 0, a, b, c, d];
        let driver = Mlx5CreateAhResp { response_length: room as u32, dmac, ..Default::default() };
        call.answer(UHW_OUT, &driver.as_bytes()[..room]);
        Ok(())
    }

    fn reg_mr(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let request: RegMr = take(call.bytes(0).unwrap_or(&[]));
        let RegMr { start, length, hca_va, pd_handle, access_flags, .. } = request;
        if start & PAGE_MASK != hca_va & PAGE_MASK {
            let why =
                format!("address {start:#x} and I/O address {hca_va:#x} differ in their page");
            return Err(Refusal::invalid(why));
        }
        if start.checked_add(length).is_none() {
            return Err(Refusal::invalid(format!("{start:#x} + {length:#x} is beyond 64 bits")));
        }
        let access = check_access(access_flags)?;
        let pd = self.objects.pd(pd_handle).map_err(legacy)?;
        let request = MrRequest { start, length, iova: hca_va, access };
        let (mr, key) = self.device.reg_mr(pd, &request)?;
        let mr_handle = self.add(call, Object::Mr(mr), &[pd_handle])?;
        call.answer(CORE_OUT, RegMrResp { mr_handle, lkey: key, rkey: key }.as_bytes());
        Ok(())
    }

    fn create_comp_channel(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let (channel, fd) = self.device.open_comp_channel()?;
        self.add_fd(call, Object::CompChannel(channel), fd);
        call.answer(CORE_OUT, CreateCompChannelResp { fd }.as_bytes());
        Ok(())
    }

    fn modify_qp(&mut self, call: &mut Call, extended: bool) -> Result<(), Refusal> {
        let bytes = call.bytes(0).unwrap_or(&[]).to_vec();
        let request: ModifyQp = take(&bytes);
        self.objects.qp(request.qp_handle).map_err(legacy)?;
        self.change_qp(&request, bytes.get(112..).unwrap_or(&[]))?;
        if extended {
            let response_length = size_of::<ExModifyQpResp>() as u32;
            let answer = ExModifyQpResp { response_length, ..Default::default() };
            call.answer(CORE_OUT, answer.as_bytes());
        }
        let room = call.room(UHW_OUT).unwrap_or(0).min(size_of::<Mlx5ModifyQpResp>());
        let driver = Mlx5ModifyQpResp { response_length: room as u32, ..Default::default() };
        call.answer(UHW_OUT, &driver.as_bytes()[..room]);
        Ok(())
    }

    fn query_qp(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let request: QueryQp = take(call.bytes(0).unwrap_or(&[]));
        let qp = self.objects.qp(request.qp_handle).map_err(legacy)?;
        let now = self.device.query_qp(&qp.qp);
        let state = now.state as u8;
        let (cap, attrs) = (&qp.cap, &qp.attrs);
        let answer = QueryQpResp {
            dest: attrs.dest,
            alt_dest: attrs.alt_dest,
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
            rq_psn: now.rq_psn.unwrap_or(attrs.rq_psn),
            sq_psn: now.sq_psn.unwrap_or(attrs.sq_psn),
            dest_qp_num: attrs.dest_qp_num,
            qkey: attrs.qkey,
            qp_access_flags: attrs.qp_access_flags,
            pkey_index: attrs.pkey_index,
            qp_state: state,
            cur_qp_state: state,
            path_mtu: attrs.path_mtu,
            sq_draining: u8::from(now.draining),
            max_rd_atomic: attrs.max_rd_atomic,
            max_dest_rd_atomic: attrs.max_dest_rd_atomic,
            min_rnr_timer: attrs.min_rnr_timer,
            port_num: attrs.port_num,
            timeout: attrs.timeout,
            retry_cnt: attrs.retry_cnt,
            rnr_retry: attrs.rnr_retry,
            sq_sig_all: u8::from(qp.signals_all),
            ..Default::default()
        };
        call.answer(CORE_OUT, answer.as_bytes());
        Ok(())
    }

    fn query_srq(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let request: QuerySrq = take(call.bytes(0).unwrap_or(&[]));
        let srq = self.objects.srq(request.srq_handle).map_err(legacy)?;
        let (max_wr, max_sge) = (srq.max_wr, srq.max_sge);
        let srq_limit = self.device.srq_limit(&srq.srq).into();
        call.answer(CORE_OUT, QuerySrqResp { max_wr, max_sge, srq_limit, reserved: 0 }.as_bytes());
        Ok(())
    }

    fn modify_srq(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let request: ModifySrq = take(call.bytes(0).unwrap_or(&[]));
        let srq = self.objects.srq(request.srq_handle).map_err(legacy)?;
        match request.attr_mask {
            SRQ_LIMIT => self.set_limit(srq, request.srq_limit),
            0 => Ok(()),
            mask => Err(Refusal::invalid(format!("attributes {mask:#x}, only the limit is one"))),
        }
    }

    fn resize_cq(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let request: ResizeCq = take(call.bytes(0).unwrap_or(&[]));
        let driver: Mlx5ResizeCq = take(driver_input(call, size_of::<Mlx5ResizeCq>())?);
        let cq = self.objects.cq(request.cq_handle).map_err(legacy)?;
        let entries = self.cq_entries(request.cqe)?;
        let (cqe_size, buf) = (driver.cqe_size.into(), driver.buf_addr);
        let log_size = entries.ilog2() as u8;
        self.device.resize_cq(cq, &ResizeRequest { log_size, cqe_size, buf })?;
        call.answer(CORE_OUT, ResizeCqResp { cqe: entries - 1, reserved: 0 }.as_bytes());
        Ok(())
    }
}

/// The older commands say `EINVAL` for every handle that will not do.
pub(super) fn legacy(refusal: Refusal) -> Refusal {
    Refusal { errno: Errno::EINVAL, ..refusal }
}

fn check_access(flags: u32) -> Result<u32, Refusal> {
    use access::{IGNORED, LOCAL_WRITE, NOT_MODELLED, REMOTE_ATOMIC, REMOTE_WRITE, RIGHTS};
    let unknown = flags & !(RIGHTS | NOT_MODELLED | IGNORED);
    if unknown != 0 {
        return Err(Refusal::invalid(format!("access flags {unknown:#x} are unknown")));
    }
    if flags & NOT_MODELLED != 0 {
        let why = format!("access flags {:#x} are not modelled", flags & NOT_MODELLED);
        return Err(Refusal::unsupported(why));
    }
    if flags & (REMOTE_WRITE | REMOTE_ATOMIC) != 0 && flags & LOCAL_WRITE == 0 {
        return Err(Refusal::invalid("peers may write, the owner may not"));
    }
    Ok(flags & RIGHTS)
}
