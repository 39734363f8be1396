//! Places in rings, whose sizes are powers of two.

use crate::doorbell::DoorbellViolation;
use warpverbs_rdma::{is_odd_lap, widen};

/// A place in a ring of WQEs or CQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Entries before it since the ring was made.
    pub counter: u64,
    /// Logarithm of the ring's entries, at most 16.
    pub log_depth: u8,
}

impl Position {
    /// Place in the ring.
    #[inline]
    pub const fn index(self) -> u16 {
        (self.counter & ((1 << self.log_depth) - 1)) as u16
    }

    /// The colour of an entry that is written here: 1 in the first lap.
    #[inline]
    pub const fn color(self) -> bool {
        !is_odd_lap(self.counter, self.log_depth)
    }

    /// The place behind.
    #[inline]
    pub const fn next(self) -> Self {
        Self { counter: self.counter + 1, log_depth: self.log_depth }
    }
}

/// The counter that a doorbell's index tells of a ring of 2^`log_depth`, which was at `before`. One entry
/// stays free, so the index of a full ring differs from that of an empty one.
pub const fn counter(index: u16, before: u64, log_depth: u8) -> Result<u64, DoorbellViolation> {
    if (index as u32) >> log_depth != 0 {
        return Err(DoorbellViolation::Index { value: index, size: 1 << log_depth });
    }
    Ok(if log_depth == 0 { before } else { widen(index as u32, log_depth as u32, before) })
}
