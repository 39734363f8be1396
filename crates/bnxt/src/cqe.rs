//! Completion queue entries: 32 bytes, of which the last 8 say whose they are. Writers store the first
//! 24 bytes before the last 8.
//!
//! In a CQ of one entry that is overwritten for ever, as GPU libraries make it, readers look at
//! `consumed` and the status alone, and not at the phase.

use crate::recv::ID_BITS;
use crate::status::{RecvStatus, SendStatus};
use bitflags::bitflags;
use warpverbs_rdma::{Qpn, ReceivedKind, Rkey};
use zerocopy::byteorder::{LE, U16, U32, U64};
use zerocopy::{Unaligned, transmute, transmute_ref};

/// Bytes of a CQE.
pub const CQE: usize = 32;
/// Offset of the [`CqeTail`] in a CQE.
pub const TAIL_OFFSET: usize = core::mem::offset_of!(SendCqe, tail);

warpverbs_layout::layout! {
    /// CQE of send WQEs; also of a QP that went to ERR, and the last of a resized CQ.
    pub struct SendCqe[32]: Default, PartialEq, Eq, Unaligned {
        /// The number that the library gave the QP when it made it.
        pub qp_handle: U64<LE>,
        /// WQEs of the send queue that are complete, modulo 2^16. For a QP in ERR, its positions.
        pub consumed: U16<LE>,
        /// Zero.
        pub reserved: [u8; 14],
        /// Type, status and phase.
        pub tail: CqeTail as fields,
    }

    /// CQE of a connection's receive.
    pub struct RecvCqe[32]: Default, PartialEq, Eq, Unaligned {
        /// Bytes that arrived.
        pub length: U32<LE>,
        /// Immediate value, or the key that was invalidated.
        pub imm_or_key: U32<LE>,
        /// As in [`SendCqe`].
        pub qp_handle: U64<LE>,
        /// The device's own.
        pub mr_handle: U64<LE>,
        /// Type, status and phase.
        pub tail: CqeTail as fields,
    }

    /// CQE of a datagram's receive.
    pub struct DatagramCqe[32]: Default, PartialEq, Eq, Unaligned {
        /// Bytes that arrived, 14 bits.
        pub length: U32<LE>,
        /// Immediate value.
        pub imm: U32<LE>,
        /// As in [`SendCqe`].
        pub qp_handle: U64<LE>,
        /// MAC address of the sender, lowest byte first.
        pub mac: [u8; 6],
        /// Low 16 bits of the sender's QP.
        pub source_low: U16<LE>,
        /// Type, status and phase.
        pub tail: CqeTail as fields,
    }

    /// The last 8 bytes of every CQE: 8-byte aligned, so one load or store moves them whole.
    pub struct CqeTail[8]: Default, PartialEq, Eq, Unaligned {
        /// Phase in bit 0, type in 4..1, of the last CQE of a resized CQ its toggle in 6..5.
        pub type_phase: u8,
        /// See [`SendStatus`] and [`RecvStatus`].
        pub status: u8,
        /// See [`RecvFlags`].
        pub flags: U16<LE>,
        /// The receive's number in bits 19..0, the high 8 bits of a datagram's sender in 31..24.
        pub id: U32<LE>,
    }

    /// Type of a CQE.
    pub open enum CqeType: u8 as "cqe_type" {
        /// Send WQEs completed, or one failed.
        Send = 0x0 "SEND",
        /// A receive of a connection completed.
        Receive = 0x1 "RECV_RC",
        /// A receive of a datagram QP completed.
        Datagram = 0x2 "RECV_UD",
        /// A receive of a raw queue completed.
        Raw = 0x3 "RECV_RAW",
        /// A QP went to ERR.
        Terminal = 0xe "TERMINAL",
        /// The rest is in the new ring of a resized CQ.
        CutOff = 0xf "CUT_OFF",
    }
}

