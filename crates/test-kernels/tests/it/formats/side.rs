//! A queue pair of any format that kernels post to: queues made by hand, and the structure that tells a
//! kernel where they are.

use crate::bed::Bed;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use warpverbs::gpu::{Buffer, KernelPtr, Place, Qp};
use warpverbs::raw::mem::Access;
use warpverbs::raw::mlx5::export::{
    self, Cq, CqMode, NicFormat, PollWord, PostState, SCRATCH_SLOTS,
};
use warpverbs::raw::nic::{
    self, BnxtLibrary, BnxtMode, BnxtQueues, CqConfig, IonicProtocol, Mr, Mtu, PacketTable, Pd,
    QpAttrs, QpConfig, QpFormat, QpState, RqConfig,
};
use zerocopy::{FromZeros, IntoBytes};

/// log2 of WQEs, of receives, and of CQEs of either.
pub(crate) const LOG_SQ: u8 = 7;
const LOG_RQ: u8 = 4;
/// log2 of the bytes of a receive, but in bnxt_re's format its slots.
const LOG_STRIDE: u8 = 6;
const RECV_SLOTS: u8 = 3;
/// log2 of the entries of a table of packet numbers.
const LOG_PACKETS: u8 = LOG_SQ + 1;
/// As long as anything that a test waits for may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The formats in which kernels post.
pub(crate) const FORMATS: [NicFormat; 3] = [NicFormat::Mlx5, NicFormat::Bnxt, NicFormat::Ionic];

/// Parts of a queue pair's memory: name, bytes.
const PARTS: [(&str, usize); 14] = [
    ("sq", 64 << LOG_SQ),
    ("rq", 1 << (LOG_RQ + LOG_STRIDE)),
    ("send CQ", 64 << (LOG_SQ + 1)),
    ("recv CQ", 64 << (LOG_RQ + 1)),
    ("packets", 8 << LOG_PACKETS),
    ("record", 8),
    ("send CQ record", 8),
    ("recv CQ record", 8),
    ("abort", 4),
    ("ready", (1 << LOG_SQ) / 8),
    ("receives ready", 8),
    ("span", 1 << LOG_SQ),
    ("scratch", (SCRATCH_SLOTS + 1) * 8),
    ("state", size_of::<PostState>()),
];

/// One end of a connection.
pub(crate) struct Side {
    pub(crate) qp: nic::Qp,
    pub(crate) format: NicFormat,
    /// For kernels.
    pub(crate) exported: KernelPtr<Qp>,
    /// The first packet number, and the path MTU.
    psn: u32,
    parts: Vec<Buffer>,
    /// Scratch words of atomics.
    _scratch: Mr,
}

fn part<'a>(parts: &'a [Buffer], name: &str) -> &'a Buffer {
    &parts[PARTS.iter().position(|(part, _)| *part == name).expect("a part of this name")]
}

fn format_of_queues(format: NicFormat, packets: &Buffer) -> QpFormat {
    match format {
        NicFormat::Mlx5 => QpFormat::Mlx5,
        NicFormat::Ionic => QpFormat::Ionic { protocol: IonicProtocol::V2, log_wqe: 6 },
        NicFormat::Bnxt => QpFormat::Bnxt(BnxtQueues {
            library: BnxtLibrary::Current,
            mode: BnxtMode::Variable,
            slots: 3 << LOG_SQ,
            receive_slots: Some(RECV_SLOTS),
            counts_receive_slots: false,
            table: PacketTable::Msn,
            packets: packets.region().clone(),
            log_packets: LOG_PACKETS,
            handle: 0x1234_5678_9abc,
        }),
    }
}

impl Side {
    /// Makes one, whose send queue counts from `start` on: a multiple of all numbers by which its format
    /// counts, so that the NIC sees none of it.
    pub(crate) fn new(bed: &Bed, pd: &Pd, format: NicFormat, start: u64, psn: u32) -> Self {
        let parts: Vec<_> =
            PARTS.map(|(_, len)| bed.gpu.alloc(len, Place::Shared).expect("memory")).into();
        let at = |name: &str| part(&parts, name);
        let queues = format_of_queues(format, at("packets"));
        let cq = |ring: &str, record: &str, log_size| {
            let config = CqConfig {
                dialect: queues.dialect(),
                mode: CqMode::Ring,
                log_size,
                cqe_size: Default::default(),
                buf: at(ring).region().clone(),
                dbr: at(record).region().clone(),
                ignore_overrun: false,
                notice: None,
            };
            bed.nic.create_cq(&config).expect("a CQ")
        };
        let (send_cq, recv_cq) = (
            cq("send CQ", "send CQ record", LOG_SQ + 1),
            cq("recv CQ", "recv CQ record", LOG_RQ + 1),
        );
        let exported_cq = |ring, record, cq: &nic::Cq, log_size| Cq {
            buf: at(ring).kernel_addr(),
            dbr: at(record).kernel_addr(),
            cqn: cq.cqn(),
            log_size,
            mode: CqMode::Ring as u8,
            reserved: [0; 2],
        };
        let cqs = [
            exported_cq("send CQ", "send CQ record", &send_cq, LOG_SQ + 1),
            exported_cq("recv CQ", "recv CQ record", &recv_cq, LOG_RQ + 1),
        ];
        let buf = at("rq").region().clone();
        let config = QpConfig {
            format: queues,
            service: Default::default(),
            send_cq,
            recv_cq,
            sq: at("sq").region().clone(),
            log_sq: LOG_SQ,
            rq: RqConfig::Own { buf, log_rq: LOG_RQ, log_stride: LOG_STRIDE },
            dbr: at("record").region().clone(),
            announcement: Default::default(),
            on_send_error: Default::default(),
            user_index: None,
            scatter_to_cqe: Default::default(),
            consume_only: false,
        };
        let qp = bed.nic.create_qp(pd, config).expect("a QP");
        let scratch = at("scratch").region();
        let scratch = bed.nic.reg_mr(pd, scratch, Access::LOCAL_WRITE).expect("a key");
        let exported = exported(bed, format, &qp, &parts, cqs, scratch.lkey());
        let side = Self { qp, format, exported, psn, parts, _scratch: scratch };
        side.count_from(start);
        side
    }

