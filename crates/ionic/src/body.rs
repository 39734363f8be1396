//! Parts of a WQE, one declared layout each. Fields are big-endian but for the index; no layout needs
//! alignment.
//!
//! A WQE is 64 bytes, or more by powers of two: a header of 16 bytes, 16 bytes of the operation, then
//! entries or inline bytes. An atomic has a body of its own, whose end depends on the protocol.

use warpverbs_rdma::Sge;
use zerocopy::Unaligned;
use zerocopy::byteorder::{BE, LE, U16, U32, U64};

/// Bytes of the smallest WQE.
pub const WQE: usize = 64;
/// Offset of entries and inline bytes in a WQE.
pub const PAYLOAD: usize = 32;
/// Bytes of an entry.
pub const ENTRY: usize = 16;

warpverbs_layout::layout! {
    /// First 16 bytes of every WQE.
    pub struct Header[16]: Default, PartialEq, Eq, Unaligned {
        /// Index of the WQE: of its place in the ring, or counted on. Little-endian.
        pub index: U64<LE>,
        /// See [`crate::opcode::Opcode`].
        pub opcode: u8,
        /// Number of entries.
        pub entries: u8,
        /// See [`crate::opcode::WqeFlags`].
        pub flags: U16<BE>,
        /// Immediate value, or the key to invalidate. Of receives: bytes of all entries together.
        pub imm_or_key: U32<BE>,
    }

    /// Second 16 bytes of RDMA WRITE and READ.
    pub struct RdmaBody[16]: Default, PartialEq, Eq, Unaligned {
        /// Address at the responder.
        pub raddr: U64<BE>,
        /// Key at the responder.
        pub rkey: U32<BE>,
        /// Bytes of the message.
        pub length: U32<BE>,
    }

    /// Second 16 bytes of SEND; the first three are those of datagrams.
    pub struct SendBody[16]: Default, PartialEq, Eq, Unaligned {
        /// Address handle.
        pub handle: U32<BE>,
        /// The QP there, 24 bits.
        pub qpn: U32<BE>,
        /// Its queue key.
        pub qkey: U32<BE>,
        /// Bytes of the message.
        pub length: U32<BE>,
    }

    /// The rest of an atomic, of either protocol.
    pub struct AtomicBody[48]: Default, PartialEq, Eq, Unaligned {
        /// Address at the responder.
        pub raddr: U64<BE>,
        /// Key at the responder.
        pub rkey: U32<BE>,
        /// Value to store, or to add.
        pub swap_add: U64<BE>,
        /// Value to compare with; not used by fetch-and-add.
        pub compare: U64<BE>,
        /// Protocol 2: key of the 8 bytes for the old value. Protocol 1: not looked at.
        pub lkey: U32<BE>,
        /// Where the old value goes: an entry of 8 bytes in protocol 1, of which protocol 2 has the address
        /// alone.
        pub result: Entry,
    }

    /// An entry of a scatter/gather list.
    pub struct Entry[16]: Default, PartialEq, Eq, Unaligned {
        /// Address of the local memory.
        pub addr: U64<BE>,
        /// Bytes, which may be 0.
        pub length: U32<BE>,
        /// Key of the local memory.
        pub lkey: U32<BE>,
    }
}

impl From<&Entry> for Sge {
    #[inline]
    fn from(entry: &Entry) -> Self {
        Self::new(entry.addr.get(), entry.length.get(), entry.lkey.get())
    }
}

impl From<Sge> for Entry {
    #[inline]
    fn from(sge: Sge) -> Self {
        Self { addr: sge.addr.into(), length: sge.len.into(), lkey: sge.lkey.0.into() }
    }
}

/// A list of entries in a WQE.
pub type Sges<'a> = warpverbs_rdma::Sges<'a, Entry>;

/// The first `count` entries of a WQE's payload; `Err` has the number that it has room for. A list of
/// entries that are all of zero length is empty.
#[inline(always)]
pub(crate) fn list(payload: &[u8], count: u8) -> Result<Sges<'_>, u8> {
    let (all, _) = payload.as_chunks::<ENTRY>();
    let entries = all.get(..count.into()).ok_or(all.len().min(u8::MAX.into()) as u8)?;
    let entries: &[Entry] = zerocopy::transmute_ref!(entries);
    // One entry is the common case; it needs no loop.
    let bytes = match entries {
        [entry] => u64::from(entry.length.get()),
        entries => entries.iter().map(|entry| u64::from(entry.length.get())).sum(),
    };
    match bytes {
        0 => Ok(Sges::default()),
        _ => Ok(Sges::checked(entries, bytes)),
    }
}
