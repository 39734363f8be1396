//! The queues of ionic devices.

use super::list::{Request, in_place};
use super::{
    At, Completion, Done, Ended, ErrorSide, FormatViolation, Head, LONGEST, Names, SendOpcode,
    Sges, Short, TakesPayload, Wqe,
};
use crate::objects::address::Addresses;
use crate::violation::Rule;
use warpverbs_ionic::body::Entry;
use warpverbs_ionic::cqe::Cqe;
use warpverbs_ionic::doorbell::{Arm, Doorbell};
use warpverbs_ionic::opcode::{Opcode, Protocol};
use warpverbs_ionic::ring::{Position, counter};
use warpverbs_ionic::status::Failure;
use warpverbs_ionic::{recv, wqe};
use warpverbs_mem::{Block, SendRing};
use warpverbs_rdma::{Op, Qpn, QueueKind, ReceivedKind};
use zerocopy::IntoBytes;

/// A send queue of 2^`log_depth` WQEs of 2^`log_wqe` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sends {
    pub(super) protocol: Protocol,
    pub(super) log_depth: u8,
    pub(super) log_wqe: u8,
}

impl Sends {
    #[inline]
    fn position(self, at: At) -> Position {
        Position { counter: at.index, log_depth: self.log_depth }
    }

    /// The queue that a doorbell names, and how far it is announced.
    #[inline]
    pub(crate) fn rung(self, word: u64, before: u64) -> Result<(u32, u64), FormatViolation> {
        told(word, before, self.log_depth)
    }

    pub(crate) fn head(self, ring: &SendRing, index: u64) -> Head {
        let mut words = [0; 2];
        ring.read(index, &mut words);
        let opcode = match Opcode::from_value(self.protocol, words.as_bytes()[8]) {
            Some(Opcode::Send) => SendOpcode::Send,
            Some(Opcode::SendImm) => SendOpcode::SendImm,
            Some(Opcode::SendInvalidate) => SendOpcode::SendInval,
            Some(Opcode::Write) => SendOpcode::RdmaWrite,
            Some(Opcode::WriteImm) => SendOpcode::RdmaWriteImm,
            Some(Opcode::Read) => SendOpcode::RdmaRead,
            Some(Opcode::CompareSwap) => SendOpcode::AtomicCs,
            Some(Opcode::FetchAdd) => SendOpcode::AtomicFa,
            Some(Opcode::LocalInvalidate) => SendOpcode::LocalInval,
            Some(Opcode::Register | Opcode::Bind) | None => SendOpcode::Nop,
        };
        Head { units: 1, opcode, completion: Completion::Always }
    }

    /// A plain WRITE in a WQE of 64 bytes.
    #[inline(always)]
    pub(crate) fn short<'a, S>(
        self,
        at: At,
        block: &'a Block,
        payload: impl TakesPayload<'a, S>,
    ) -> Option<Short<S>> {
        if self.log_wqe != 6 {
            return None;
        }
        let raw = super::mlx5::block_of(block);
        let posted = wqe::parse(raw, self.position(at), self.protocol).ok()?;
        let Op::Write(remote) = posted.op else { return None };
        let source = match posted.inline {
            [] => payload.piece(posted.local.single()?)?,
            bytes => payload.inline(bytes)?,
        };
        Some(Short { units: 1, remote, source, psn: 0, flags: super::Flags::of(posted.flags) })
    }

    /// The WQE at a place, copied to `long`. Without `addresses` it is a connection's.
    pub(crate) fn wqe<'a>(
        self,
        ring: &SendRing,
        at: At,
        addresses: Option<Addresses<'_>>,
        long: &'a mut [Block; LONGEST],
    ) -> Result<Wqe<'a>, (u64, Rule)> {
        let words = &mut long.as_flattened_mut()[..1 << (self.log_wqe - 3)];
        ring.read(at.index, words);
        let (place, bytes) = (self.position(at), words.as_bytes());
        let posted = match addresses {
            Some(_) => wqe::parse_datagram(bytes, place, self.protocol),
            None => wqe::parse(bytes, place, self.protocol),
        };
        let queue = QueueKind::Send;
        let posted = posted
            .map_err(|violation| (1, FormatViolation::IonicWqe { queue, violation }.into()))?;
        let asked = Request::of(&posted);
        let to = asked.destination(addresses).map_err(|violation| (1, violation.into()))?;
        let mut wqe = asked.wqe::<Entry>(1, to, words.as_mut_bytes());
        if addresses.is_some() {
            // A CQE of a datagram is about its WQE alone: the library waits for one of each.
            wqe.flags.completion = Completion::Always;
        }
        Ok(wqe)
    }
}

/// The queue that a doorbell names, and its counter.
#[inline]
pub(super) fn told(word: u64, before: u64, log_depth: u8) -> Result<(u32, u64), FormatViolation> {
    let bell = Doorbell::parse(word)?;
    if bell.arm.is_some() {
        return Err(FormatViolation::IonicArm);
    }
    Ok((bell.queue.get(), counter(bell.index, before, log_depth)?))
}

/// Whether a doorbell asks for an event at solicited CQEs alone; `None`: it asks for none.
pub(super) fn armed(word: u64) -> Option<bool> {
    Doorbell::parse(word).ok()?.arm.map(|arm| arm == Arm::Solicited)
}

/// The entries of a receive.
pub(super) fn receive(
    wqe: &mut [u8],
    counter: u64,
    log_depth: u8,
    queue: QueueKind,
) -> Result<Sges<'_>, Rule> {
    let parsed = recv::parse(wqe, Position { counter, log_depth }).map(|sges| sges.len());
    let count = parsed.map_err(|violation| FormatViolation::IonicWqe { queue, violation })?;
    Ok(in_place::<Entry>(wqe, count))
}

/// The CQE of what has ended. Datagrams are no messages of a connection, which are counted.
pub(super) fn cqe(done: &Done, names: Names) -> Cqe {
    let (qpn, index, msn) = (done.qpn, (done.index & names.mask) as u16, done.ended as u32);
    let sent = |status| match names.datagrams {
        true => Cqe::Local { qpn, index, status },
        false => Cqe::Messages { qpn, msn, status },
    };
    let failed = |status| Err(Failure::of(status).unwrap_or(Failure::LocalQpOperation));
    let received = |kind, source: Option<super::DatagramSource>, status| {
        let (source, ipv4) = source.map_or((Qpn::default(), false), |from| (from.qpn, !from.ipv6));
        Cqe::Received { qpn, index, kind, source, ipv4, status }
    };
    match done.what {
        Ended::Sent { .. } => sent(Ok(())),
        Ended::Failed { side: ErrorSide::Requester, status, .. } => sent(failed(status)),
        Ended::Failed { side: ErrorSide::Responder, status, .. } => {
            received(ReceivedKind::Send, None, failed(status).map(|()| 0))
        }
        Ended::Received { kind, len, from, .. } => received(kind, from, Ok(len)),
        Ended::Queue { side: ErrorSide::Requester } => {
            Cqe::Local { qpn, index, status: Err(Failure::Flushed) }
        }
        Ended::Queue { side: ErrorSide::Responder } => {
            received(ReceivedKind::Send, None, Err(Failure::Flushed))
        }
    }
}
