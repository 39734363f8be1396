//! Errors in the bytes of a send WQE.

use crate::num::{Qpn, WqeIndex};
use crate::opcode::SendOpcode;
use crate::syndrome::Syndrome;

/// Bits that must be zero: they are in a byte that every poster writes, beside a field that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Bits 7..6 beside DS.
    DsReserved,
    /// Bits 4 and 0 of `fm_ce_se`.
    FlagsReserved,
}

impl Field {
    /// Its name in the layout.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DsReserved => "ctrl.ds[7:6]",
            Self::FlagsReserved => "ctrl.fm_ce_se[4,0]",
        }
    }
}

/// Why the bytes are not a WQE for this place in this ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WqeViolation {
    /// Fewer bytes than the WQE's segments.
    #[error("{available} bytes, the WQE has {expected}")]
    Truncated {
        /// Bytes given.
        available: usize,
        /// Bytes of its segments.
        expected: usize,
    },
    /// The index is not the producer index of this place.
    #[error("ctrl.wqe_index is {value}, expected {expected} (unmasked producer index)")]
    Index {
        /// In the WQE.
        value: WqeIndex,
        /// Of its place.
        expected: WqeIndex,
    },
    /// The QP number is not the ring's.
    #[error("ctrl.qpn is {value}, expected {expected}")]
    Qpn {
        /// In the WQE.
        value: Qpn,
        /// Of the ring.
        expected: Qpn,
    },
    /// A reserved bit is not zero.
    #[error("{} is {value:#x}, expected 0", field.name())]
    Reserved {
        /// The bits.
        field: Field,
        /// Their value.
        value: u64,
    },
    /// The fence mode does not exist.
    #[error("ctrl.fm is {value}, expected 0 to 4")]
    FenceMode {
        /// In the WQE.
        value: u8,
    },
    /// The opcode has no name.
    #[error("ctrl.opcode is {value:#04x}, which is not a known opcode")]
    UnknownOpcode {
        /// In the WQE.
        value: u8,
    },
    /// The opcode is known, but not carried out here.
    #[error("ctrl.opcode is {opcode}, which is not supported")]
    UnsupportedOpcode {
        /// In the WQE.
        opcode: SendOpcode,
    },
    /// The modifier does not fit the opcode.
    #[error("ctrl.opmod is {value:#04x} with {opcode}, expected one of {expected:?}")]
    Opmod {
        /// The opcode.
        opcode: SendOpcode,
        /// In the WQE.
        value: u8,
        /// The values allowed.
        expected: &'static [u8],
    },
    /// The number of segments does not fit the opcode.
    #[error("ctrl.ds is {value} with {opcode}, expected {min} to {max}")]
    Ds {
        /// The opcode.
        opcode: SendOpcode,
        /// In the WQE.
        value: u8,
        /// Smallest.
        min: u8,
        /// Largest.
        max: u8,
    },
    /// A segment has the inline bit where only a pointer may be.
    #[error("data segment {sge}: byte_count {byte_count:#x} has bit 31 set, expected a pointer")]
    InlineBit {
        /// Which data segment, from 0.
        sge: u8,
        /// Its first word.
        byte_count: u32,
    },
    /// The inline length does not fit the number of segments.
    #[error("inline byte_count {length} needs ds {expected}, ctrl.ds is {ds}")]
    InlineLength {
        /// Bytes of inline payload.
        length: u32,
        /// In the WQE.
        ds: u8,
        /// DS that this length needs; more than 63 if none can.
        expected: u32,
    },
    /// A pointer segment of no bytes (once read as 2 GiB). Leave it out instead.
    #[error("data segment {sge}: byte_count is 0, expected 1 to 2^31 - 1")]
    ZeroLength {
        /// Which data segment, from 0.
        sge: u8,
    },
    /// The address vector of a datagram is not one of 48 bytes.
    #[error("av.ext is {ext:#04x}, expected bit 7 set")]
    AddressForm {
        /// First of the four bytes with the destination QP.
        ext: u8,
    },
    /// The result of an atomic is not as long as its word.
    #[error("data segment 0: byte_count is {value}, expected {expected} with {opcode}")]
    AtomicSize {
        /// The opcode.
        opcode: SendOpcode,
        /// In the WQE.
        value: u32,
        /// Size of the word.
        expected: u32,
    },
}

impl WqeViolation {
    /// The field that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "bytes",
            Self::Index { .. } => "ctrl.wqe_index",
            Self::Qpn { .. } => "ctrl.qpn",
            Self::Reserved { field, .. } => field.name(),
            Self::FenceMode { .. } => "ctrl.fm",
            Self::UnknownOpcode { .. } | Self::UnsupportedOpcode { .. } => "ctrl.opcode",
            Self::Opmod { .. } => "ctrl.opmod",
            Self::AddressForm { .. } => "av",
            Self::Ds { .. } => "ctrl.ds",
            Self::InlineBit { .. } | Self::InlineLength { .. } => "inline.byte_count",
            Self::ZeroLength { .. } | Self::AtomicSize { .. } => "data.byte_count",
        }
    }

    /// The syndrome for the error CQE: a wrong length, or else a wrong WQE.
    pub const fn syndrome(&self) -> Syndrome {
        match self {
            Self::InlineLength { .. } | Self::ZeroLength { .. } | Self::AtomicSize { .. } => {
                Syndrome::LocalLength
            }
            _ => Syndrome::LocalQpOp,
        }
    }
}
