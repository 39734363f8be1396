//! Slots: the 16-byte pieces of a WQE, one declared layout each. All fields are little-endian; no layout
//! needs alignment.
//!
//! A WQE is a header, a second slot that depends on the opcode, and entries or inline bytes.

use warpverbs_rdma::Sge;
use zerocopy::Unaligned;
use zerocopy::byteorder::{LE, U32, U64};

/// Bytes of a slot.
pub const SLOT: usize = 16;
/// Slots of every WQE before its entries or inline bytes.
pub const HEADERS: u8 = 2;
/// Slots from one WQE to the next where each has the same room (static mode).
pub const STATIC_SLOTS: u8 = 8;

warpverbs_layout::layout! {
    /// First slot of a send WQE.
    pub struct SendHeader[16]: Default, PartialEq, Eq, Unaligned {
        /// See [`crate::opcode::WqeType`].
        pub wqe_type: u8,
        /// See [`crate::opcode::WqeFlags`].
        pub flags: u8,
        /// Slots of the WQE that are used, this one included.
        pub slots: u8,
        /// Zero.
        pub reserved: u8,
        /// Immediate value, or the key that the receiver invalidates.
        pub imm_or_key: U32<LE>,
        /// Bytes of the message.
        pub length: U32<LE>,
        /// Queue key of a datagram.
        pub qkey: U32<LE>,
    }

    /// First slot of an atomic.
    pub struct AtomicHeader[16]: Default, PartialEq, Eq, Unaligned {
        /// As in [`SendHeader`].
        pub wqe_type: u8,
        /// As in [`SendHeader`].
        pub flags: u8,
        /// As in [`SendHeader`].
        pub slots: u8,
        /// Zero.
        pub reserved: u8,
        /// Key at the responder.
        pub rkey: U32<LE>,
        /// Address at the responder.
        pub raddr: U64<LE>,
    }

    /// Second slot of RDMA WRITE and READ.
    pub struct RdmaSlot[16]: Default, PartialEq, Eq, Unaligned {
        /// Address at the responder.
        pub raddr: U64<LE>,
        /// Key at the responder.
        pub rkey: U32<LE>,
        /// Not looked at.
        pub reserved: U32<LE>,
    }

    /// Second slot of an atomic.
    pub struct AtomicSlot[16]: Default, PartialEq, Eq, Unaligned {
        /// Value to store, or to add.
        pub swap_add: U64<LE>,
        /// Value to compare with. Of fetch-and-add it is not used, but by early libraries for the summand.
        pub compare: U64<LE>,
    }

    /// Second slot of a datagram; that of a connection's SEND is not looked at.
    pub struct DatagramSlot[16]: Default, PartialEq, Eq, Unaligned {
        /// The QP there, 24 bits.
        pub qpn: U32<LE>,
        /// Address handle, 20 bits.
        pub handle: U32<LE>,
        /// Not looked at.
        pub reserved: U64<LE>,
    }

    /// An entry of a scatter/gather list.
    pub struct SgeSlot[16]: Default, PartialEq, Eq, Unaligned {
        /// Address of the local memory.
        pub addr: U64<LE>,
        /// Key of the local memory.
        pub lkey: U32<LE>,
        /// Bytes, which may be 0.
        pub length: U32<LE>,
    }

    /// First slot of a receive WQE; the second is not looked at.
    pub struct RecvHeader[16]: Default, PartialEq, Eq, Unaligned {
        /// RECV.
        pub wqe_type: u8,
        /// Zero.
        pub flags: u8,
        /// Slots of the WQE that are used, this one included.
        pub slots: u8,
        /// Zero.
        pub reserved: u8,
        /// Not looked at.
        pub reserved4: U32<LE>,
        /// Index of the receive in its ring, or its tag in an SRQ; 20 bits. Its CQE returns it.
        pub id: U32<LE>,
        /// Not looked at.
        pub reserved12: U32<LE>,
    }
}

impl From<&SgeSlot> for Sge {
    #[inline]
    fn from(slot: &SgeSlot) -> Self {
        Self::new(slot.addr.get(), slot.length.get(), slot.lkey.get())
    }
}

impl From<Sge> for SgeSlot {
    #[inline]
    fn from(sge: Sge) -> Self {
        Self { addr: sge.addr.into(), lkey: sge.lkey.0.into(), length: sge.len.into() }
    }
}

/// A list of entries in the slots of a WQE.
pub type Sges<'a> = warpverbs_rdma::Sges<'a, SgeSlot>;

/// The list that `slots` are, and the bytes of all entries together. A list of entries that are all of
/// zero length is empty.
#[inline(always)]
pub(crate) fn list(slots: &[[u8; SLOT]]) -> Sges<'_> {
    let slots: &[SgeSlot] = zerocopy::transmute_ref!(slots);
    // One entry is the common case; it needs no loop.
    let bytes = match slots {
        [slot] => u64::from(slot.length.get()),
        slots => slots.iter().map(|slot| u64::from(slot.length.get())).sum(),
    };
    match bytes {
        0 => Sges::default(),
        _ => Sges::checked(slots, bytes),
    }
}
