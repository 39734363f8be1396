//! Sizes of an endpoint's queues, and where the parts of its two allocations lie.

use crate::config::EndpointConfig;
use crate::limits::{BNXT_SLOTS, MAX_INLINE};
use warpverbs_mlx5::export::{CqMode, NicFormat, PostState, Qp, SCRATCH_SLOTS};

/// Parts begin on lines of their own, also for prefetchers that fetch lines in pairs.
pub(super) const ALIGN: u64 = 128;
/// Queues of bnxt_re and ionic begin on pages of their own: libraries give devices pages.
const PAGE: u64 = 4096;
/// log2 of the bytes of a ring of ionic at least: libraries make none below a page.
const LOG_PAGE: u8 = PAGE.ilog2() as u8;

/// Sizes of an endpoint's queues.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) format: NicFormat,
    pub(crate) log_send: u8,
    /// log2 of the receives, own or (with an SRQ) those the CQ can report.
    pub(crate) log_recv: u8,
    /// Bytes of a receive: a power of two, but in bnxt_re's format as many slots as it uses.
    pub(crate) recv_bytes: u16,
    pub(crate) own_recv: bool,
    pub(crate) send_cq_mode: CqMode,
    pub(crate) log_send_cq: u8,
    pub(crate) log_recv_cq: u8,
    pub(crate) inline_bytes: usize,
}

impl Shape {
    /// `send_cq` is how the NIC reports what was sent, `format` that of its queues.
    pub(crate) fn new(config: &EndpointConfig, send_cq: CqMode, format: NicFormat) -> Self {
        let log_send = config.log_send();
        // Ring CQs are twice as long as their queues: pollers give entries back late (`gives_back`).
        let log_send_cq = if send_cq == CqMode::Ring { log_send + 1 } else { 0 };
        // Header, segment or entries of a receive of mlx5's format are 16 bytes each; others have two ahead.
        let entries = 16 * config.recv_sges as u16;
        let recv_bytes = match format {
            NicFormat::Mlx5 => entries,
            NicFormat::Bnxt => 32 + entries,
            NicFormat::Ionic => (32 + entries).next_power_of_two(),
        };
        let log_recv = match format {
            // The sends are more in any case.
            NicFormat::Ionic if config.has_own_recv() => {
                config.log_recv().max(LOG_PAGE.saturating_sub(recv_bytes.ilog2() as u8))
            }
            _ => config.log_recv(),
        };
        Self {
            format,
            log_send,
            log_recv,
            recv_bytes,
            own_recv: config.has_own_recv(),
            send_cq_mode: send_cq,
            log_send_cq,
            log_recv_cq: log_recv_cq(format, log_recv),
            inline_bytes: (config.inline_bytes as usize).min(most_inline(format)),
        }
    }
}

impl Shape {
    /// Posters count packets, and write a table of them.
    pub(crate) fn counts_packets(&self) -> bool {
        self.format == NicFormat::Bnxt
    }

    /// The table of packet numbers in the memory of the send queue, behind its slots: where it begins, and
    /// log2 of its entries of 8 bytes. Devices want one for every two slots, rounded up.
    pub(crate) fn packets(&self) -> Option<(u64, u8)> {
        let at = (u64::from(BNXT_SLOTS) * 16) << self.log_send;
        self.counts_packets().then_some((at, self.log_send + 1))
    }
}

/// log2 of the CQEs for 2^`log_recv` receives. Those of ionic fill a page of CQEs of 32 bytes.
fn log_recv_cq(format: NicFormat, log_recv: u8) -> u8 {
    match format {
        NicFormat::Ionic => (log_recv + 1).max(LOG_PAGE - 5),
        NicFormat::Mlx5 | NicFormat::Bnxt => log_recv + 1,
    }
}

/// Inline bytes of one WQE at most: of other formats than mlx5's WQEs have one size.
fn most_inline(format: NicFormat) -> usize {
    match format {
        NicFormat::Mlx5 => MAX_INLINE as usize,
        NicFormat::Bnxt => 16,
        NicFormat::Ionic => 32,
    }
}

/// Offsets and lengths of the parts of one allocation.
#[derive(Debug, Default)]
struct Plan {
    end: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) at: u64,
    pub(super) len: usize,
}

impl Plan {
    fn part(&mut self, len: usize) -> Part {
        self.aligned(len, ALIGN)
    }

    fn aligned(&mut self, len: usize, align: u64) -> Part {
        let at = self.end.next_multiple_of(align);
        self.end = at + len as u64;
        Part { at, len }
    }

    /// A part that ends where a line does.
    fn end_of_line(&mut self, len: usize) -> Part {
        let whole = self.part(len.next_multiple_of(ALIGN as usize));
        Part { at: whole.at + (whole.len - len) as u64, len }
    }
}

/// Memory that poster and NIC share: rings, CQs, records, scratch, and the word that aborts.
#[derive(Debug)]
pub(super) struct Rings {
    /// Directly before the send queue: an mlx5 device takes both as one piece.
    pub(super) rq: Part,
    /// None if it lies elsewhere.
    pub(super) sq: Option<Part>,
    pub(super) send_cq: Part,
    pub(super) recv_cq: Part,
    pub(super) record: Part,
    pub(super) send_cq_record: Part,
    pub(super) recv_cq_record: Part,
    pub(super) scratch: Part,
    pub(super) abort: Part,
}

/// Memory that only posters touch.
#[derive(Debug)]
pub(super) struct State {
    pub(super) state: Part,
    pub(super) sq_ready: Part,
    pub(super) rq_ready: Part,
    pub(super) span: Part,
    pub(super) qp: Part,
}

impl Rings {
    /// Their parts, and the bytes of all.
    pub(super) fn new(shape: &Shape, with_send_queue: bool) -> (Self, u64) {
        let recv = 1usize << shape.log_recv;
        // A power of two in every format: the host counts round the whole of it.
        let received = (recv * usize::from(shape.recv_bytes)).next_power_of_two();
        let received = if shape.own_recv { received } else { 0 };
        let mut plan = Plan::default();
        let (align, rq) = match shape.format {
            NicFormat::Bnxt | NicFormat::Ionic => (PAGE, plan.aligned(received, PAGE)),
            NicFormat::Mlx5 => (ALIGN, plan.end_of_line(received)),
        };
        let rings = Self {
            rq,
            sq: with_send_queue.then(|| plan.aligned(64 << shape.log_send, align)),
            send_cq: plan.aligned(64 << shape.log_send_cq, align),
            recv_cq: plan.aligned(64 << shape.log_recv_cq, align),
            record: plan.part(8),
            send_cq_record: plan.part(8),
            recv_cq_record: plan.part(8),
            scratch: plan.part((SCRATCH_SLOTS + 1) * 8),
            abort: plan.part(4),
        };
        (rings, plan.end)
    }
}

impl State {
    /// Its parts, and the bytes of all.
    pub(super) fn new(shape: &Shape) -> (Self, u64) {
        let (send, recv) = (1usize << shape.log_send, 1usize << shape.log_recv);
        let mut plan = Plan::default();
        let state = Self {
            state: plan.part(size_of::<PostState>()),
            sq_ready: plan.part(send.div_ceil(64) * 8),
            rq_ready: plan.part(recv.div_ceil(64) * 8),
            span: plan.part(send),
            qp: plan.part(size_of::<Qp>()),
        };
        (state, plan.end)
    }
}
