//! Opening a context, what the device says about itself, doorbell pages and firmware commands.

use super::{Context, handle_bytes};
use crate::abi::{
    AllocUcontext, AllocUcontextResp, ExQueryDevice, ExQueryDeviceResp, GidEntry, LIB_CAP_DYN_UAR,
    Mlx5QueryDeviceResp, QueryDeviceResp, QueryPortResp, QueryPortRespEx, UCONTEXT_DEVX, take,
};
use crate::call::Call;
use crate::device::{Device, Profile, UarKind};
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

/// `IB_DEVICE_SYS_IMAGE_GUID` and `IB_DEVICE_RC_RNR_NAK_GEN`.
const DEVICE_CAPS: u32 = 1 << 11 | 1 << 12;
/// `RDMA_TRANSPORT_IB` over Ethernet: GIDs, no LIDs (`IB_UVERBS_QPF_GRH_REQUIRED`).
const GRH_REQUIRED: u8 = 1;
/// `IB_UVERBS_GID_TYPE_ROCE_V2`.
const ROCE_V2: u32 = 2;
/// Address handles cost the device nothing.
const MAX_AH: u32 = 1 << 24;
/// Vendor of ConnectX devices, as an IEEE company number.
const VENDOR: u32 = 0x02c9;

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

    pub(super) fn query_device(&self) -> QueryDeviceResp {
        device_limits(self.device.profile())
    }

    pub(super) fn ex_query_device(&self, call: &mut Call) -> Result<(), Refusal> {
        let request: ExQueryDevice = take(call.bytes(0).unwrap_or(&[]));
        if request != ExQueryDevice::default() {
            return Err(Refusal::invalid(format!("reserved words are set: {request:x?}")));
        }
        let room = call.room(1).unwrap_or(0);
        let length = room.min(size_of::<ExQueryDeviceResp>()) as u32;
        let base = self.query_device();
        let answer = ExQueryDeviceResp { base, response_length: length, ..Default::default() };
        call.answer(1, answer.as_bytes());
        let room = call.room(UHW_OUT).unwrap_or(0);
        let length = room.min(size_of::<Mlx5QueryDeviceResp>());
        let driver = Mlx5QueryDeviceResp { response_length: length as u32, ..Default::default() };
        call.answer(UHW_OUT, &driver.as_bytes()[..length]);
        Ok(())
    }

    pub(super) fn query_port(&self, call: &mut Call) -> Result<(), Refusal> {
        check_port(call.number(0))?;
        let profile = self.device.profile();
        let port = &profile.port;
        let legacy_resp = QueryPortResp {
            max_msg_sz: port.max_msg_sz,
            gid_tbl_len: profile.gids.len() as u32,
            pkey_tbl_len: 1,
            state: 4, // ACTIVE
            max_mtu: port.max_mtu as u8,
            active_mtu: port.active_mtu as u8,
            active_width: 2,  // 4 lanes
            active_speed: 64, // HDR: 50 Gb/s a lane
            phys_state: 5,    // link up
            link_layer: 2,    // Ethernet
            flags: GRH_REQUIRED,
            ..Default::default()
        };
        let answer = QueryPortRespEx { legacy_resp, ..Default::default() };
        call.answer(1, answer.as_bytes());
        Ok(())
    }

    fn gid_entry(&self, index: u32) -> Option<GidEntry> {
        let found = self.device.profile().gids.get(index as usize)?;
        let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| found.gid[at + i]));
        Some(GidEntry {
            gid: [half(0), half(8)],
            gid_index: index,
            port_num: 1,
            gid_type: ROCE_V2,
            netdev_ifindex: found.ifindex,
        })
    }

    pub(super) fn query_gid_entry(&self, call: &mut Call) -> Result<(), Refusal> {
        call.flags(2, 0)?;
        check_port(call.number(0))?;
        let index = call.number(1);
        let Some(entry) = u32::try_from(index).ok().and_then(|index| self.gid_entry(index)) else {
            let gids = self.device.profile().gids.len();
            return Err(Refusal::invalid(format!("GID {index} of {gids}")));
        };
        call.answer(3, entry.as_bytes());
        Ok(())
    }

    pub(super) fn query_gid_table(&self, call: &mut Call) -> Result<(), Refusal> {
        call.flags(1, 0)?;
        let size = call.number(0);
        let want = size_of::<GidEntry>();
        if size < want as u64 {
            return Err(Refusal::invalid(format!("entries of {size} bytes, expected {want}")));
        }
        // Entries are as far apart as the program says, and what is beyond ours is zero.
        let room = call.room(2).unwrap_or(0);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let (mut table, mut count) = (Vec::new(), 0u64);
        for index in 0..self.device.profile().gids.len() as u32 {
            let Some(entry) = self.gid_entry(index) else { break };
            let Some(end) = table.len().checked_add(size).filter(|end| *end <= room) else {
                return Err(Refusal::invalid(format!("{room} bytes do not hold the table")));
            };
            table.extend_from_slice(entry.as_bytes());
            table.resize(end, 0);
            count += 1;
        }
        call.answer(2, table);
        call.answer(3, count.to_ne_bytes());
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

pub(super) fn check_port(port: u64) -> Result<(), Refusal> {
    match port {
        1 => Ok(()),
        _ => Err(Refusal::invalid(format!("port {port}, there is only port 1"))),
    }
}

fn device_limits(profile: &Profile) -> QueryDeviceResp {
    let guid = profile.node_guid.to_be();
    QueryDeviceResp {
        fw_ver: profile.fw_ver,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: VENDOR,
        vendor_part_id: profile.vendor_part_id,
        max_qp: profile.max_qp,
        max_qp_wr: profile.max_qp_wr,
        device_cap_flags: DEVICE_CAPS,
        max_sge: profile.max_sge,
        max_sge_rd: profile.max_sge,
        max_cq: profile.max_cq,
        max_cqe: profile.max_cqe - 1,
        max_mr: profile.max_mr,
        max_pd: profile.max_pd,
        max_qp_rd_atom: profile.max_qp_rd_atom,
        max_res_rd_atom: profile.max_qp_rd_atom.saturating_mul(profile.max_qp),
        max_qp_init_rd_atom: profile.max_qp_rd_atom,
        atomic_cap: 1, // among QPs of this device
        max_srq: profile.max_srq,
        max_srq_wr: profile.max_srq_wr,
        max_srq_sge: profile.max_sge,
        max_ah: MAX_AH,
        max_pkeys: 1,
        local_ca_ack_delay: 16,
        phys_port_cnt: 1,
        ..Default::default()
    }
}
