//! The exported queue pair, `kernels/include/warpverbs/qp.h`. One plain structure, [`Qp`], says where
//! everything lies; all that changes is behind [`Qp::state`].

use crate::header::Header;
use crate::status::{Outcome, Status};

pub(crate) const HEADER: Header = Header {
    path: "layout/qp.h",
    table: "layout/src/qp.rs",
    namespace: "wv",
    includes: &["arch/types.h"],
    items: &[
        CqMode::LAYOUT,
        NicFormat::LAYOUT,
        Cq::LAYOUT,
        Qp::LAYOUT,
        PollWord::LAYOUT,
        ErrorWord::LAYOUT,
        QueueState::LAYOUT,
        Fault::LAYOUT,
        PostState::LAYOUT,
        NUMBERS,
    ],
};

crate::layout! {
    /// How a CQ reports completions.
    pub enum CqMode: u8 as "cq_mode" {
        /// One CQE per completion, ownership by the owner bit, consumer index in the doorbell record.
        Ring = 0,
        /// `cc = 1, oi = 1`: every CQE overwrites slot 0; the poller reads only the newest index.
        Collapsed = 1,
    }

    /// Whose format the queues of a queue pair have.
    pub enum NicFormat: u8 as "nic_format" {
        /// NVIDIA's ConnectX.
        Mlx5 = 0,
        /// Broadcom's Thor: bnxt_re's, in variable mode with an MSN table.
        Bnxt = 1,
        /// AMD Pensando's Pollara: ionic's, of protocol 2.
        Ionic = 2,
    }

    /// A completion queue as the poster sees it.
    pub struct Cq[24]: Default {
        /// Address of the first CQE: 64 bytes each, or 32 of other formats than mlx5's.
        pub buf: u64,
        /// Address of the CQ doorbell record: be32 SET_CI, be32 ARM. Of other formats than mlx5's, that of
        /// the 64-bit doorbell.
        pub dbr: u64,
        /// CQ number.
        pub cqn: u32,
        /// log2 of the number of CQEs.
        pub log_size: u8,
        /// A [`CqMode`].
        pub mode: u8 as "cq_mode",
        /// Zero.
        pub reserved: [u8; 2],
    }

    /// A queue pair as the poster sees it. Never written after it was handed out. "WQEBB" is the unit of a
    /// send queue: 64 bytes, or of bnxt_re's format a WQE of three 16-byte slots.
    pub struct Qp[192] as "QpLayout" {
        /// Address of the send queue.
        pub sq: u64,
        /// Address of the receive queue, or 0 if there is none (SRQ, or no receives).
        pub rq: u64,
        /// Address of the QP doorbell record: be32 RCV counter, be32 SND counter. Of other formats than
        /// mlx5's, that of the 64-bit doorbell of the receive queue.
        pub dbr: u64,
        /// Address of the 64-bit doorbell register.
        pub doorbell: u64,
        /// Completions of the send queue.
        pub send_cq: Cq,
        /// Completions of the receive queue.
        pub recv_cq: Cq,
        /// Address of the [`PostState`].
        pub state: u64,
        /// Address of the SQ ready bitmap: one bit per WQEBB, flipped once per lap. u64 words.
        pub sq_ready: u64,
        /// Address of the RQ ready bitmap, as `sq_ready`; 0 if there is no RQ.
        pub rq_ready: u64,
        /// Address of one byte per SQ slot: WQEBBs of the signalled WQE that starts there.
        pub sq_span: u64,
        /// Address of a u32 that the host sets to non-zero to make every wait return `aborted`.
        pub abort: u64,
        /// Address of `scratch_slots` + 1 registered u64 for results of atomics; the last is a sink.
        pub scratch: u64,
        /// The deadline, in nanoseconds, of every wait that is not given its own.
        pub timeout_ns: u64,
        /// lkey of `scratch`, native order.
        pub scratch_lkey: u32,
        /// QP number, 24 bits.
        pub qpn: u32,
        /// log2 of the number of WQEBBs in the SQ, 7 to 15.
        pub log_sq: u8,
        /// log2 of the number of receive WQEs.
        pub log_rq: u8,
        /// log2 of the bytes of one receive WQE, 4 to 10; not of bnxt_re's format.
        pub log_rq_stride: u8,
        /// Largest inline payload in bytes divided by 4.
        pub inline_words: u8,
        /// The QP number, with `fenced_record` where that applies.
        pub send_tag: u32,
        /// Of bnxt_re's format: address of the MSN table, one u64 for each entry.
        pub packets: u64,
        /// A [`NicFormat`].
        pub format: u8 as "nic_format",
        /// Of bnxt_re's format: log2 of the entries of the MSN table, at least `log_sq`.
        pub log_packets: u8,
        /// Of bnxt_re's format: log2 of the path MTU, 8 to 12.
        pub log_mtu: u8,
        /// Of bnxt_re's format: 16-byte slots of one receive WQE, 3 or more.
        pub rq_slots: u8,
        /// Zero.
        pub reserved: [u8; 28],
    }

    /// `completed` of a queue and the lock of its poller, in one word: one release both raises the one
    /// and gives back the other.
    pub word PollWord[raw: u64] {
        /// Everything below this index is done.
        completed: u64 = 1..64,
        /// Somebody polls the CQ.
        locked: bool = 0..1,
    }

    /// The first error of a queue pair, packed so that one compare-and-swap claims it; never zero.
    pub word ErrorWord[raw: u64] | 0x8000_0000_0000_0000 {
        /// The `wv::Status` that every call of the device library returns from then on.
        status: u32 = 0..32,
        /// Low 16 bits of the failed WQE's index.
        wqe_counter: u16 = 32..48,
    }

    /// Counters of one work queue. Three 128-byte lines so that reserving, publishing and draining
    /// never share a line. Counters are in WQEBBs (SQ) or WQEs (RQ) and do not wrap: 64-bit, and
    /// `completed` 63-bit. `reserved ≥ published ≥ completed`.
    pub struct QueueState[384] {
        /// Next index to hand out; fetch-add by posters. Of bnxt_re's format the low 40 bits, with the
        /// packet number of the next WQE above.
        pub reserved: u64,
        /// End of the newest reservation that has no CQE of its own; raised by posters.
        pub unsignalled: u64,
        /// Keeps the line to itself.
        pub pad0: [u64; 14],
        /// Everything below this was rung. Written by the combiner only, who holds `ring_token`.
        pub published: u64,
        /// Combining token: fetch-add to ask for a ring, compare-and-swap to 0 to leave.
        pub ring_token: u32,
        /// Zero.
        pub pad1: u32,
        /// Keeps the line to itself.
        pub pad2: [u64; 14],
        /// A [`PollWord`]. Written by the poller, who holds its lock; others only set the lock.
        pub poll: u64,
        /// Consumer index of this queue's CQ, not masked. Written by the poller only.
        pub cq_ci: u64,
        /// Keeps the line to itself.
        pub pad3: [u64; 14],
    }

    /// The first wait on the queue pair that failed, for the host: the first writer claims it.
    pub struct Fault[40]: Default {
        /// 0 free, 1 being written, 2 complete.
        pub claim: u32,
        /// A `wv::Status` code (see `status.h`).
        pub status: u32,
        /// Purpose of the wait: a `wv::wait_for` code.
        pub what: u32,
        /// QPN of the queue.
        pub qpn: u32,
        /// The index (or value) that was waited for.
        pub expected: u64,
        /// The value found when the wait gave up.
        pub actual: u64,
        /// Flat thread number of the waiter: block * threads per block + thread.
        pub thread: u64,
    }

    /// The posting state of one QP: zero-filled at creation, except `scratch_free` (all ones).
    pub struct PostState[896] {
        /// Send queue.
        pub sq: QueueState,
        /// Receive queue.
        pub rq: QueueState,
        /// First error CQE, claimed once and kept; 0 while healthy. An [`ErrorWord`].
        pub error: u64,
        /// Bit i set: scratch slot i is free.
        pub scratch_free: u64,
        /// The first failed wait.
        pub fault: Fault,
        /// Keeps the line to itself.
        pub pad: [u64; 9],
    }

    consts NUMBERS {
        /// Words of a queue pair for results of atomics that name no buffer of their own.
        pub SCRATCH_SLOTS: usize as "u32" = 64,
        /// In Qp.send_tag: the send counter of the doorbell record is stored with a release of system
        /// scope, because a device behind PCIe may read it without having received a doorbell.
        /// Doorbells and control segments shift the bits above the 24 of the QP number out.
        pub FENCED_RECORD: u32 = 1 << 31,
        /// The ring token while nobody holds it and work is ready: the next thread that asks takes it.
        pub TOKEN_OFFERED: u32 = 1 << 31,
        /// Passes of one combiner before it offers the token to the next thread that asks.
        pub MOST_PASSES: u32 = 64,
        /// The claim of a fault that is completely written.
        pub FAULT_COMPLETE: u32 = 2,
    }
}

impl QueueState {
    /// Everything below this index is done.
    pub const fn completed(&self) -> u64 {
        PollWord(self.poll).completed()
    }
}

impl ErrorWord {
    /// Packs an outcome and the fields of its CQE.
    pub const fn failed(kind: Outcome, syndrome: u8, vendor: u8, opcode: u8, counter: u16) -> Self {
        Self::new(Status::new(kind as u8, syndrome, vendor, opcode).0, counter)
    }

    /// The status as fields.
    pub const fn fields(self) -> Status {
        Status(self.status())
    }

    /// Why the queue pair failed; `None` for an outcome unknown here.
    pub const fn outcome(self) -> Option<Outcome> {
        Outcome::from_value(self.fields().kind())
    }
}

impl core::fmt::Display for NicFormat {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Mlx5 => "mlx5",
            Self::Bnxt => "bnxt_re",
            Self::Ionic => "ionic",
        })
    }
}

impl PollWord {
    /// The bit that is set while somebody polls the CQ.
    pub const LOCKED: u64 = Self::new(0, true).0;
}
