//! Mailboxes. Fields that are not named are zero on purpose; the table in `tests.rs` lists both.

use crate::provider::PathSpec;
use warpverbs_mem::Access;
use warpverbs_mlx5::prm::{
    AddressPath, Command, CqContext, QpContext, RmpChange, RmpContext, Transition, UmemBuffer,
};
use warpverbs_verbs::Path;
use warpverbs_verbs::mlx5dv::AddressVector;

/// `pm_state`: migrated, the only state without an alternate path.
const MIGRATED: u32 = 3;
/// `ts_format`: the device's default, which every generation takes.
const TS_DEFAULT: u32 = 1;
/// `rq_type`: an own queue, a shared one, none.
const RQ_OWN: u32 = 0;
const RQ_SHARED: u32 = 1;
const RQ_NONE: u32 = 3;
/// State of a receive memory pool: ready.
const POOL_READY: u32 = 1;
/// `atomic_mode`: up to 8 bytes, with extended atomics of 4 bytes.
const ATOMICS_OF_8: u32 = 3;
/// log2 of the longest message, which every device has.
const LOG_MSG_MAX: u32 = 30;
/// A receive stride of 0 is 16 bytes.
const LOG_STRIDE_UNIT: u8 = 4;

/// Where a CQ lies and what it works with; offsets are in the umem.
pub(super) struct CqPlace {
    pub(super) umem: u32,
    pub(super) buf: u64,
    pub(super) record: u64,
    pub(super) uar: u32,
    pub(super) eqn: u32,
    pub(super) log_size: u8,
}

/// Where a QP lies and what it works with; offsets are in the umem.
pub(super) struct QpPlace {
    pub(super) umem: u32,
    pub(super) record: u64,
    /// Umem of the queues, and the receive queue in it; the send queue without one.
    pub(super) wq: (u32, u64),
    pub(super) uar: u32,
    pub(super) pd: u32,
    /// Of sends and receives.
    pub(super) cqs: [u32; 2],
    pub(super) log_sq: u8,
    pub(super) receives: Receives,
}

/// Where receives come from.
#[derive(Clone, Copy)]
pub(super) enum Receives {
    None,
    /// log2 of their number, and of the bytes of one.
    Own(u8, u8),
    /// The pool of this number.
    Shared(u32),
}

/// Where a receive memory pool lies; offsets are in the umem.
pub(super) struct PoolPlace {
    pub(super) umem: u32,
    pub(super) buf: u64,
    pub(super) record: u64,
    pub(super) pd: u32,
    pub(super) log_size: u8,
    pub(super) log_stride: u8,
}

/// CREATE_CQ: a ring of 64-byte CQEs that nobody arms.
pub(super) fn create_cq(place: &CqPlace) -> Command {
    let context = CqContext {
        dbr_umem_valid: 1,
        dbr_umem_id: place.umem,
        log_cq_size: place.log_size.into(),
        uar_page: place.uar,
        c_eqn: place.eqn,
        dbr_addr: place.record,
        ..CqContext::default()
    };
    let buffer = UmemBuffer { offset: place.buf, umem: place.umem, valid: 1 };
    Command::CreateCq { context, buffer }
}

/// CREATE_QP: a reliable connection, the send queue directly behind the receive queue.
pub(super) fn create_qp(place: &QpPlace) -> Command {
    let [cqn_send, cqn_receive] = place.cqs;
    let (rq_type, log_rq, log_stride, srqn) = match place.receives {
        Receives::Own(log, stride) => (RQ_OWN, log, stride - LOG_STRIDE_UNIT, 0),
        Receives::Shared(number) => (RQ_SHARED, 0, 0, number),
        Receives::None => (RQ_NONE, 0, 0, 0),
    };
    let context = QpContext {
        path_migration: MIGRATED,
        pd: place.pd,
        log_rq_size: log_rq.into(),
        log_rq_stride: log_stride.into(),
        log_sq_size: place.log_sq.into(),
        ts_format: TS_DEFAULT,
        uar_page: place.uar,
        cqn_send,
        cqn_receive,
        dbr_addr: place.record,
        rq_type,
        srqn,
        dbr_umem_valid: 1,
        dbr_umem_id: place.umem,
        ..QpContext::default()
    };
    let (umem, offset) = place.wq;
    let buffer = UmemBuffer { offset, umem, valid: 1 };
    Command::CreateQp { context, path: AddressPath::default(), buffer }
}