    /// The state of a queue that has posted and completed `start` WQEs.
    fn count_from(&self, start: u64) {
        let mut state = PostState::new_zeroed();
        state.scratch_free = u64::MAX;
        state.sq.reserved = match self.format {
            NicFormat::Bnxt => (u64::from(self.psn) << 40).wrapping_add(start),
            NicFormat::Mlx5 | NicFormat::Ionic => start,
        };
        state.sq.published = start;
        state.sq.poll = PollWord::new(start, false).0;
        self.part("state").region().write(0, state.as_bytes()).expect("inside");
        // The entry before the first: the next packet number.
        let packets = self.part("packets").region();
        let last = packets.atomic_u64((8 << LOG_PACKETS) - 8).expect("inside");
        last.store(u64::from(self.psn) << 24, Ordering::Release);
    }

    fn part(&self, name: &str) -> &Buffer {
        part(&self.parts, name)
    }

    /// Leaves RESET for RTS, connected to `peer`.
    pub(crate) fn connect(&self, peer: &Self, mtu: Mtu) {
        let rtr = QpAttrs { mtu: Some(mtu), rq_psn: Some(peer.psn), ..QpAttrs::rtr(peer.qp.qpn()) };
        let rts = QpAttrs { sq_psn: Some(self.psn), rnr_retry: Some(7), ..QpAttrs::rts() };
        let init = QpAttrs::init(Access::all());
        for (state, attrs) in [(QpState::Init, &init), (QpState::Rtr, &rtr), (QpState::Rts, &rts)] {
            self.qp.modify(state, attrs).expect("the usual way to RTS");
        }
    }
}

/// The path MTU of every connection here.
pub(crate) const MTU: Mtu = Mtu::B512;

/// The structure for kernels, in memory of its own.
#[allow(unsafe_code)]
fn exported(
    bed: &Bed,
    format: NicFormat,
    qp: &nic::Qp,
    parts: &[Buffer],
    [send_cq, recv_cq]: [Cq; 2],
    scratch_lkey: u32,
) -> KernelPtr<Qp> {
    let at = |name: &str| part(parts, name).kernel_addr();
    let doorbells = bed.gpu.map(bed.nic.doorbells()).expect("doorbells");
    let image = export::Qp {
        sq: at("sq"),
        rq: at("rq"),
        dbr: at("record"),
        doorbell: doorbells.kernel_addr() + qp.doorbell_offset(),
        send_cq,
        recv_cq,
        state: at("state"),
        sq_ready: at("ready"),
        rq_ready: at("receives ready"),
        sq_span: at("span"),
        abort: at("abort"),
        scratch: at("scratch"),
        timeout_ns: TIMEOUT.as_nanos() as u64,
        scratch_lkey,
        qpn: qp.qpn(),
        log_sq: LOG_SQ,
        log_rq: LOG_RQ,
        log_rq_stride: LOG_STRIDE,
        inline_words: if format == NicFormat::Ionic { 8 } else { 4 },
        send_tag: qp.qpn(),
        packets: at("packets"),
        format: format as u8,
        log_packets: LOG_PACKETS,
        log_mtu: 9,
        rq_slots: RECV_SLOTS,
        reserved: [0; 28],
    };
    let buffer = bed.gpu.alloc(size_of::<export::Qp>(), Place::Device).expect("memory");
    bed.gpu.write(&buffer, 0, image.as_bytes()).expect("write");
    let keep = Arc::new((parts.to_vec(), doorbells));
    // SAFETY: the buffer holds a queue pair that nobody changes, the kernels of these tests look at its
    // format first, and `keep` has all memory that it points to.
    let pointer = unsafe { KernelPtr::from_buffer(&buffer, keep) };
    parts.iter().fold(pointer, KernelPtr::reaching)
}
