//! Arithmetic of the masked atomics, and the byte order of what atomics return.
//!
//! Operands in a WQE are big-endian; the target word is worked on in host order.

/// Operands of a masked compare-and-swap on a `T`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaskedCs<T> {
    /// Value to compare with.
    pub compare: T,
    /// Bits that take part in the comparison.
    pub compare_mask: T,
    /// Value to store.
    pub swap: T,
    /// Bits that are stored.
    pub swap_mask: T,
}

/// Operands of a masked fetch-and-add on a `T`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaskedFa<T> {
    /// Value to add.
    pub add: T,
    /// A set bit is the top of a field: no carry goes out of it. 0 is an ordinary add.
    pub boundary: T,
}

/// A masked compare-and-swap of either width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskedCompareSwap {
    /// On a 4-byte word.
    B4(MaskedCs<u32>),
    /// On an 8-byte word.
    B8(MaskedCs<u64>),
}

/// A masked fetch-and-add of either width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskedFetchAdd {
    /// On a 4-byte word.
    B4(MaskedFa<u32>),
    /// On an 8-byte word.
    B8(MaskedFa<u64>),
}

macro_rules! arithmetic {
    ($word:ty) => {
        impl MaskedCs<$word> {
            /// The new value of a word that holds `old`; `old` itself if the comparison fails.
            #[inline]
            pub const fn apply(self, old: $word) -> $word {
                if (old ^ self.compare) & self.compare_mask == 0 {
                    (old & !self.swap_mask) | (self.swap & self.swap_mask)
                } else {
                    old
                }
            }
        }

        impl MaskedFa<$word> {
            /// The new value of a word that holds `old`.
            #[inline]
            pub const fn apply(self, old: $word) -> $word {
                // Without the boundary bits no sum can carry past one; they are added without
                // carry afterwards.
                let below = !self.boundary;
                let sum = (old & below).wrapping_add(self.add & below);
                sum ^ ((old ^ self.add) & self.boundary)
            }
        }
    };
}

arithmetic!(u32);
arithmetic!(u64);

macro_rules! size {
    ($operands:ty) => {
        impl $operands {
            /// Bytes of the word it works on, 4 or 8; also of the result.
            #[inline]
            pub const fn size(self) -> u32 {
                match self {
                    Self::B4(_) => 4,
                    Self::B8(_) => 8,
                }
            }
        }
    };
}

size!(MaskedCompareSwap);
size!(MaskedFetchAdd);

/// Byte order of the 8-byte value an atomic leaves in the requester's buffer.
/// 4-byte values are always left big-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Result8 {
    /// The requester's own order: capability `atomic_req_8B_endianness_mode` is 1, as the kernel
    /// driver normally sets it. Little-endian here.
    #[default]
    HostEndian,
    /// Big-endian: the capability is 0.
    BigEndian,
}

impl Result8 {
    /// The bytes left in the requester's buffer for an 8-byte atomic that found `old`.
    #[inline]
    pub const fn bytes(self, old: u64) -> [u8; 8] {
        match self {
            Self::HostEndian => old.to_le_bytes(),
            Self::BigEndian => old.to_be_bytes(),
        }
    }
}

/// The bytes left in the requester's buffer for a 4-byte atomic that found `old`: big-endian.
#[inline]
pub const fn result4_bytes(old: u32) -> [u8; 4] {
    old.to_be_bytes()
}