/// CREATE_RMP: receives in the order of their links.
pub(super) fn create_pool(place: &PoolPlace) -> Command {
    let context = RmpContext {
        state: POOL_READY,
        pd: place.pd,
        dbr_addr: place.record,
        log_stride: place.log_stride.into(),
        log_size: place.log_size.into(),
        dbr_umem_id: place.umem,
        wq_umem_id: place.umem,
        wq_umem_offset: place.buf,
        ..RmpContext::default()
    };
    Command::CreateRmp { context }
}

/// MODIFY_RMP: one event when fewer receives are left.
pub(super) fn limit_pool(number: u32, limit: u16) -> Command {
    let change = RmpChange { state: POOL_READY, number, limit: 1 };
    let limit = limit.into();
    Command::ModifyRmp {
        change,
        context: RmpContext { state: POOL_READY, limit, ..RmpContext::default() },
    }
}

fn modify(transition: Transition, qpn: u32, context: QpContext, path: AddressPath) -> Command {
    Command::ModifyQp { transition, qpn, options: 0, context, path }
}

/// RST2INIT_QP: what peers may do, and the port.
pub(super) fn to_init(qpn: u32, port: u8, access: Access) -> Command {
    let allows = |right| access.contains(right).into();
    let context = QpContext {
        path_migration: MIGRATED,
        remote_read: allows(Access::REMOTE_READ),
        remote_write: allows(Access::REMOTE_WRITE),
        remote_atomic: allows(Access::REMOTE_ATOMIC),
        atomic_mode: ATOMICS_OF_8,
        ..QpContext::default()
    };
    let path = AddressPath { vhca_port_num: port.into(), ..AddressPath::default() };
    modify(Transition::ResetToInit, qpn, context, path)
}

fn halves(gid: [u8; 16]) -> [u64; 2] {
    let (high, low) = gid.split_at(8);
    [high, low].map(|half| half.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// How packets reach the peer.
fn address(path: &Path, found: &AddressVector, ethernet: bool) -> AddressPath {
    let [rgid_high, rgid_low] = halves(found.rgid.0);
    let mac = found.rmac.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let (index, flow_label) = path.global.map_or((0, 0), |it| (it.sgid_index, it.flow_label));
    let routed = AddressPath {
        src_addr_index: index.into(),
        hop_limit: found.hop_limit.into(),
        tclass: found.tclass.into(),
        rgid_high,
        rgid_low,
        vhca_port_num: path.port.into(),
        ..AddressPath::default()
    };
    match ethernet {
        true => AddressPath {
            dscp: u32::from(found.tclass) >> 2,
            udp_sport: found.rlid.into(),
            eth_prio: path.sl.into(),
            rmac_high: (mac >> 32) as u32,
            rmac_low: mac as u32,
            ..routed
        },
        false => AddressPath {
            grh: path.global.is_some().into(),
            mlid: path.src_path_bits.into(),
            rlid: path.dlid.into(),
            flow_label,
            sl: path.sl.into(),
            stat_rate: path.static_rate.into(),
            ..routed
        },
    }
}

/// INIT2RTR_QP: who the peer is and where. READs and atomics that are served are rounded up to a
/// power of two, so that no fewer are.
pub(super) fn to_rtr(
    qpn: u32,
    spec: &PathSpec,
    path: &Path,
    found: &AddressVector,
    ethernet: bool,
) -> Command {
    let context = QpContext {
        mtu: spec.mtu as u32,
        log_msg_max: LOG_MSG_MAX,
        remote_qpn: spec.dest_qpn,
        log_rra_max: u32::from(spec.max_dest_rd_atomic.max(1)).next_power_of_two().ilog2(),
        min_rnr_nak: spec.min_rnr_timer.into(),
        next_receive_psn: spec.rq_psn,
        ..QpContext::default()
    };
    modify(Transition::InitToRtr, qpn, context, address(path, found, ethernet))
}

/// RTR2RTS_QP: how often and when requests are repeated. READs and atomics that are asked at a time
/// are rounded down to a power of two, so that the peer serves them all.
pub(super) fn to_rts(qpn: u32, spec: &PathSpec, port: u8) -> Command {
    let context = QpContext {
        log_sra_max: u32::from(spec.max_rd_atomic.max(1)).ilog2(),
        retry_count: spec.retry.into(),
        rnr_retry: spec.rnr_retry.into(),
        next_send_psn: spec.sq_psn,
        ..QpContext::default()
    };
    let path = AddressPath {
        ack_timeout: spec.ack_timeout.into(),
        vhca_port_num: port.into(),
        ..AddressPath::default()
    };
    modify(Transition::RtrToRts, qpn, context, path)
}
