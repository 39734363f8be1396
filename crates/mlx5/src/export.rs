//! The exported QP: what the host hands to a kernel so that it can post by itself.
//!
//! One plain struct, [`Qp`], says where everything lies; the only mutable bookkeeping is behind
//! [`Qp::state`], a [`PostState`] followed by nothing else. Both are mirrored field by field in
//! `kernels/include/warpverbs/qp.h`; the offsets below are asserted on both sides.
//!
//! Addresses are the ones the *poster* uses (a device pointer for a GPU). Integers here are in
//! native (little-endian) byte order, unlike everything the NIC reads.

use core::mem::{offset_of, size_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How a CQ reports completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CqMode {
    /// One CQE per completion, ownership by the owner bit, consumer index in the doorbell record.
    Ring = 0,
    /// `cc = 1, oi = 1`: every CQE overwrites slot 0; the poller reads only the newest index.
    Collapsed = 1,
}

/// A completion queue as the poster sees it.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cq {
    /// Address of the first 64-byte CQE.
    pub buf: u64,
    /// Address of the CQ doorbell record: be32 SET_CI, be32 ARM.
    pub dbr: u64,
    /// CQ number.
    pub cqn: u32,
    /// log2 of the number of CQEs.
    pub log_size: u8,
    /// A [`CqMode`].
    pub mode: u8,
    /// Zero.
    pub reserved: [u8; 2],
}

/// A queue pair as the poster sees it. 192 bytes, never written after it was handed out.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Qp {
    /// Address of the send queue, 64-byte WQEBBs.
    pub sq: u64,
    /// Address of the receive queue, or 0 if there is none (SRQ, or no receives).
    pub rq: u64,
    /// Address of the QP doorbell record: be32 RCV counter, be32 SND counter.
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
    /// Address of [`SCRATCH_SLOTS`] + 1 registered u64 for results of atomics; the last is a sink.
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
    /// log2 of the bytes of one receive WQE, 4 to 10.
    pub log_rq_stride: u8,
    /// Largest inline payload in bytes divided by 4.
    pub inline_words: u8,
    /// The QP number, with [`Qp::FENCED_RECORD`] where that applies.
    pub send_tag: u32,
    /// Zero.
    pub reserved: [u8; 40],
}

impl Qp {
    /// In [`Qp::send_tag`]: the send counter of the doorbell record is stored with a release of system
    /// scope, because a device behind PCIe may read it without having received a doorbell. It lies
    /// above the 24 bits of the QP number, which doorbells and control segments shift out.
    pub const FENCED_RECORD: u32 = 1 << 31;
}

/// `completed` of a queue and the lock of its poller, in one word, so that one release both raises
/// the one and gives back the other. Bit 0: somebody polls the CQ; the 63 bits above it: everything
/// below is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollWord(pub u64);

impl PollWord {
    /// The bit that is set while somebody polls the CQ.
    pub const LOCKED: u64 = 1;

    /// Packs the two.
    #[inline]
    pub const fn new(completed: u64, locked: bool) -> Self {
        Self(completed << 1 | locked as u64)
    }

    /// Everything below this index is done.
    #[inline]
    pub const fn completed(self) -> u64 {
        self.0 >> 1
    }

    /// Somebody polls the CQ.
    #[inline]
    pub const fn locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }
}

/// Counters of one work queue. Three 128-byte lines so that reserving, publishing and draining
/// never share a line. Counters are in WQEBBs (SQ) or WQEs (RQ) and do not wrap: 64-bit, and
/// `completed` 63-bit. `reserved ≥ published ≥ completed`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueueState {
    /// Next index to hand out; fetch-add by posters.
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

impl QueueState {
    /// Everything below this index is done.
    pub const fn completed(&self) -> u64 {
        PollWord(self.poll).completed()
    }
}