bitflags! {
    /// Flags of a receive's CQE.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RecvFlags: u16 {
        /// The receive was one of an SRQ.
        const SHARED = 0x1;
        /// There is an immediate.
        const IMM = 0x2;
        /// A key was invalidated.
        const INVALIDATE = 0x4;
        /// It was an RDMA WRITE.
        const WRITE = 0x8;
        /// Of a datagram: its IP header was one of IPv4, or of IPv6 beside the next bit.
        const IP = 0x20;
        /// See [`Self::IP`].
        const IPV6 = 0x10;
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cqe {
    /// The send WQEs up to a count are complete; or, with an error, the oldest one failed.
    Sent {
        /// The QP.
        qp_handle: u64,
        /// WQEs of the send queue that are complete, modulo 2^16.
        consumed: u16,
        /// How they ended.
        status: SendStatus,
    },
    /// A receive of a connection was filled, or failed.
    Received {
        /// The QP.
        qp_handle: u64,
        /// The receive's number, 20 bits.
        id: u32,
        /// It was one of an SRQ.
        shared: bool,
        /// How it ended.
        status: RecvStatus,
        /// The kind of message.
        kind: ReceivedKind,
        /// Bytes that arrived.
        length: u32,
    },
    /// A receive of a datagram QP was filled, or failed.
    Datagram {
        /// The QP.
        qp_handle: u64,
        /// The receive's number, 20 bits.
        id: u32,
        /// It was one of an SRQ.
        shared: bool,
        /// How it ended.
        status: RecvStatus,
        /// Immediate data.
        imm: Option<u32>,
        /// Bytes that arrived, 14 bits.
        length: u16,
        /// The QP that sent it.
        source: Qpn,
        /// The IP header in its route header is one of IPv6; otherwise of IPv4.
        ipv6: bool,
    },
    /// A QP went to ERR: the library flushes the rest of its work by itself.
    Terminal {
        /// The QP.
        qp_handle: u64,
    },
    /// The next CQE is in the new ring.
    CutOff {
        /// Flips with each time that the CQ is resized, 2 bits.
        toggle: u8,
    },
}

/// Why 32 bytes are not a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CqeViolation {
    /// The type is unknown, or one of raw queues.
    #[error("cqe.type is {value:#x}, expected 0 to 2, 0xe or 0xf")]
    Type {
        /// In the entry.
        value: u8,
    },
    /// The flags contradict each other.
    #[error("cqe.flags is {value:#06x}: a key beside an immediate, or a WRITE without immediate")]
    Flags {
        /// In the entry.
        value: u16,
    },
}

/// The phase of an entry; a reader takes it if it is that of its position, [`Ring::phase`].
///
/// [`Ring::phase`]: crate::ring::Ring::phase
#[inline]
pub const fn phase(raw: &[u8; CQE]) -> bool {
    raw[TAIL_OFFSET] & 1 != 0
}

impl Cqe {
    /// Decodes an entry that the device has written.
    pub fn parse(raw: &[u8; CQE]) -> Result<Self, CqeViolation> {
        let (sent, received): (&SendCqe, &RecvCqe) = (transmute_ref!(raw), transmute_ref!(raw));
        let datagram: &DatagramCqe = transmute_ref!(raw);
        let tail = &sent.tail;
        let flags = RecvFlags::from_bits_retain(tail.flags.get());
        let id = tail.id.get() & ((1 << ID_BITS) - 1);
        let (shared, status) =
            (flags.contains(RecvFlags::SHARED), RecvStatus::from_value(tail.status));
        let qp_handle = sent.qp_handle.get();
        match CqeType::from_value(tail.type_phase >> 1 & 0xf) {
            CqeType::Send => {
                let status = SendStatus::from_value(tail.status);
                Ok(Self::Sent { qp_handle, consumed: sent.consumed.get(), status })
            }
            CqeType::Receive => {
                let kind = kind(flags, received.imm_or_key.get())?;
                let (qp_handle, length) = (received.qp_handle.get(), received.length.get());
                Ok(Self::Received { qp_handle, id, shared, status, kind, length })
            }
            CqeType::Datagram => {
                let high = tail.id.get() >> 24 << 16;
                let source = Qpn::truncate(high | u32::from(datagram.source_low.get()));
                let (imm, qp_handle) = (datagram.imm.get(), datagram.qp_handle.get());
                let imm = flags.contains(RecvFlags::IMM).then_some(imm);
                let length = datagram.length.get() as u16 & LENGTH;
                let ipv6 = flags.contains(RecvFlags::IPV6);
                Ok(Self::Datagram { qp_handle, id, shared, status, imm, length, source, ipv6 })
            }
            CqeType::Terminal => Ok(Self::Terminal { qp_handle }),
            CqeType::CutOff => Ok(Self::CutOff { toggle: tail.type_phase >> 5 & 3 }),
            other => Err(CqeViolation::Type { value: other.value() }),
        }
    }

