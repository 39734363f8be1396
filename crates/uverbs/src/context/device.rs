//! Opening a context, descriptors, doorbell pages and firmware commands.

use super::{Context, handle_bytes};
use crate::abi::{AllocUcontext, AllocUcontextResp, LIB_CAP_DYN_UAR, UCONTEXT_DEVX, take};
use crate::call::Call;
use crate::device::{Device, UarKind};
use crate::objects::{Object, UarObject, file};
use crate::schema::{DRIVER, UHW_IN, UHW_OUT};
use crate::{Errno, Refusal};
use zerocopy::IntoBytes;

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

impl<D: Device> Context<D> {
    pub(super) fn get_context(&mut self, call: &mut Call) -> Result<(), Refusal> {
        if self.cqe_version.is_some() {
            return Err(Refusal::invalid("the context is open already"));
        }
        let bytes = call.bytes(UHW_IN).unwrap_or(&[]);
        if bytes.len() < MIN_ALLOC_UCONTEXT {
            let why = format!("{} bytes for the driver, expected at least 32", bytes.len());
            return Err(Refusal::invalid(why));
        }
        let request: AllocUcontext = take(bytes);
        check_ucontext(&request)?;
        let profile = self.device.profile();
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
        let vectors = profile.comp_vectors;
        call.answer(0, vectors.to_ne_bytes());
        call.answer(1, [0; 8]);
        call.answer(UHW_OUT, answer.as_bytes());
        self.cqe_version = Some(cqe_version);
        Ok(())
    }

    /// Adds a channel; says what its descriptor stands for.
    pub(super) fn add_fd(
        &mut self,
        call: &mut Call,
        object: Object<D>,
        fd: u32,
    ) -> Result<u64, Refusal> {
        let file = file(&self.device, fd.into())?;
        call.note_made(object.class(), fd);
        self.objects.insert_file(&self.device, file, object);
        Ok(file)
    }

    pub(super) fn alloc_uar(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let kind = match call.number(DRIVER + 1) {
            0 => UarKind::BlueFlame,
            1 => UarKind::NonCached,
            kind => return Err(Refusal::invalid(format!("UAR of kind {kind}, expected 0 or 1"))),
        };
        let (uar, page) = self.device.alloc_uar(kind)?;
        let handle = self.add(call, Object::Uar(UarObject { uar, id: page.id }), &[])?;
        call.answer(DRIVER, handle_bytes(handle));
        call.answer(DRIVER + 2, page.offset.to_ne_bytes());
        call.answer(DRIVER + 3, page.len.to_ne_bytes());
        call.answer(DRIVER + 4, page.id.to_ne_bytes());
        Ok(())
    }

    /// A firmware command. Its answer is written also when it failed.
    pub(super) fn command(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let mut answer = vec![0; call.room(DRIVER + 1).unwrap_or(0)];
        let done = self.device.command(call.bytes(DRIVER).unwrap_or(&[]), &mut answer);
        call.answer(DRIVER + 1, answer);
        done
    }
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
