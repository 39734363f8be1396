//! Ownership of CQEs, and the position in a collapsed CQ's one entry.

use super::CqeTail;
use crate::num::WqeIndex;
use crate::opcode::CqeOpcode;
use warpverbs_rdma::is_odd_lap;

/// The owner bit of entry `index` (not masked) in a CQ of 2^`log_size` entries: alternates with
/// every lap, 0 in the first.
#[inline]
pub const fn owner_bit(index: u64, log_size: u8) -> bool {
    is_odd_lap(index, log_size)
}

/// A ring CQ's entry at consumer index `ci` (not masked) has been written by the hardware.
#[inline]
pub const fn owned_by_software(tail: CqeTail, ci: u64, log_size: u8) -> bool {
    !matches!(tail.opcode(), CqeOpcode::Invalid) && tail.owner() == owner_bit(ci, log_size)
}

/// Whether a poller of a ring CQ that has taken the entries `from` to `ci` says so in the record: once
/// in a quarter of the ring, since the store has to wait for its loads. So up to a quarter of the
/// entries stay with the poller, and a ring for n completions has at least 4/3 n entries; one of up to
/// four gives each back.
#[inline]
pub const fn gives_back(from: u64, ci: u64, log_size: u8) -> bool {
    (from ^ ci) << 2 >> log_size != 0
}

/// Collapsed CQ: the 64-bit index of the WQE that `wqe_counter` names, if it lies at or above
/// `completed` and below `published`; both count WQEBBs and are less than 2^16 apart.
///
/// `None` means nothing new. The next value of `completed` is the index plus that WQE's WQEBBs.
#[inline]
pub const fn collapsed_index(wqe_counter: u16, completed: u64, published: u64) -> Option<u64> {
    let index = WqeIndex(wqe_counter).widen(completed);
    if index < published { Some(index) } else { None }
}
