//! Moving WQEs in and out of a ring whose end they may cross.

use crate::num::{WQEBB, WqeIndex};

/// A ring must be a power of two of WQEBBs and at least as long as the WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The ring's size is not a power of two of 64-byte WQEBBs.
    #[error("ring of {bytes} bytes, expected a power of two of 64-byte WQEBBs, at most 2^15")]
    RingSize {
        /// Bytes of the ring.
        bytes: usize,
    },
    /// The WQE is not whole WQEBBs, or longer than the ring.
    #[error("WQE of {bytes} bytes, expected whole 64-byte WQEBBs, at most {ring}")]
    WqeSize {
        /// Bytes of the WQE.
        bytes: usize,
        /// Bytes of the ring.
        ring: usize,
    },
}

/// Copies `wqe` into `ring` at `index`, going on at slot 0 after the last slot.
pub fn store(ring: &mut [u8], index: WqeIndex, wqe: &[u8]) -> Result<(), RingError> {
    let (at, head) = split(ring.len(), index, wqe.len())?;
    let (before_end, after_wrap) = wqe.split_at(head);
    ring[at..at + head].copy_from_slice(before_end);
    ring[..after_wrap.len()].copy_from_slice(after_wrap);
    Ok(())
}

/// Copies the WQEBBs at `index` from `ring` into `wqe`, undoing the wrap.
pub fn load(ring: &[u8], index: WqeIndex, wqe: &mut [u8]) -> Result<(), RingError> {
    let (at, head) = split(ring.len(), index, wqe.len())?;
    let (before_end, after_wrap) = wqe.split_at_mut(head);
    before_end.copy_from_slice(&ring[at..at + head]);
    after_wrap.copy_from_slice(&ring[..after_wrap.len()]);
    Ok(())
}

/// Offset of the slot, and how many of the WQE's bytes lie before the ring's end.
fn split(ring: usize, index: WqeIndex, wqe: usize) -> Result<(usize, usize), RingError> {
    let slots = ring / WQEBB;
    if !ring.is_multiple_of(WQEBB) || !slots.is_power_of_two() || slots > 1 << 15 {
        return Err(RingError::RingSize { bytes: ring });
    }
    if !wqe.is_multiple_of(WQEBB) || wqe > ring {
        return Err(RingError::WqeSize { bytes: wqe, ring });
    }
    let at = (usize::from(index.0) & (slots - 1)) * WQEBB;
    Ok((at, wqe.min(ring - at)))
}
