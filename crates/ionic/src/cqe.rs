//! Completion queue entries: 32 bytes, of which the last 4 say whose they are and whether they are new.
//! Writers store the others first.
//!
//! In a CQ of one entry that is overwritten for ever, as newer firmware offers it to GPUs, readers look at
//! the number of messages alone.

use crate::status::Failure;
use warpverbs_rdma::{Qpn, ReceivedKind, Rkey};
use zerocopy::byteorder::{BE, LE, U16, U32, U64};
use zerocopy::{Unaligned, transmute, transmute_ref};

/// Bytes of a CQE.
pub const CQE: usize = 32;
/// Offset of the last 8 bytes, which one aligned store writes whole.
pub const TAIL_OFFSET: usize = core::mem::offset_of!(SendCqe, tail);
/// Bits of a message's number.
pub const MSN_BITS: u32 = 24;

warpverbs_layout::layout! {
    /// CQE of send WQEs.
    pub struct SendCqe[32]: Default, PartialEq, Eq, Unaligned {
        /// Zero.
        pub reserved0: U32<BE>,
        /// Messages that have ended, 24 bits; the first message is number 1.
        pub msn: U32<BE>,
        /// Zero.
        pub reserved8: U64<BE>,
        /// Of operations without a message: place of the WQE in bits 15..0; a timestamp above.
        pub index_time: U64<LE>,
        /// Length or status, queue, type and colour.
        pub tail: CqeTail as fields,
    }

    /// CQE of a receive.
    pub struct RecvCqe[32]: Default, PartialEq, Eq, Unaligned {
        /// Place of the WQE in bits 15..0; a timestamp above.
        pub index_time: U64<LE>,
        /// Sender's QP in bits 23..0, kind of message in 28..24, VLAN in 30, IPv4 in 31.
        pub source_op: U32<BE>,
        /// MAC address of the sender.
        pub mac: [u8; 6],
        /// VLAN.
        pub vlan: U16<BE>,
        /// Immediate value, or the key that was invalidated.
        pub imm_or_key: U32<BE>,
        /// Length or status, queue, type and colour.
        pub tail: CqeTail as fields,
    }

    /// The last 8 bytes of every CQE.
    pub struct CqeTail[8]: Default, PartialEq, Eq, Unaligned {
        /// Status if the error bit is set, otherwise bytes that arrived.
        pub status_length: U32<BE>,
        /// See [`QueueTypeFlags`].
        pub queue_type_flags: U32<BE>,
    }

    /// The last word of a CQE, as a number.
    pub word QueueTypeFlags[raw: u32] {
        /// Says that the entry is new: 1 in the first lap, and it flips with each.
        color: bool = 0..1,
        /// The work failed.
        error: bool = 1..2,
        /// See [`CqeType`].
        cqe_type: u8 = 5..8,
        /// The QP.
        queue: u32 = 8..32,
    }

    /// Type of a CQE.
    pub open enum CqeType: u8 as "cqe_type" {
        /// A receive completed.
        Receive = 1 "RECV",
        /// Messages completed.
        Messages = 2 "SEND_MSN",
        /// A local operation completed, or any WQE was flushed.
        Local = 3 "SEND_NPG",
        /// Leads to receives elsewhere.
        Indirect = 4 "RECV_INDIRECT",
    }
}

/// In `source_op`: the kind of message.
const OP: u32 = 24;
/// In `source_op`: the IP header was one of IPv4.
const IPV4: u32 = 1 << 31;

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cqe {
    /// Messages up to a number have ended; with a failure, the last of them failed.
    Messages {
        /// The QP.
        qpn: Qpn,
        /// Number of the last message that has ended, 24 bits.
        msn: u32,
        /// How that one ended; those before it succeeded.
        status: Result<(), Failure>,
    },
    /// A WQE without a message of its own is complete, or was flushed.
    Local {
        /// The QP.
        qpn: Qpn,
        /// Its place in the ring.
        index: u16,
        /// How it ended.
        status: Result<(), Failure>,
    },
    /// A receive was filled, or failed.
    Received {
        /// The QP.
        qpn: Qpn,
        /// Its place in the ring.
        index: u16,
        /// The kind of message.
        kind: ReceivedKind,
        /// The QP that sent it.
        source: Qpn,
        /// Of a datagram: the IP header was one of IPv4.
        ipv4: bool,
        /// Bytes that arrived.
        status: Result<u32, Failure>,
    },
}