/// What a wait that failed leaves for the host: first writer wins (`claim`).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Fault {
    /// 0 free, 1 being written, 2 complete.
    pub claim: u32,
    /// A `wv::Status` code (see `status.h`).
    pub status: u32,
    /// What was waited for: a `wv::WaitFor` code.
    pub what: u32,
    /// QPN of the queue.
    pub qpn: u32,
    /// The index (or value) that was waited for.
    pub expected: u64,
    /// What was there when the wait gave up.
    pub actual: u64,
    /// Flat thread number of the waiter: block * threads per block + thread.
    pub thread: u64,
}

/// The posting state of one QP: zero-filled at creation, except `scratch_free` (all ones).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PostState {
    /// Send queue.
    pub sq: QueueState,
    /// Receive queue.
    pub rq: QueueState,
    /// First error CQE, claimed once and kept; 0 while healthy. See [`ErrorWord`].
    pub error: u64,
    /// Bit i set: scratch slot i is free.
    pub scratch_free: u64,
    /// The first failed wait.
    pub fault: Fault,
    /// Keeps the line to itself.
    pub pad: [u64; 9],
}

/// Scratch slots per QP for results of atomics that name no buffer of their own.
pub const SCRATCH_SLOTS: usize = 64;

/// Why a queue pair failed. The numbers are those of `wv::outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// A poster gave up after it had reserved: a hole in the queue that nobody will fill.
    PosterGaveUp = 2,
    /// The CQE of a failed send work request.
    Requester = 4,
    /// The CQE of a failed receive.
    Responder = 5,
    /// A CQE that is neither a completion nor an error.
    BadCqe = 7,
    /// A completion that names no work in flight.
    StrayCqe = 8,
}

/// The error word: the first error of a queue pair, packed so that one compare-and-swap claims it.
///
/// bits 63: 1 (never zero) · 47..32 wqe_counter · 31..24 WQE opcode · 23..16 vendor syndrome ·
/// 15..8 syndrome · 7..0 [`Cause`]. The low 32 bits are the `wv::Status` that every call of the
/// device library returns from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorWord(pub u64);

impl ErrorWord {
    /// Packs a cause and the fields of its CQE.
    pub const fn new(cause: Cause, syndrome: u8, vendor: u8, wqe_opcode: u8, counter: u16) -> Self {
        let status = [cause as u8, syndrome, vendor, wqe_opcode];
        Self(1 << 63 | (counter as u64) << 32 | u32::from_le_bytes(status) as u64)
    }

    /// Why the queue pair failed; `None` for a cause unknown here.
    pub const fn cause(self) -> Option<Cause> {
        match self.0 as u8 {
            2 => Some(Cause::PosterGaveUp),
            4 => Some(Cause::Requester),
            5 => Some(Cause::Responder),
            7 => Some(Cause::BadCqe),
            8 => Some(Cause::StrayCqe),
            _ => None,
        }
    }

    /// Syndrome byte of the CQE.
    pub const fn syndrome(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Vendor syndrome byte of the CQE; advisory.
    pub const fn vendor(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// Opcode of the failed WQE.
    pub const fn wqe_opcode(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// Low 16 bits of the failed WQE's index.
    pub const fn wqe_counter(self) -> u16 {
        (self.0 >> 32) as u16
    }
}

const _: () = {
    assert!(size_of::<Cq>() == 24);
    assert!(size_of::<Qp>() == 192);
    assert!(offset_of!(Qp, send_cq) == 32);
    assert!(offset_of!(Qp, recv_cq) == 56);
    assert!(offset_of!(Qp, state) == 80);
    assert!(offset_of!(Qp, abort) == 112);
    assert!(offset_of!(Qp, timeout_ns) == 128);
    assert!(offset_of!(Qp, qpn) == 140);
    assert!(offset_of!(Qp, log_sq) == 144);
    assert!(offset_of!(Qp, send_tag) == 148);
    assert!(size_of::<QueueState>() == 384);
    assert!(offset_of!(QueueState, published) == 128);
    assert!(offset_of!(QueueState, poll) == 256);
    assert!(offset_of!(QueueState, cq_ci) == 264);
    assert!(size_of::<Fault>() == 40);
    assert!(size_of::<PostState>() == 896);
    assert!(offset_of!(PostState, rq) == 384);
    assert!(offset_of!(PostState, error) == 768);
};
