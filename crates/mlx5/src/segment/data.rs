//! Where the payload is: remote address, local memory, or the WQE itself.

use crate::num::{SEGMENT, TERMINATOR};
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::{BE, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bit 31 of the first word: the segment holds the bytes themselves.
pub const INLINE_BIT: u32 = 1 << 31;

/// Remote address segment, 16 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct RaddrSeg {
    /// Address at the responder.
    pub raddr: U64<BE>,
    /// Key at the responder.
    pub rkey: U32<BE>,
    /// Not looked at.
    pub reserved: U32<BE>,
}

/// Pointer data segment, 16 bytes: one entry of a scatter/gather list.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct DataSeg {
    /// Bytes, 1 to 2^31 − 1.
    pub byte_count: U32<BE>,
    /// Key of the local memory.
    pub lkey: U32<BE>,
    /// Address of the local memory.
    pub addr: U64<BE>,
}

impl DataSeg {
    /// Ends the list of a receive WQE that has room for more segments.
    pub const TERMINATOR: Self =
        Self { byte_count: U32::ZERO, lkey: U32::new(TERMINATOR.0), addr: U64::ZERO };
}

/// First 4 bytes of an inline segment; the payload follows at once and is padded to 16 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct InlineHeader {
    /// Payload bytes, with [`INLINE_BIT`].
    pub byte_count: U32<BE>,
}

/// Segments (DS units) of `bytes` of inline payload, header and padding included.
#[inline]
pub const fn inline_segments(bytes: usize) -> usize {
    (bytes + size_of::<InlineHeader>()).div_ceil(SEGMENT)
}

const _: () = {
    assert!(size_of::<RaddrSeg>() == 16);
    assert!(offset_of!(RaddrSeg, rkey) == 8);
    assert!(size_of::<DataSeg>() == 16);
    assert!(offset_of!(DataSeg, lkey) == 4);
    assert!(offset_of!(DataSeg, addr) == 8);
    assert!(size_of::<InlineHeader>() == 4);
};
