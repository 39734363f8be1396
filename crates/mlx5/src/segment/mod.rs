//! Segments: the 16-byte pieces of a WQE, one declared layout each.
//!
//! These are bytes with names. The meaning of their combinations is in [`crate::wqe`] and
//! [`crate::recv`]. All multi-byte fields are big-endian; no layout needs alignment.

mod atomic;
mod ctrl;
mod data;
mod other;

use crate::{cqe, doorbell};
use warpverbs_layout::Header;

pub use atomic::{AtomicSeg, MaskedCs4Seg, MaskedCs8Seg, MaskedFa4Seg, MaskedFa8Seg};
pub use ctrl::CtrlSeg;
pub use data::{DataSeg, INLINE_BIT, InlineHeader, RaddrSeg, inline_segments};
pub use other::{DatagramSeg, SrqNextSeg, UmrCtrlSeg, WaitSeg, XrcSeg};

/// The layouts of segments, CQEs and doorbell records as a C++ header.
pub const HEADER: Header = Header {
    path: "mlx5/layout.h",
    table: "mlx5/src/{segment,cqe,doorbell.rs}; fields are big-endian",
    namespace: "wv::mlx5",
    includes: &["arch/types.h"],
    items: &[
        CtrlSeg::LAYOUT,
        RaddrSeg::LAYOUT,
        DataSeg::LAYOUT,
        InlineHeader::LAYOUT,
        AtomicSeg::LAYOUT,
        MaskedFa4Seg::LAYOUT,
        MaskedFa8Seg::LAYOUT,
        MaskedCs4Seg::LAYOUT,
        MaskedCs8Seg::LAYOUT,
        WaitSeg::LAYOUT,
        SrqNextSeg::LAYOUT,
        DatagramSeg::LAYOUT,
        XrcSeg::LAYOUT,
        UmrCtrlSeg::LAYOUT,
        cqe::Cqe64::LAYOUT,
        cqe::ErrCqe::LAYOUT,
        doorbell::QpDbr::LAYOUT,
        doorbell::SrqDbr::LAYOUT,
        doorbell::CqDbr::LAYOUT,
    ],
};
