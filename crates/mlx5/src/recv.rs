//! Receive WQEs: a list of data segments, ended early by lkey 0x100; in an SRQ after a link.

use crate::num::{SEGMENT, TERMINATOR};
use crate::segment::{DataSeg, INLINE_BIT, SrqNextSeg};
use crate::wqe::{Sge, Sges};
use zerocopy::{FromBytes, IntoBytes, transmute_mut, transmute_ref};

/// Why bytes are not a receive WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvViolation {
    /// Not a whole number of segments, or no room for the SRQ's link.
    #[error("{available} bytes, expected a multiple of 16, at least {min}")]
    Size {
        /// Bytes given.
        available: usize,
        /// Fewest.
        min: usize,
    },
    /// The inline bit is set.
    #[error("receive segment {sge}: byte_count {byte_count:#x} has bit 31 set")]
    InlineBit {
        /// Which data segment, from 0.
        sge: u16,
        /// Its first word.
        byte_count: u32,
    },
    /// A segment of no bytes that does not end the list.
    #[error("receive segment {sge}: byte_count 0 with lkey {lkey:#x}, expected 0x100 (the end)")]
    ZeroLength {
        /// Which data segment, from 0.
        sge: u16,
        /// Its key.
        lkey: u32,
    },
}

/// Why a receive WQE could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvBuildError {
    /// The slot is not a whole number of segments, or has none for entries.
    #[error("slot of {slot} bytes, expected a multiple of 16 with room for an entry")]
    SlotSize {
        /// Bytes of the slot.
        slot: usize,
    },
    /// The slot has room for fewer entries.
    #[error("{entries} entries, the slot of {slot} bytes has room for {room}")]
    TooMany {
        /// Entries given.
        entries: usize,
        /// Bytes of the slot.
        slot: usize,
        /// Entries it could hold.
        room: usize,
    },
    /// The entry's length is 0 or above 2^31 − 1.
    #[error("entry of {len} bytes, expected 1 to 2^31 - 1")]
    SgeLength {
        /// Its length.
        len: u32,
    },
}

/// Checks and decodes the receive WQE in `raw`, one slot of a receive queue.
#[inline]
pub fn parse(raw: &[u8]) -> Result<Sges<'_>, RecvViolation> {
    match segments(raw) {
        Some(segs) => list(segs),
        None => Err(RecvViolation::Size { available: raw.len(), min: SEGMENT }),
    }
}

/// Checks and decodes the SRQ WQE in `raw`: the index its link names, and its entries. The other
/// bytes of the link segment are not looked at: libraries keep state of their own there.
#[inline]
pub fn parse_srq(raw: &[u8]) -> Result<(u16, Sges<'_>), RecvViolation> {
    let size = RecvViolation::Size { available: raw.len(), min: 2 * SEGMENT };
    let (next, rest) = SrqNextSeg::ref_from_prefix(raw).map_err(|_| size)?;
    let segs = segments(rest).ok_or(size)?;
    Ok((next.next_wqe_index.get(), list(segs)?))
}

/// `None` if `raw` is empty or not a whole number of segments.
#[inline]
fn segments(raw: &[u8]) -> Option<&[DataSeg]> {
    match raw.as_chunks::<SEGMENT>() {
        (segs @ [_, ..], []) => Some(transmute_ref!(segs)),
        _ => None,
    }
}

#[inline]
fn list(segs: &[DataSeg]) -> Result<Sges<'_>, RecvViolation> {
    let mut bytes = 0;
    for (sge, seg) in segs.iter().enumerate() {
        match seg.byte_count.get() {
            0 if seg.lkey.get() == TERMINATOR.0 => {
                return Ok(Sges::checked(&segs[..sge], bytes));
            }
            0 => {
                return Err(RecvViolation::ZeroLength { sge: sge as u16, lkey: seg.lkey.get() });
            }
            byte_count if byte_count & INLINE_BIT != 0 => {
                return Err(RecvViolation::InlineBit { sge: sge as u16, byte_count });
            }
            byte_count => bytes += u64::from(byte_count),
        }
    }
    Ok(Sges::checked(segs, bytes))
}

/// Writes `sges` into `slot`, one slot of a receive queue, and ends the list if room is left.
pub fn build(slot: &mut [u8], sges: &[Sge]) -> Result<(), RecvBuildError> {
    let size = slot.len();
    fill(slot, size, sges)
}

/// Writes an SRQ WQE into `slot`: the link to WQE `next`, then `sges` as [`build`] does.
pub fn build_srq(slot: &mut [u8], next: u16, sges: &[Sge]) -> Result<(), RecvBuildError> {
    let size = slot.len();
    let Some((link, rest)) = slot.split_at_mut_checked(SEGMENT) else {
        return Err(RecvBuildError::SlotSize { slot: size });
    };
    fill(rest, size, sges)?;
    let seg = SrqNextSeg { next_wqe_index: next.into(), ..SrqNextSeg::default() };
    link.copy_from_slice(seg.as_bytes());
    Ok(())
}

/// Writes the list into `room`, the part of a slot of `slot` bytes that holds entries.
fn fill(room: &mut [u8], slot: usize, sges: &[Sge]) -> Result<(), RecvBuildError> {
    let (segs @ [_, ..], []) = room.as_chunks_mut::<SEGMENT>() else {
        return Err(RecvBuildError::SlotSize { slot });
    };
    let segs: &mut [DataSeg] = transmute_mut!(segs);
    let room = segs.len();
    if sges.len() > room {
        return Err(RecvBuildError::TooMany { entries: sges.len(), slot, room });
    }
    let (entries, rest) = segs.split_at_mut(sges.len());
    for (seg, sge) in entries.iter_mut().zip(sges) {
        if sge.len == 0 || sge.len & INLINE_BIT != 0 {
            return Err(RecvBuildError::SgeLength { len: sge.len });
        }
        *seg = DataSeg::from(*sge);
    }
    if let Some(end) = rest.first_mut() {
        *end = DataSeg::TERMINATOR;
    }
    Ok(())
}
