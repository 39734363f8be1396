//! The exported QP: what the host hands to a kernel so that it can post by itself.
//!
//! One plain struct, [`Qp`], says where everything lies; the only mutable bookkeeping is behind
//! [`Qp::state`], a [`PostState`] followed by nothing else. `warpverbs-layout` declares both, for Rust and
//! for `kernels/include/warpverbs/qp.h`.
//!
//! Addresses are the ones the *poster* uses (a device pointer for a GPU). Integers here are in
//! native (little-endian) byte order, unlike everything the NIC reads.

pub use warpverbs_layout::{Cq, CqMode, Fault, PollWord, PostState, Qp, QueueState};

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
