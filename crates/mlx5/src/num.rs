//! Numbers that must not be mixed up: QP numbers, memory keys, WQEBB indexes.

use warpverbs_rdma::widen;
pub use warpverbs_rdma::{Lkey, Qpn, Rkey};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A big-endian 24-bit field, as QP, CQ and SRQ numbers are stored.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct Be24([u8; 3]);

impl Be24 {
    /// Stores the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        let [_, a, b, c] = value.to_be_bytes();
        Self([a, b, c])
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

impl core::fmt::Debug for Be24 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.get())
    }
}

impl From<Be24> for Qpn {
    #[inline]
    fn from(field: Be24) -> Self {
        Self::truncate(field.get())
    }
}

impl From<Qpn> for Be24 {
    #[inline]
    fn from(qpn: Qpn) -> Self {
        Self::new(qpn.get())
    }
}

/// In a receive WQE this lkey, with byte count 0, ends the list of segments.
pub const TERMINATOR: Lkey = Lkey(0x100);

/// A 16-bit WQEBB index as the hardware carries it: counts WQEBBs modulo 2^16, not masked to the
/// ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WqeIndex(pub u16);

impl WqeIndex {
    /// The low 16 bits of a 64-bit counter.
    #[inline]
    pub const fn of(counter: u64) -> Self {
        Self(counter as u16)
    }

    /// The index `wqebbs` further on.
    #[inline]
    pub const fn advance(self, wqebbs: u16) -> Self {
        Self(self.0.wrapping_add(wqebbs))
    }

    /// How far this lies ahead of `other`; negative if it lies behind.
    #[inline]
    pub const fn ahead_of(self, other: Self) -> i16 {
        self.0.wrapping_sub(other.0) as i16
    }

    /// The smallest 64-bit counter ≥ `floor` whose low 16 bits are this index. Wraps at 2^64.
    #[inline]
    pub const fn widen(self, floor: u64) -> u64 {
        widen(self.0 as u32, 16, floor)
    }
}

impl core::fmt::Display for WqeIndex {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// Bytes of one send WQE basic block, the unit of the send ring and of its indexes.
pub const WQEBB: usize = 64;
/// Bytes of one segment, the unit of the control segment's DS field.
pub const SEGMENT: usize = 16;
/// The largest DS: 6 bits.
pub const MAX_DS: u8 = 63;
/// Bytes of the WQEBBs of the largest send WQE.
pub const MAX_WQE: usize = 1024;
/// The longest message of a connection: 2^30 bytes (`log_msg_max` = 30).
pub const MAX_MESSAGE: u64 = 1 << 30;

/// WQEBBs of a WQE of `ds` segments.
#[inline]
pub const fn wqebbs(ds: u8) -> usize {
    (ds as usize).div_ceil(WQEBB / SEGMENT)
}
