//! Send WQEs: bytes to values with [`parse`], values to bytes with [`WqeBuilder`].

mod build;
mod parse;
mod violation;

pub use build::{BuildError, Local, PayloadKind, WqeBuilder};
pub(crate) use parse::{OPMOD_4B, OPMOD_8B};
pub use parse::{parse, parse_datagram, peek};
pub use violation::{Field, WqeViolation};
pub use warpverbs_rdma::{Remote, Sge};

use crate::amo::{MaskedCompareSwap, MaskedFetchAdd};
use crate::flags::Flags;
use crate::num::{Lkey, Qpn, Rkey, SEGMENT, WqeIndex, wqebbs};
use crate::opcode::SendOpcode;
use crate::segment::{DataSeg, DatagramSeg, InlineHeader, RaddrSeg, inline_segments};

/// Where a WQE stands: the QP whose ring it is in and the index of its first WQEBB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The QP.
    pub qpn: Qpn,
    /// Producer index of the first WQEBB, low 16 bits.
    pub index: WqeIndex,
}

/// A well-formed send WQE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wqe<'a> {
    /// Its place in the ring.
    pub at: Position,
    /// Number of segments.
    pub ds: u8,
    /// Fence, completion and solicited-event modes.
    pub flags: Flags,
    /// The operation.
    pub op: Op<'a>,
}

impl Wqe<'_> {
    /// WQEBBs it occupies, 1 to 16.
    #[inline]
    pub const fn wqebbs(&self) -> usize {
        wqebbs(self.ds)
    }
}

/// The operation of a send WQE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op<'a> {
    /// Nothing.
    Nop,
    /// Deliver the payload to a receive of the peer.
    Send {
        /// Data beside the payload.
        with: SendWith,
        /// The bytes.
        payload: Payload<'a>,
    },
    /// Deliver the payload to a receive of any datagram QP. Only [`parse_datagram`] gives this.
    SendTo {
        /// Where to.
        to: Destination,
        /// Data beside the payload; never a key.
        with: SendWith,
        /// The bytes.
        payload: Payload<'a>,
    },
    /// Write the payload to the peer's memory.
    Write {
        /// Where to.
        remote: Remote,
        /// The bytes.
        payload: Payload<'a>,
        /// With an immediate, a receive of the peer is consumed too.
        imm: Option<u32>,
    },
    /// Read the peer's memory.
    Read {
        /// Where from.
        remote: Remote,
        /// Where the bytes go, in order.
        local: Sges<'a>,
    },
    /// 8-byte compare-and-swap.
    CompareSwap {
        /// The word.
        remote: Remote,
        /// Value to compare with.
        compare: u64,
        /// Value to store if equal.
        swap: u64,
        /// Where the old value goes.
        result: Sge,
    },
    /// 8-byte fetch-and-add.
    FetchAdd {
        /// The word.
        remote: Remote,
        /// Value to add.
        add: u64,
        /// Where the old value goes.
        result: Sge,
    },
    /// Masked compare-and-swap, 4 or 8 bytes.
    MaskedCompareSwap {
        /// The word.
        remote: Remote,
        /// Operands; they tell the width.
        operands: MaskedCompareSwap,
        /// Where the old value goes.
        result: Sge,
    },
    /// Masked fetch-and-add, 4 or 8 bytes.
    MaskedFetchAdd {
        /// The word.
        remote: Remote,
        /// Operands; they tell the width.
        operands: MaskedFetchAdd,
        /// Where the old value goes.
        result: Sge,
    },
    /// Invalidate a key of the own side.
    LocalInval {
        /// The key.
        rkey: Rkey,
    },
    /// Go no further before a CQ has a CQE.
    Wait {
        /// The CQ.
        cqn: u32,
        /// Index of the CQE, from 0 when the CQ was made; the low 24 bits count.
        index: u32,
    },
    /// Read local memory and drop what was read: whatever the device wrote there before is in place.
    Dump {
        /// The memory.
        local: Sge,
    },
}

impl Op<'_> {
    /// The opcode it came from; goes into the CQE.
    #[inline]
    pub const fn opcode(&self) -> SendOpcode {
        match self {
            Self::Nop => SendOpcode::Nop,
            Self::Send { with, .. } | Self::SendTo { with, .. } => match with {
                SendWith::Nothing => SendOpcode::Send,
                SendWith::Imm(_) => SendOpcode::SendImm,
                SendWith::Invalidate(_) => SendOpcode::SendInval,
            },
            Self::Write { imm: None, .. } => SendOpcode::RdmaWrite,
            Self::Write { imm: Some(_), .. } => SendOpcode::RdmaWriteImm,
            Self::Read { .. } => SendOpcode::RdmaRead,
            Self::CompareSwap { .. } => SendOpcode::AtomicCs,
            Self::FetchAdd { .. } => SendOpcode::AtomicFa,
            Self::MaskedCompareSwap { .. } => SendOpcode::MaskedCs,
            Self::MaskedFetchAdd { .. } => SendOpcode::MaskedFa,
            Self::LocalInval { .. } => SendOpcode::LocalInval,
            Self::Wait { .. } => SendOpcode::Wait,
            Self::Dump { .. } => SendOpcode::Dump,
        }
    }

    /// Bytes carried either way: the payload, what is read, or the size of the atomic's word.
    #[inline]
    pub const fn byte_len(&self) -> u64 {
        match self {
            Self::Nop | Self::LocalInval { .. } | Self::Wait { .. } | Self::Dump { .. } => 0,
            Self::Send { payload, .. }
            | Self::SendTo { payload, .. }
            | Self::Write { payload, .. } => payload.byte_len(),
            Self::Read { local, .. } => local.byte_len(),
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => 8,
            Self::MaskedCompareSwap { operands, .. } => operands.size() as u64,
            Self::MaskedFetchAdd { operands, .. } => operands.size() as u64,
        }
    }

    /// The remote memory it names, if any.
    #[inline]
    pub const fn remote(&self) -> Option<Remote> {
        match self {
            Self::Write { remote, .. }
            | Self::Read { remote, .. }
            | Self::CompareSwap { remote, .. }
            | Self::FetchAdd { remote, .. }
            | Self::MaskedCompareSwap { remote, .. }
            | Self::MaskedFetchAdd { remote, .. } => Some(*remote),
            Self::Nop
            | Self::Send { .. }
            | Self::SendTo { .. }
            | Self::LocalInval { .. }
            | Self::Wait { .. }
            | Self::Dump { .. } => None,
        }
    }
}

