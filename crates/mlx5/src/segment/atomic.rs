//! Operands of atomics. The 4-byte and 8-byte masked forms are distinguished by the control
//! segment's opmod.

use zerocopy::Unaligned;
use zerocopy::byteorder::{BE, U32, U64};

warpverbs_layout::layout! {
    /// 8-byte compare-and-swap and fetch-and-add, 16 bytes.
    pub struct AtomicSeg[16]: Default, PartialEq, Eq, Unaligned {
        /// Value to store, or to add.
        pub swap_add: U64<BE>,
        /// Value to compare with; not used by fetch-and-add.
        pub compare: U64<BE>,
    }

    /// 4-byte masked fetch-and-add, 16 bytes.
    pub struct MaskedFa4Seg[16]: Default, PartialEq, Eq, Unaligned {
        /// Value to add.
        pub add: U32<BE>,
        /// Bits out of which no carry goes.
        pub field_boundary: U32<BE>,
        /// Not looked at.
        pub reserved: U64<BE>,
    }

    /// 8-byte masked fetch-and-add, 16 bytes.
    pub struct MaskedFa8Seg[16]: Default, PartialEq, Eq, Unaligned {
        /// Value to add.
        pub add: U64<BE>,
        /// Bits out of which no carry goes.
        pub field_boundary: U64<BE>,
    }

    /// 4-byte masked compare-and-swap, 16 bytes.
    pub struct MaskedCs4Seg[16]: Default, PartialEq, Eq, Unaligned {
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
    pub struct MaskedCs8Seg[32]: Default, PartialEq, Eq, Unaligned {
        /// Value to store.
        pub swap: U64<BE>,
        /// Value to compare with.
        pub compare: U64<BE>,
        /// Bits to store.
        pub swap_mask: U64<BE>,
        /// Bits to compare.
        pub compare_mask: U64<BE>,
    }
}
