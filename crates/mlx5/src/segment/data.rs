//! Where the payload is: remote address, local memory, or the WQE itself.

use crate::num::{SEGMENT, TERMINATOR};
use zerocopy::Unaligned;
use zerocopy::byteorder::{BE, U32, U64};

/// Bit 31 of the first word: the segment holds the bytes themselves.
pub const INLINE_BIT: u32 = 1 << 31;

warpverbs_layout::layout! {
    /// Remote address segment, 16 bytes.
    pub struct RaddrSeg[16]: Default, PartialEq, Eq, Unaligned {
        /// Address at the responder.
        pub raddr: U64<BE>,
        /// Key at the responder.
        pub rkey: U32<BE>,
        /// Not looked at.
        pub reserved: U32<BE>,
    }

    /// Pointer data segment, 16 bytes: one entry of a scatter/gather list.
    pub struct DataSeg[16]: Default, PartialEq, Eq, Unaligned {
        /// Bytes, 1 to 2^31 − 1.
        pub byte_count: U32<BE>,
        /// Key of the local memory.
        pub lkey: U32<BE>,
        /// Address of the local memory.
        pub addr: U64<BE>,
    }
}

impl DataSeg {
    /// Ends the list of a receive WQE that has room for more segments.
    pub const TERMINATOR: Self =
        Self { byte_count: U32::ZERO, lkey: U32::new(TERMINATOR.0), addr: U64::ZERO };
}

warpverbs_layout::layout! {
    /// First 4 bytes of an inline segment; the payload follows at once and is padded to 16 bytes.
    pub struct InlineHeader[4]: Default, PartialEq, Eq, Unaligned {
        /// Payload bytes, with [`INLINE_BIT`].
        pub byte_count: U32<BE>,
    }
}

/// Segments (DS units) of `bytes` of inline payload, header and padding included.
#[inline]
pub const fn inline_segments(bytes: usize) -> usize {
    (bytes + size_of::<InlineHeader>()).div_ceil(SEGMENT)
}
