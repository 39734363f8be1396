//! Doorbells and doorbell records.
//!
//! A record is memory that the poster writes before it rings, and that the NIC may read instead
//! of a doorbell it missed. A doorbell is one 8-byte store to the NIC.

use crate::num::{Be24, Qpn, WqeIndex, wqebbs};
use zerocopy::byteorder::{BE, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

warpverbs_layout::layout! {
    /// Doorbell record of a QP, 8 bytes.
    pub struct QpDbr[8]: Default, PartialEq, Eq, Unaligned {
        /// RCV: receive WQEs posted so far, 16 bits.
        pub rcv: U32<BE>,
        /// SND: index of the next free WQEBB, 16 bits.
        pub snd: U32<BE>,
    }

    /// Doorbell record of an SRQ, 4 bytes.
    pub struct SrqDbr[4]: Default, PartialEq, Eq, Unaligned {
        /// Receive WQEs posted so far, 16 bits.
        pub counter: U32<BE>,
    }

    /// Doorbell record of a CQ, 8 bytes.
    pub struct CqDbr[8]: Default, PartialEq, Eq, Unaligned {
        /// SET_CI: CQEs consumed so far, 24 bits.
        pub set_ci: U32<BE>,
        /// ARM, see [`CqArm`].
        pub arm: U32<BE>,
    }
}

/// A record's word for a 64-bit counter of WQEBBs or receive WQEs: 16 bits, big-endian, as a
/// native store puts it in memory.
#[inline]
pub const fn record_word(counter: u64) -> u32 {
    (counter as u16 as u32).to_be()
}

/// SET_CI for a 64-bit consumer index: 24 bits, big-endian, as a native store puts it in memory.
#[inline]
pub const fn set_ci_word(ci: u64) -> u32 {
    (ci as u32 & 0xff_ffff).to_be()
}

/// A send doorbell, in either of the two dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// The first 8 bytes of the last WQE posted.
    Last {
        /// The QP.
        qpn: Qpn,
        /// First WQEBB of that WQE.
        index: WqeIndex,
        /// Its opmod.
        opmod: u8,
        /// Its opcode.
        opcode: u8,
        /// Its segments, 1 to 63.
        ds: u8,
    },
    /// The next free WQEBB: `{next << 8, qpn << 8}`.
    Next {
        /// The QP.
        qpn: Qpn,
        /// First WQEBB not posted yet.
        next: WqeIndex,
    },
}

/// The 8 bytes, as a control segment begins.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct DoorbellBytes {
    opmod: u8,
    index: zerocopy::byteorder::U16<BE>,
    opcode: u8,
    qpn: Be24,
    ds: u8,
}

impl Doorbell {
    /// Decodes the register's 8 bytes. A DS of 0 marks [`Doorbell::Next`]. Any bytes are a
    /// doorbell of some QP; bits 7..6 beside DS are ignored.
    #[inline]
    pub fn parse(bytes: [u8; 8]) -> Self {
        let raw: DoorbellBytes = transmute!(bytes);
        let (qpn, index, ds) = (raw.qpn.into(), WqeIndex(raw.index.get()), raw.ds & 0x3f);
        match ds {
            0 => Self::Next { qpn, next: index },
            ds => Self::Last { qpn, index, opmod: raw.opmod, opcode: raw.opcode, ds },
        }
    }

    /// As [`parse`](Self::parse), from a native 8-byte load.
    #[inline]
    pub fn from_ne(word: u64) -> Self {
        Self::parse(word.to_ne_bytes())
    }

    /// The 8 bytes.
    #[inline]
    pub fn bytes(self) -> [u8; 8] {
        let raw = match self {
            Self::Last { qpn, index, opmod, opcode, ds } => {
                DoorbellBytes { opmod, index: index.0.into(), opcode, qpn: qpn.into(), ds }
            }
            Self::Next { qpn, next } => {
                DoorbellBytes { index: next.0.into(), qpn: qpn.into(), ..DoorbellBytes::default() }
            }
        };
        transmute!(raw)
    }

    /// For a native 8-byte store.
    #[inline]
    pub fn to_ne(self) -> u64 {
        u64::from_ne_bytes(self.bytes())
    }

    /// The QP it rings.
    #[inline]
    pub const fn qpn(&self) -> Qpn {
        match *self {
            Self::Last { qpn, .. } | Self::Next { qpn, .. } => qpn,
        }
    }

    /// The next free WQEBB, which both dialects tell.
    #[inline]
    pub const fn next(&self) -> WqeIndex {
        match *self {
            Self::Last { index, ds, .. } => index.advance(wqebbs(ds) as u16),
            Self::Next { next, .. } => next,
        }
    }
}

/// A request for an event at the next completion: the ARM word of [`CqDbr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqArm {
    /// Number of requests so far, modulo 4.
    pub sn: u8,
    /// Only solicited completions count.
    pub solicited_only: bool,
    /// Consumer index, 24 bits.
    pub ci: u32,
}

impl CqArm {
    /// The word, native order.
    #[inline]
    pub const fn word(self) -> u32 {
        (self.sn as u32 & 3) << 28 | (self.solicited_only as u32) << 24 | (self.ci & 0xff_ffff)
    }

    /// Decodes the word, native order.
    #[inline]
    pub const fn from_word(word: u32) -> Self {
        Self {
            sn: (word >> 28 & 3) as u8,
            solicited_only: word >> 24 & 1 != 0,
            ci: word & 0xff_ffff,
        }
    }

    /// The 8 bytes of the CQ arm doorbell: this word, then the CQ number.
    #[inline]
    pub fn doorbell(self, cqn: u32) -> [u8; 8] {
        transmute!([U32::<BE>::new(self.word()), U32::<BE>::new(cqn)])
    }
}