/// Where a datagram goes: what the address vector of its WQE says. Rates, service levels and MAC
/// addresses are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The QP.
    pub qpn: Qpn,
    /// The queue key of that QP; if bit 31 is set, the sender's own is used.
    pub qkey: u32,
    /// GID: an IPv6 address, or an IPv4 address as `::ffff:a.b.c.d`.
    pub gid: [u8; 16],
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

/// `ext` of an address vector of 48 bytes.
pub(crate) const EXTENDED: u8 = 0x80;
/// In `grh_gid_fl`: there is a GID.
pub(crate) const GRH: u32 = 1 << 30;

impl From<&DatagramSeg> for Destination {
    fn from(seg: &DatagramSeg) -> Self {
        Self {
            qpn: seg.dqp_dct.into(),
            qkey: (seg.dc_key.get() >> 32) as u32,
            gid: seg.rgid,
            traffic_class: seg.tclass,
            hop_limit: seg.hop_limit,
        }
    }
}

impl From<Destination> for DatagramSeg {
    fn from(to: Destination) -> Self {
        Self {
            dc_key: (u64::from(to.qkey) << 32).into(),
            ext: EXTENDED,
            dqp_dct: to.qpn.into(),
            tclass: to.traffic_class,
            hop_limit: to.hop_limit,
            grh_gid_fl: GRH.into(),
            rgid: to.gid,
            ..Self::default()
        }
    }
}

/// Data that a SEND carries beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendWith {
    /// Nothing.
    Nothing,
    /// Immediate data: the be32 field as a number.
    Imm(u32),
    /// A key that the receiver invalidates.
    Invalidate(Rkey),
}

impl From<&RaddrSeg> for Remote {
    #[inline]
    fn from(seg: &RaddrSeg) -> Self {
        Self { addr: seg.raddr.get(), rkey: Rkey(seg.rkey.get()) }
    }
}

impl From<Remote> for RaddrSeg {
    #[inline]
    fn from(remote: Remote) -> Self {
        Self { raddr: remote.addr.into(), rkey: remote.rkey.0.into(), ..Self::default() }
    }
}

impl From<&DataSeg> for Sge {
    #[inline]
    fn from(seg: &DataSeg) -> Self {
        Self { addr: seg.addr.get(), len: seg.byte_count.get(), lkey: Lkey(seg.lkey.get()) }
    }
}

impl From<Sge> for DataSeg {
    #[inline]
    fn from(sge: Sge) -> Self {
        Self { byte_count: sge.len.into(), lkey: sge.lkey.0.into(), addr: sge.addr.into() }
    }
}

/// A checked scatter/gather list, still in the WQE's bytes. No entry is of zero length.
pub type Sges<'a> = warpverbs_rdma::Sges<'a, DataSeg>;

/// Bytes to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Payload<'a> {
    /// In the WQE itself.
    Inline(&'a [u8]),
    /// In local memory. Empty for a message of no bytes.
    Sges(Sges<'a>),
    /// First in the WQE, then in local memory.
    Mixed(Mixed<'a>),
}

impl PartialEq for Mixed<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.inline(), self.local()) == (other.inline(), other.local())
    }
}

/// One inline segment and pointer segments behind it, checked and still in the WQE's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Mixed<'a> {
    /// From behind the inline header on.
    bytes: &'a [u8],
    inline: u32,
    local: u32,
}

impl<'a> Mixed<'a> {
    /// The first `inline` of `bytes`, and pointer segments from the next whole segment on, which
    /// passed every check.
    pub(crate) const fn checked(bytes: &'a [u8], inline: u32, local: &Sges<'_>) -> Self {
        Self { bytes, inline, local: local.byte_len() as u32 }
    }

    /// The bytes in the WQE.
    pub fn inline(&self) -> &'a [u8] {
        &self.bytes[..self.inline as usize]
    }

    /// The rest of the message.
    pub fn local(&self) -> Sges<'a> {
        let behind = inline_segments(self.inline as usize) * SEGMENT - size_of::<InlineHeader>();
        let (segs, _) = self.bytes[behind..].as_chunks::<SEGMENT>();
        Sges::checked(zerocopy::transmute_ref!(segs), self.local.into())
    }
}

impl Payload<'_> {
    /// Bytes together.
    #[inline]
    pub const fn byte_len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Sges(sges) => sges.byte_len(),
            Self::Mixed(mixed) => mixed.inline as u64 + mixed.local as u64,
        }
    }
}
