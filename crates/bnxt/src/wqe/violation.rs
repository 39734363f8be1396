//! Errors in the bytes of a send or receive WQE.

use crate::opcode::WqeType;
use warpverbs_rdma::Status;

/// Why bytes are not a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WqeViolation {
    /// Fewer bytes than the WQE's slots.
    #[error("{available} bytes, the WQE has {expected}")]
    Truncated {
        /// Bytes given.
        available: usize,
        /// Bytes of its slots.
        expected: usize,
    },
    /// The type has no name.
    #[error("header.wqe_type is {value:#04x}, which is not a known type")]
    UnknownType {
        /// In the WQE.
        value: u8,
    },
    /// The type is known, but not carried out in this queue.
    #[error("header.wqe_type is {wqe_type}, which this queue does not support")]
    UnsupportedType {
        /// In the WQE.
        wqe_type: WqeType,
    },
    /// A flag without a meaning is set.
    #[error("header.flags is {value:#04x} with {wqe_type}, expected no bits but {allowed:#04x}")]
    Flags {
        /// The type.
        wqe_type: WqeType,
        /// In the WQE.
        value: u8,
        /// The bits that may be set.
        allowed: u8,
    },
    /// The byte behind the number of slots is not zero.
    #[error("header.reserved is {value:#04x}, expected 0")]
    Reserved {
        /// In the WQE.
        value: u8,
    },
    /// The number of slots does not fit the type.
    #[error("header.slots is {value} with {wqe_type}, expected {min} to {max}")]
    Slots {
        /// The type.
        wqe_type: WqeType,
        /// In the WQE.
        value: u8,
        /// Fewest.
        min: u8,
        /// Most.
        max: u8,
    },
    /// The message's length is not that of its entries together.
    #[error("header.length is {value}, expected {expected}, the sum of the entries")]
    Length {
        /// In the WQE.
        value: u32,
        /// Sum of the entries.
        expected: u64,
    },
    /// The inline bytes do not fit the WQE's slots.
    #[error(
        "header.length is {length} inline, which needs {expected} slots; header.slots is {slots}"
    )]
    InlineLength {
        /// In the WQE.
        length: u32,
        /// In the WQE.
        slots: u8,
        /// Slots that this length needs.
        expected: u32,
    },
    /// The result of an atomic is not 8 bytes long.
    #[error("sge.length is {value} with {wqe_type}, expected 8")]
    AtomicSize {
        /// The type.
        wqe_type: WqeType,
        /// In the WQE.
        value: u32,
    },
    /// The number of the QP there has more than 24 bits.
    #[error("datagram.qpn is {value:#x}, expected at most 0xffffff")]
    DatagramQpn {
        /// In the WQE.
        value: u32,
    },
    /// The address handle has more than 20 bits.
    #[error("datagram.handle is {value:#x}, expected at most 0xfffff")]
    DatagramHandle {
        /// In the WQE.
        value: u32,
    },
}

impl WqeViolation {
    /// The field that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "bytes",
            Self::UnknownType { .. } | Self::UnsupportedType { .. } => "header.wqe_type",
            Self::Flags { .. } => "header.flags",
            Self::Reserved { .. } => "header.reserved",
            Self::Slots { .. } => "header.slots",
            Self::Length { .. } | Self::InlineLength { .. } => "header.length",
            Self::AtomicSize { .. } => "sge.length",
            Self::DatagramQpn { .. } => "datagram.qpn",
            Self::DatagramHandle { .. } => "datagram.handle",
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
