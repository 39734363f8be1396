//! The meaning of a CQE.

use super::{CQE, Cqe64, CqeTail, ErrCqe};
use crate::num::{Qpn, Rkey};
use crate::opcode::{CqeOpcode, SendOpcode};
use crate::syndrome::Syndrome;
pub use warpverbs_rdma::ReceivedKind;
use zerocopy::{transmute, transmute_ref};

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cqe {
    /// A send WQE, and every earlier unsignalled one of its queue, succeeded.
    Requester {
        /// The QP.
        qpn: Qpn,
        /// Index of the WQE's first WQEBB.
        wqe_counter: u16,
        /// Opcode of the WQE.
        opcode: SendOpcode,
        /// Bytes an RDMA READ or an atomic brought.
        byte_cnt: u32,
    },
    /// A receive WQE was filled.
    Receive {
        /// The QP.
        qpn: Qpn,
        /// Index of the receive WQE, in the QP's queue or in the SRQ.
        wqe_counter: u16,
        /// The kind of message.
        kind: ReceivedKind,
        /// Bytes that arrived.
        byte_cnt: u32,
        /// SRQ number or user index; 0 if neither is in use.
        srqn: u32,
        /// The sender asked for an event.
        solicited: bool,
        /// The sender, for a datagram: its first 40 bytes are a global route header.
        from: Option<DatagramSource>,
    },
    /// A WQE failed. The QP is in ERR, and the rest of its WQEs follow with
    /// [`Syndrome::WrFlush`].
    Error {
        /// Send or receive WQE.
        side: ErrorSide,
        /// The QP.
        qpn: Qpn,
        /// Index of the WQE, as in the other variants.
        wqe_counter: u16,
        /// Opcode of the send WQE; means nothing for a receive.
        opcode: SendOpcode,
        /// The syndrome.
        syndrome: Syndrome,
        /// Vendor syndrome; advisory.
        vendor: u8,
        /// SRQ number or user index; 0 if neither is in use.
        srqn: u32,
    },
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSource {
    /// The QP that sent it.
    pub qpn: Qpn,
    /// The IP header in its global route header is one of IPv6; otherwise of IPv4, in the last 20
    /// bytes.
    pub ipv6: bool,
}

/// In `grh_sl`: there is a global route header.
const GRH: u8 = 1 << 4;
/// In `grh_sl`, where RoCE has no service level: the kind of the IP header.
const IPV6: u8 = 1;
const IPV4: u8 = 2;

/// Whose WQE failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorSide {
    /// A send WQE.
    Requester,
    /// A receive WQE.
    Responder,
}

/// Where the payload of a completion is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CqeFormat {
    /// In memory.
    #[default]
    Plain,
    /// In the first 32 bytes of the CQE.
    Inline32,
    /// In the 64 bytes before the CQE, of an entry of 128.
    Inline64,
}

impl CqeFormat {
    /// Bits 3..2 of the CQE's last byte.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Inline32 => 1 << 2,
            Self::Inline64 => 2 << 2,
        }
    }
}

/// Why 64 bytes are not a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CqeViolation {
    /// Opcode 15: the hardware has not written the entry.
    #[error("op_own is {op_own:#04x}: the entry was never written")]
    Unwritten {
        /// Last byte.
        op_own: u8,
    },
    /// The opcode is not one of a reliable connection.
    #[error("CQE opcode is {opcode:?}, expected a completion of a send or receive WQE")]
    Opcode {
        /// In the entry.
        opcode: CqeOpcode,
    },
    /// Inline or compressed format; both must be asked for and are not.
    #[error("CQE format is {format}, expected 0 (plain)")]
    Format {
        /// In the entry.
        format: u8,
    },
}

impl Cqe {
    /// Decodes an entry that software owns, whose payload is in memory.
    pub fn parse(raw: &[u8; CQE]) -> Result<Self, CqeViolation> {
        match Self::parse_any(raw)? {
            (value, CqeFormat::Plain) => Ok(value),
            (_, format) => Err(CqeViolation::Format { format: format.bits() >> 2 }),
        }
    }

