//! The device's limits, its port and its addresses: answers that need its profile alone, and what is
//! checked against it.

use crate::Refusal;
use crate::abi::{
    ExQueryDevice, ExQueryDeviceResp, GidEntry, QueryDeviceResp, QueryPortResp, QueryPortRespEx,
    take,
};
use crate::call::Call;
use crate::device::Profile;
use crate::schema::{DRIVER, UHW_OUT};
use zerocopy::IntoBytes;

/// `IB_DEVICE_SYS_IMAGE_GUID` and `IB_DEVICE_RC_RNR_NAK_GEN`.
const DEVICE_CAPS: u32 = 1 << 11 | 1 << 12;
/// `RDMA_TRANSPORT_IB` over Ethernet: GIDs, no LIDs (`IB_UVERBS_QPF_GRH_REQUIRED`).
const GRH_REQUIRED: u8 = 1;
/// `IB_UVERBS_GID_TYPE_ROCE_V2`.
const ROCE_V2: u32 = 2;
/// Address handles cost the device nothing.
const MAX_AH: u32 = 1 << 24;

pub(super) fn ex_query_device(profile: &Profile, call: &mut Call) -> Result<(), Refusal> {
    let request: ExQueryDevice = take(call.bytes(0).unwrap_or(&[]));
    if request != ExQueryDevice::default() {
        return Err(Refusal::invalid(format!("reserved words are set: {request:x?}")));
    }
    let room = call.room(1).unwrap_or(0);
    let length = room.min(size_of::<ExQueryDeviceResp>()) as u32;
    let base = query_device(profile);
    let answer = ExQueryDeviceResp { base, response_length: length, ..Default::default() };
    call.answer(1, answer.as_bytes());
    if let Some(answer) = profile.driver.capabilities(call.room(UHW_OUT).unwrap_or(0)) {
        call.answer(UHW_OUT, answer);
    }
    Ok(())
}

pub(super) fn query_port(profile: &Profile, call: &mut Call) -> Result<(), Refusal> {
    check_port(call.number(0))?;
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

fn gid_entry(profile: &Profile, index: u32) -> Option<GidEntry> {
    let found = profile.gids.get(index as usize)?;
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| found.gid[at + i]));
    Some(GidEntry {
        gid: [half(0), half(8)],
        gid_index: index,
        port_num: 1,
        gid_type: ROCE_V2,
        netdev_ifindex: found.ifindex,
    })
}

pub(super) fn query_gid_entry(profile: &Profile, call: &mut Call) -> Result<(), Refusal> {
    call.flags(2, 0)?;
    check_port(call.number(0))?;
    let index = call.number(1);
    let Some(entry) = u32::try_from(index).ok().and_then(|index| gid_entry(profile, index)) else {
        let gids = profile.gids.len();
        return Err(Refusal::invalid(format!("GID {index} of {gids}")));
    };
    call.answer(3, entry.as_bytes());
    Ok(())
}

pub(super) fn query_gid_table(profile: &Profile, call: &mut Call) -> Result<(), Refusal> {
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
    for index in 0..profile.gids.len() as u32 {
        let Some(entry) = gid_entry(profile, index) else { break };
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

pub(super) fn query_eqn(profile: &Profile, call: &mut Call) -> Result<(), Refusal> {
    let (vector, vectors) = (call.word(DRIVER), profile.comp_vectors);
    if vector >= vectors {
        return Err(Refusal::invalid(format!("completion vector {vector} of {vectors}")));
    }
    call.answer(DRIVER + 1, eqn(vector).to_ne_bytes());
    Ok(())
}

/// Number of the event queue of a completion vector.
fn eqn(vector: u32) -> u32 {
    vector + 1
}

/// Entries of a CQ, all but one of which are what the program asks for.
pub(super) fn cq_entries(profile: &Profile, wanted: u32) -> Result<u32, Refusal> {
    let max = profile.max_cqe;
    let entries = wanted.checked_add(1).and_then(u32::checked_next_power_of_two);
    let entries = entries.filter(|entries| (2..=max).contains(entries));
    entries.ok_or_else(|| Refusal::invalid(format!("{wanted} CQEs, expected 1 to {}", max - 1)))
}

/// A path has a port, a GID of the peer, and one of the port's own.
pub(super) fn check_route(profile: &Profile, port: u8, global: u8, gid: u8) -> Result<(), Refusal> {
    check_port(port.into())?;
    if global == 0 {
        return Err(Refusal::invalid("RoCE needs a GID of the peer (is_global is 0)"));
    }
    let gids = profile.gids.len();
    if usize::from(gid) >= gids {
        return Err(Refusal::invalid(format!("own GID {gid} of {gids}")));
    }
    Ok(())
}
pub(super) fn check_port(port: u64) -> Result<(), Refusal> {
    match port {
        1 => Ok(()),
        _ => Err(Refusal::invalid(format!("port {port}, there is only port 1"))),
    }
}

pub(super) fn query_device(profile: &Profile) -> QueryDeviceResp {
    let guid = profile.node_guid.to_be();
    QueryDeviceResp {
        fw_ver: profile.fw_ver,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: profile.driver.vendor(),
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