/// Why 32 bytes are not a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CqeViolation {
    /// The type is unknown, or was not asked for.
    #[error("cqe.type is {value}, expected 1 to 3")]
    Type {
        /// In the entry.
        value: u8,
    },
    /// The kind of message is unknown.
    #[error("cqe.op is {value:#x}, expected 0 to 3")]
    Op {
        /// In the entry.
        value: u8,
    },
    /// The error bit is set without an error.
    #[error("cqe.status is 0 with the error bit, expected 1 to 0xd")]
    Status,
}

/// The colour of an entry; a reader takes it if it is that of its place,
/// [`Position::color`](crate::ring::Position::color).
#[inline]
pub const fn color(raw: &[u8; CQE]) -> bool {
    raw[CQE - 1] & 1 != 0
}

impl Cqe {
    /// Decodes an entry that the device has written.
    pub fn parse(raw: &[u8; CQE]) -> Result<Self, CqeViolation> {
        let (sent, received): (&SendCqe, &RecvCqe) = (transmute_ref!(raw), transmute_ref!(raw));
        let word = QueueTypeFlags(sent.tail.queue_type_flags.get());
        let (qpn, value) = (Qpn::truncate(word.queue()), sent.tail.status_length.get());
        let length = match (word.error(), value) {
            (false, length) => Ok(length),
            (true, 0) => return Err(CqeViolation::Status),
            (true, failure) => Err(Failure::from_value(failure)),
        };
        let status = length.map(|_| ());
        match CqeType::from_value(word.cqe_type()) {
            CqeType::Messages => {
                let msn = sent.msn.get() & ((1 << MSN_BITS) - 1);
                Ok(Self::Messages { qpn, msn, status })
            }
            CqeType::Local => Ok(Self::Local { qpn, index: sent.index_time.get() as u16, status }),
            CqeType::Receive => {
                let (source_op, value) = (received.source_op.get(), received.imm_or_key.get());
                Ok(Self::Received {
                    qpn,
                    index: received.index_time.get() as u16,
                    kind: kind((source_op >> OP & 0x1f) as u8, value)?,
                    source: Qpn::truncate(source_op),
                    ipv4: source_op & IPV4 != 0,
                    status: length,
                })
            }
            other => Err(CqeViolation::Type { value: other.value() }),
        }
    }

    /// The bytes, with this colour.
    pub fn emit(&self, color: bool) -> [u8; CQE] {
        let tail = |cqe_type: CqeType, qpn: Qpn, status: Result<u32, Failure>| {
            let word = QueueTypeFlags::new(color, status.is_err(), cqe_type.value(), qpn.get());
            let status_length = status.unwrap_or_else(Failure::value).into();
            CqeTail { status_length, queue_type_flags: word.0.into() }
        };
        match *self {
            Self::Messages { qpn, msn, status } => transmute!(SendCqe {
                msn: (msn & ((1 << MSN_BITS) - 1)).into(),
                tail: tail(CqeType::Messages, qpn, status.map(|()| 0)),
                ..SendCqe::default()
            }),
            Self::Local { qpn, index, status } => transmute!(SendCqe {
                index_time: u64::from(index).into(),
                tail: tail(CqeType::Local, qpn, status.map(|()| 0)),
                ..SendCqe::default()
            }),
            Self::Received { qpn, index, kind, source, ipv4, status } => {
                let (op, imm_or_key) = match kind {
                    ReceivedKind::Send => (0, 0),
                    ReceivedKind::SendInvalidate(rkey) => (1, rkey.0),
                    ReceivedKind::SendImm(imm) => (2, imm),
                    ReceivedKind::WriteImm(imm) => (3, imm),
                };
                let ipv4 = if ipv4 { IPV4 } else { 0 };
                transmute!(RecvCqe {
                    index_time: u64::from(index).into(),
                    source_op: (source.get() | op << OP | ipv4).into(),
                    imm_or_key: imm_or_key.into(),
                    tail: tail(CqeType::Receive, qpn, status),
                    ..RecvCqe::default()
                })
            }
        }
    }
}

fn kind(op: u8, imm_or_key: u32) -> Result<ReceivedKind, CqeViolation> {
    match op {
        0 => Ok(ReceivedKind::Send),
        1 => Ok(ReceivedKind::SendInvalidate(Rkey(imm_or_key))),
        2 => Ok(ReceivedKind::SendImm(imm_or_key)),
        3 => Ok(ReceivedKind::WriteImm(imm_or_key)),
        value => Err(CqeViolation::Op { value }),
    }
}
