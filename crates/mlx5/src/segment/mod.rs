//! Segments: the 16-byte pieces of a WQE, one declared layout each.
//!
//! These are bytes with names. The meaning of their combinations is in [`crate::wqe`] and
//! [`crate::recv`]. All multi-byte fields are big-endian; no layout needs alignment.

mod atomic;
mod ctrl;
mod data;
mod other;

pub use atomic::{AtomicSeg, MaskedCs4Seg, MaskedCs8Seg, MaskedFa4Seg, MaskedFa8Seg};
pub use ctrl::CtrlSeg;
pub use data::{DataSeg, INLINE_BIT, InlineHeader, RaddrSeg, inline_segments};
pub use other::{DatagramSeg, SrqNextSeg, UmrCtrlSeg, WaitSeg, XrcSeg};
