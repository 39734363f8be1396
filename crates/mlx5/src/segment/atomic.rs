//! Operands of atomics. The 4-byte and 8-byte masked forms are distinguished by the control
//! segment's opmod.

use core::mem::{offset_of, size_of};
use zerocopy::byteorder::{BE, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// 8-byte compare-and-swap and fetch-and-add, 16 bytes.
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
pub struct AtomicSeg {
    /// Value to store, or to add.
    pub swap_add: U64<BE>,
    /// Value to compare with; not used by fetch-and-add.
    pub compare: U64<BE>,
}

/// 4-byte masked fetch-and-add, 16 bytes.
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
pub struct MaskedFa4Seg {
    /// Value to add.
    pub add: U32<BE>,
    /// Bits out of which no carry goes.
    pub field_boundary: U32<BE>,
    /// Not looked at.
    pub reserved: U64<BE>,
}

/// 8-byte masked fetch-and-add, 16 bytes.
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
pub struct MaskedFa8Seg {
    /// Value to add.
    pub add: U64<BE>,
    /// Bits out of which no carry goes.
    pub field_boundary: U64<BE>,
}

/// 4-byte masked compare-and-swap, 16 bytes.
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
pub struct MaskedCs4Seg {
    /// Value to store.
    pub swap: U32<BE>,
    /// Value to compare with.
    pub compare: U32<BE>,
    /// Bits to store.
    pub swap_mask: U32<BE>,
    /// Bits to compare.
    pub compare_mask: U32<BE>,
}

/// 8-byte masked compare-and-swap, 32 bytes: two DS units.
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
pub struct MaskedCs8Seg {
    /// Value to store.
    pub swap: U64<BE>,
    /// Value to compare with.
    pub compare: U64<BE>,
    /// Bits to store.
    pub swap_mask: U64<BE>,
    /// Bits to compare.
    pub compare_mask: U64<BE>,
}

const _: () = {
    assert!(size_of::<AtomicSeg>() == 16);
    assert!(offset_of!(AtomicSeg, compare) == 8);
    assert!(size_of::<MaskedFa4Seg>() == 16);
    assert!(offset_of!(MaskedFa4Seg, field_boundary) == 4);
    assert!(size_of::<MaskedFa8Seg>() == 16);
    assert!(offset_of!(MaskedFa8Seg, field_boundary) == 8);
    assert!(size_of::<MaskedCs4Seg>() == 16);
    assert!(offset_of!(MaskedCs4Seg, swap_mask) == 8);
    assert!(size_of::<MaskedCs8Seg>() == 32);
    assert!(offset_of!(MaskedCs8Seg, swap_mask) == 16);
};