    /// The bytes, with this phase.
    pub fn emit(&self, phase: bool) -> [u8; CQE] {
        let tail = |cqe_type: CqeType, status, flags: RecvFlags, id: u32| CqeTail {
            type_phase: cqe_type.value() << 1 | u8::from(phase),
            status,
            flags: flags.bits().into(),
            id: id.into(),
        };
        let plain = |qp_handle: u64, consumed: u16, tail| {
            let (qp_handle, consumed) = (qp_handle.into(), consumed.into());
            transmute!(SendCqe { qp_handle, consumed, tail, ..SendCqe::default() })
        };
        let none = RecvFlags::empty();
        match *self {
            Self::Sent { qp_handle, consumed, status } => {
                plain(qp_handle, consumed, tail(CqeType::Send, status.value(), none, 0))
            }
            Self::Received { qp_handle, id, shared, status, kind, length } => {
                let (mut flags, imm_or_key) = flags(kind);
                flags.set(RecvFlags::SHARED, shared);
                let tail = tail(CqeType::Receive, status.value(), flags, id & ((1 << ID_BITS) - 1));
                let (length, imm_or_key) = (length.into(), imm_or_key.into());
                let qp_handle = qp_handle.into();
                transmute!(RecvCqe { length, imm_or_key, qp_handle, tail, ..RecvCqe::default() })
            }
            Self::Datagram { qp_handle, id, shared, status, imm, length, source, ipv6 } => {
                let mut flags = RecvFlags::IP;
                flags.set(RecvFlags::IPV6, ipv6);
                flags.set(RecvFlags::SHARED, shared);
                flags.set(RecvFlags::IMM, imm.is_some());
                let id = id & ((1 << ID_BITS) - 1) | source.get() >> 16 << 24;
                transmute!(DatagramCqe {
                    length: u32::from(length & LENGTH).into(),
                    imm: imm.unwrap_or(0).into(),
                    qp_handle: qp_handle.into(),
                    source_low: (source.get() as u16).into(),
                    tail: tail(CqeType::Datagram, status.value(), flags, id),
                    ..DatagramCqe::default()
                })
            }
            Self::Terminal { qp_handle } => {
                plain(qp_handle, 0, tail(CqeType::Terminal, 0, none, 0))
            }
            Self::CutOff { toggle } => {
                let mut tail = tail(CqeType::CutOff, 0, none, 0);
                tail.type_phase |= (toggle & 3) << 5;
                plain(0, 0, tail)
            }
        }
    }
}

/// Bits of a datagram's length.
const LENGTH: u16 = 0x3fff;

fn kind(flags: RecvFlags, imm_or_key: u32) -> Result<ReceivedKind, CqeViolation> {
    let (imm, invalidate) = (RecvFlags::IMM, RecvFlags::INVALIDATE);
    match flags & (imm | invalidate | RecvFlags::WRITE) {
        none if none.is_empty() => Ok(ReceivedKind::Send),
        flags if flags == imm => Ok(ReceivedKind::SendImm(imm_or_key)),
        flags if flags == invalidate => Ok(ReceivedKind::SendInvalidate(Rkey(imm_or_key))),
        flags if flags == imm | RecvFlags::WRITE => Ok(ReceivedKind::WriteImm(imm_or_key)),
        _ => Err(CqeViolation::Flags { value: flags.bits() }),
    }
}

fn flags(kind: ReceivedKind) -> (RecvFlags, u32) {
    match kind {
        ReceivedKind::Send => (RecvFlags::empty(), 0),
        ReceivedKind::SendImm(imm) => (RecvFlags::IMM, imm),
        ReceivedKind::SendInvalidate(rkey) => (RecvFlags::INVALIDATE, rkey.0),
        ReceivedKind::WriteImm(imm) => (RecvFlags::IMM | RecvFlags::WRITE, imm),
    }
}
