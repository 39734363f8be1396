//! The control segment: first in every send WQE.

use crate::num::Be24;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::{BE, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Control segment, 16 bytes.
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
pub struct CtrlSeg {
    /// Modifier of the opcode: operand size of masked atomics, else 0.
    pub opmod: u8,
    /// Index of the WQE's first WQEBB, 16 bits, not masked to the ring.
    pub wqe_index: U16<BE>,
    /// See [`crate::opcode::SendOpcode`].
    pub opcode: u8,
    /// The QP that owns the queue.
    pub qpn: Be24,
    /// Segments of the WQE, this one included, in bits 5..0; bits 7..6 are zero.
    pub ds: u8,
    /// Of signed WQEs; no device looks at it where the QP does not sign.
    pub signature: u8,
    /// Stream channel of a DCI; not looked at elsewhere.
    pub dci_stream_channel_id: U16<BE>,
    /// See [`crate::flags::Flags`].
    pub fm_ce_se: u8,
    /// Immediate value, or the key to invalidate.
    pub imm: U32<BE>,
}

const _: () = {
    assert!(size_of::<CtrlSeg>() == 16);
    assert!(offset_of!(CtrlSeg, wqe_index) == 1);
    assert!(offset_of!(CtrlSeg, opcode) == 3);
    assert!(offset_of!(CtrlSeg, qpn) == 4);
    assert!(offset_of!(CtrlSeg, ds) == 7);
    assert!(offset_of!(CtrlSeg, signature) == 8);
    assert!(offset_of!(CtrlSeg, dci_stream_channel_id) == 9);
    assert!(offset_of!(CtrlSeg, fm_ce_se) == 11);
    assert!(offset_of!(CtrlSeg, imm) == 12);
};
