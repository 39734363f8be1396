//! Errors in the bytes of a send or receive WQE.

use crate::opcode::{Opcode, Protocol};
use warpverbs_rdma::Status;

/// Why the bytes are not a WQE for this place in this ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WqeViolation {
    /// The bytes are not one WQE.
    #[error("{available} bytes, expected a power of two, at least 64")]
    Size {
        /// Bytes given.
        available: usize,
    },
    /// The index is not that of this place.
    #[error("header.index is {value:#x}, expected {expected:#x}, or the same modulo {depth}")]
    Index {
        /// In the WQE.
        value: u64,
        /// Of its place.
        expected: u16,
        /// Entries of the ring.
        depth: u32,
    },
    /// The colour is that of another lap.
    #[error("header.flags.color is {}, expected {}: the WQE of another lap", !*expected as u8, *expected as u8)]
    Color {
        /// Of this lap.
        expected: bool,
    },
    /// The opcode has no name in this protocol.
    #[error("header.opcode is {value:#04x}, which is not a known opcode of protocol {protocol:?}")]
    UnknownOpcode {
        /// In the WQE.
        value: u8,
        /// Of the device.
        protocol: Protocol,
    },
    /// The opcode is known, but not carried out in this queue.
    #[error("header.opcode is {opcode}, which this queue does not support")]
    UnsupportedOpcode {
        /// In the WQE.
        opcode: Opcode,
    },
    /// A flag without a meaning for this opcode is set. Lists of lengths are not offered.
    #[error("header.flags is {value:#06x} with {opcode}, expected no bits but {allowed:#06x}")]
    Flags {
        /// The opcode.
        opcode: Opcode,
        /// In the WQE.
        value: u16,
        /// The bits that may be set.
        allowed: u16,
    },
    /// The number of entries does not fit the opcode or the WQE's size.
    #[error("header.entries is {value}, expected {min} to {max}")]
    Entries {
        /// In the WQE.
        value: u8,
        /// Fewest.
        min: u8,
        /// Most.
        max: u8,
    },
    /// The message's length is not that of its entries together.
    #[error("body.length is {value}, expected {expected}, the sum of the entries")]
    Length {
        /// In the WQE.
        value: u32,
        /// Sum of the entries.
        expected: u64,
    },
    /// The inline bytes do not fit the WQE's size.
    #[error("body.length is {value} inline, expected at most {max}")]
    InlineLength {
        /// In the WQE.
        value: u32,
        /// Most.
        max: usize,
    },
    /// The result of an atomic is not 8 bytes long.
    #[error("body.result.length is {value} with {opcode}, expected 8")]
    AtomicSize {
        /// The opcode.
        opcode: Opcode,
        /// In the WQE.
        value: u32,
    },
    /// The number of the QP there has more than 24 bits.
    #[error("body.qpn is {value:#x}, expected at most 0xffffff")]
    DatagramQpn {
        /// In the WQE.
        value: u32,
    },
}

impl WqeViolation {
    /// The field that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Size { .. } => "bytes",
            Self::Index { .. } => "header.index",
            Self::Color { .. } => "header.flags.color",
            Self::UnknownOpcode { .. } | Self::UnsupportedOpcode { .. } => "header.opcode",
            Self::Flags { .. } => "header.flags",
            Self::Entries { .. } => "header.entries",
            Self::Length { .. } | Self::InlineLength { .. } => "body.length",
            Self::AtomicSize { .. } => "body.result.length",
            Self::DatagramQpn { .. } => "body.qpn",
        }
    }

    /// The status of the WQE: a wrong length, or else a wrong WQE.
    pub const fn status(&self) -> Status {
        match self {
            Self::Length { .. } | Self::InlineLength { .. } | Self::AtomicSize { .. } => {
                Status::LocalLength
            }
            _ => Status::LocalQpOperation,
        }
    }
}
