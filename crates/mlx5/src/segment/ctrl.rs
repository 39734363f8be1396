//! The control segment: first in every send WQE.

use crate::num::Be24;
use zerocopy::Unaligned;
use zerocopy::byteorder::{BE, U16, U32};

warpverbs_layout::layout! {
    /// Control segment, 16 bytes.
    pub struct CtrlSeg[16]: Default, PartialEq, Eq, Unaligned {
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
}
