//! Wrapped commands of the older interface.

use super::modify::change_qp;
use super::profile::{check_route, cq_entries, ex_query_device, query_device};
use super::{Context, not_open};
use crate::abi::{
    AllocPdResp, CreateAh, CreateAhResp, CreateCompChannelResp, ExModifyQpResp, ModifyQp,
    ModifySrq, QueryQp, QueryQpResp, QuerySrq, QuerySrqResp, ResizeCq, ResizeCqResp, take,
};
use crate::call::Call;
use crate::device::Device;
use crate::objects::{Made, Object, Objects};
use crate::schema::UHW_OUT;
use crate::write::{WriteCommand, id};
use crate::{Errno, Refusal};
use warpverbs_rdma::{QpState, Service};
use zerocopy::IntoBytes;

/// `IB_SRQ_LIMIT`.
const SRQ_LIMIT: u32 = 2;
/// Where a command's output goes.
const CORE_OUT: u16 = 1;

impl<D: Device> Context<D> {
    pub(super) fn invoke_write(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let input = call.bytes(0).map_or(0, <[u8]>::len);
        let output = call.room(CORE_OUT).unwrap_or(0);
        let command = WriteCommand::decode(call.number(2), input, output)?;
        let done = match command.id {
            _ if self.cqe_version.is_none() => Err(not_open()),
            id::QUERY_DEVICE => {
                call.answer(CORE_OUT, query_device(self.device.profile()).as_bytes());
                Ok(())
            }
            id::EX_QUERY_DEVICE => ex_query_device(self.device.profile(), call),
            id::ALLOC_PD => self.alloc_pd(call),
            id::CREATE_AH => self.create_ah(call),
            id::REG_MR => self.reg_mr(call),
            id::CREATE_COMP_CHANNEL => self.create_comp_channel(call),
            id::MODIFY_QP => self.modify_qp(call, false),
            id::EX_MODIFY_QP => self.modify_qp(call, true),
            id::QUERY_QP => query_qp(&self.device, &self.objects, call),
            id::RESIZE_CQ => self.resize_cq(call),
            id::MODIFY_SRQ => self.modify_srq(call),
            id::QUERY_SRQ => query_srq(&self.device, &self.objects, call),
            _ => Err(Refusal::unsupported("this command is not modelled")),
        };
        done.map_err(|refusal| command.refuse(refusal))
    }

    fn alloc_pd(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let (pd, pdn) = self.device.alloc_pd()?;
        let made = Made { number: pdn, by_mailbox: false };
        let pd_handle = self.add_made(call, Object::Pd(pd), made, &[])?;
        call.answer(CORE_OUT, AllocPdResp { pd_handle }.as_bytes());
        call.answer(UHW_OUT, self.driver.pd(pdn));
        Ok(())
    }

    fn create_ah(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let CreateAh { pd_handle, attr, .. } = take(call.bytes(0).unwrap_or(&[]));
        let profile = self.device.profile();
        check_route(profile, attr.port_num, attr.is_global, attr.grh.sgid_index)?;
        let (pd, gid) = (self.objects.pd(pd_handle).map_err(legacy)?, attr.grh.dgid);
        let numbered = self.driver.numbers_addresses();
        let made = numbered.then(|| self.device.create_ah(pd, gid)).transpose()?;
        let (ah, number) = made.map_or((None, 0), |(ah, number)| (Some(ah), number));
        let answer = self.driver.ah(call.room(UHW_OUT).unwrap_or(0), gid, number);
        let ah_handle = self.add(call, Object::Ah(ah), &[pd_handle])?;
        call.answer(CORE_OUT, CreateAhResp { ah_handle }.as_bytes());
        call.answer(UHW_OUT, answer);
        Ok(())
    }

    fn create_comp_channel(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let (channel, fd) = self.device.open_comp_channel()?;
        self.add_fd(call, Object::CompChannel(channel), fd)?;
        call.answer(CORE_OUT, CreateCompChannelResp { fd }.as_bytes());
        Ok(())
    }

    fn modify_qp(&mut self, call: &mut Call, extended: bool) -> Result<(), Refusal> {
        let bytes = call.bytes(0).unwrap_or(&[]).to_vec();
        let request: ModifyQp = take(&bytes);
        self.objects.qp(request.qp_handle).map_err(legacy)?;
        let rest = bytes.get(112..).unwrap_or(&[]);
        change_qp(&self.device, &mut self.objects, &request, rest)?;
        if extended {
            let response_length = size_of::<ExModifyQpResp>() as u32;
            let answer = ExModifyQpResp { response_length, ..Default::default() };
            call.answer(CORE_OUT, answer.as_bytes());
        }
        // Of a target of dynamic connections, which had none before.
        let qp = self.objects.qp(request.qp_handle)?;
        let has_number =
            qp.service == Service::DcTarget && self.device.query_qp(&qp.qp).state == QpState::Rtr;
        let dctn = if has_number { self.objects.number(request.qp_handle) } else { 0 };
        let room = call.room(UHW_OUT).unwrap_or(0);
        if let Some(answer) = self.driver.qp_changed(room, dctn) {
            call.answer(UHW_OUT, answer);
        }
        Ok(())
    }

    fn modify_srq(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let request: ModifySrq = take(call.bytes(0).unwrap_or(&[]));
        let srq = self.objects.srq(request.srq_handle).map_err(legacy)?;
        match request.attr_mask {
            SRQ_LIMIT => srq.set_limit(&self.device, request.srq_limit),
            0 => Ok(()),
            mask => Err(Refusal::invalid(format!("attributes {mask:#x}, only the limit is one"))),
        }
    }

    fn resize_cq(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let request: ResizeCq = take(call.bytes(0).unwrap_or(&[]));
        let cq = self.objects.cq(request.cq_handle).map_err(legacy)?;
        let entries = cq_entries(self.device.profile(), request.cqe)?;
        self.device.resize_cq(cq, &self.driver.resize(call, entries)?)?;
        call.answer(CORE_OUT, ResizeCqResp { cqe: entries - 1, reserved: 0 }.as_bytes());
        Ok(())
    }
}

fn query_qp<D: Device>(device: &D, objects: &Objects<D>, call: &mut Call) -> Result<(), Refusal> {
    let request: QueryQp = take(call.bytes(0).unwrap_or(&[]));
    let qp = objects.qp(request.qp_handle).map_err(legacy)?;
    let now = device.query_qp(&qp.qp);
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

fn query_srq<D: Device>(device: &D, objects: &Objects<D>, call: &mut Call) -> Result<(), Refusal> {
    let request: QuerySrq = take(call.bytes(0).unwrap_or(&[]));
    let srq = objects.srq(request.srq_handle).map_err(legacy)?;
    let (max_wr, max_sge) = (srq.max_wr, srq.max_sge);
    let srq_limit = device.srq_limit(&srq.srq).into();
    call.answer(CORE_OUT, QuerySrqResp { max_wr, max_sge, srq_limit, reserved: 0 }.as_bytes());
    Ok(())
}

/// The older commands say `EINVAL` for every handle that will not do.
pub(super) fn legacy(refusal: Refusal) -> Refusal {
    Refusal { errno: Errno::EINVAL, ..refusal }
}