    /// Decodes an entry that software owns, and says where its payload is.
    pub fn parse_any(raw: &[u8; CQE]) -> Result<(Self, CqeFormat), CqeViolation> {
        let cqe: &Cqe64 = transmute_ref!(raw);
        let tail = cqe.tail;
        let (qpn, wqe_counter) = (tail.qpn.into(), tail.wqe_counter.get());
        let opcode = SendOpcode::from_value(tail.wqe_opcode);
        let (byte_cnt, srqn) = (cqe.byte_cnt.get(), cqe.srqn_uidx.get());
        let imm = cqe.imm_inval_pkey.get();
        let receive = |kind| Self::Receive {
            qpn,
            wqe_counter,
            kind,
            byte_cnt,
            srqn,
            solicited: tail.solicited(),
            // Payload may lie there.
            from: (cqe.grh_sl >> 4 & 3 != 0 && tail.format() == 0)
                .then(|| DatagramSource { qpn: cqe.rqpn.into(), ipv6: cqe.grh_sl & 3 == IPV6 }),
        };
        let error = |side| {
            let err: &ErrCqe = transmute_ref!(raw);
            let syndrome = Syndrome::from_value(err.syndrome);
            let vendor = err.vendor_err_synd;
            Self::Error { side, qpn, wqe_counter, opcode, syndrome, vendor, srqn }
        };
        let value = match tail.opcode() {
            CqeOpcode::Req => Self::Requester { qpn, wqe_counter, opcode, byte_cnt },
            CqeOpcode::RespWrImm => receive(ReceivedKind::WriteImm(imm)),
            CqeOpcode::RespSend => receive(ReceivedKind::Send),
            CqeOpcode::RespSendImm => receive(ReceivedKind::SendImm(imm)),
            CqeOpcode::RespSendInv => receive(ReceivedKind::SendInvalidate(Rkey(imm))),
            CqeOpcode::ReqErr => error(ErrorSide::Requester),
            CqeOpcode::RespErr => error(ErrorSide::Responder),
            CqeOpcode::Invalid => return Err(CqeViolation::Unwritten { op_own: tail.op_own }),
            opcode => return Err(CqeViolation::Opcode { opcode }),
        };
        match tail.format() {
            0 => Ok((value, CqeFormat::Plain)),
            1 => Ok((value, CqeFormat::Inline32)),
            2 => Ok((value, CqeFormat::Inline64)),
            format => Err(CqeViolation::Format { format }),
        }
    }

    /// The last entry of a ring that was resized: the next one is in the new ring.
    pub fn emit_resized(owner: bool) -> [u8; CQE] {
        let opcode = CqeOpcode::ResizeCq;
        let tail = CqeTail::new(opcode, SendOpcode::Nop, Qpn::default(), 0, owner);
        transmute!(Cqe64 { tail, ..Cqe64::default() })
    }

    /// The bytes, with `owner` as owner bit; see [`super::owner_bit`].
    #[inline]
    pub fn emit(&self, owner: bool) -> [u8; CQE] {
        match *self {
            Self::Requester { qpn, wqe_counter, opcode, byte_cnt } => transmute!(Cqe64 {
                byte_cnt: byte_cnt.into(),
                tail: CqeTail::new(CqeOpcode::Req, opcode, qpn, wqe_counter, owner),
                ..Cqe64::default()
            }),
            Self::Receive { qpn, wqe_counter, kind, byte_cnt, srqn, solicited, from } => {
                let (opcode, imm) = match kind {
                    ReceivedKind::WriteImm(imm) => (CqeOpcode::RespWrImm, imm),
                    ReceivedKind::Send => (CqeOpcode::RespSend, 0),
                    ReceivedKind::SendImm(imm) => (CqeOpcode::RespSendImm, imm),
                    ReceivedKind::SendInvalidate(rkey) => (CqeOpcode::RespSendInv, rkey.0),
                };
                let mut tail = CqeTail::new(opcode, SendOpcode::Nop, qpn, wqe_counter, owner);
                tail.op_own |= (solicited as u8) << 1;
                let (rqpn, grh_sl) = from.map_or((Qpn::default(), 0), |from| {
                    (from.qpn, GRH | if from.ipv6 { IPV6 } else { IPV4 })
                });
                transmute!(Cqe64 {
                    grh_sl,
                    rqpn: rqpn.into(),
                    srqn_uidx: srqn.into(),
                    imm_inval_pkey: imm.into(),
                    byte_cnt: byte_cnt.into(),
                    tail,
                    ..Cqe64::default()
                })
            }
            Self::Error { side, qpn, wqe_counter, opcode, syndrome, vendor, srqn } => {
                let cqe_opcode = match side {
                    ErrorSide::Requester => CqeOpcode::ReqErr,
                    ErrorSide::Responder => CqeOpcode::RespErr,
                };
                transmute!(ErrCqe {
                    srqn_uidx: srqn.into(),
                    vendor_err_synd: vendor,
                    syndrome: syndrome.value(),
                    tail: CqeTail::new(cqe_opcode, opcode, qpn, wqe_counter, owner),
                    ..ErrCqe::default()
                })
            }
        }
    }
}
