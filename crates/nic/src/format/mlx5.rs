//! The queues of mlx5 devices.

use super::{Done, Ended, Head, Op, Payload, Short, TakesPayload, Wqe};
use crate::violation::Rule;
use warpverbs_mem::Block;
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::doorbell::{CqArm, Doorbell};
use warpverbs_mlx5::flags::Flags;
use warpverbs_mlx5::num::{MAX_WQE, Qpn, WQEBB, WqeIndex};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::recv;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{self, Position, Sges, WqeViolation};
use warpverbs_rdma::Status;
use zerocopy::{IntoBytes, transmute_ref};

/// A parsed doorbell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(crate) qpn: Qpn,
    /// One past the newest WQEBB.
    pub(crate) next: WqeIndex,
}

/// The value of a doorbell, in either of the two shapes that posters write.
#[inline]
pub(crate) fn announced(bytes: [u8; 8]) -> Announced {
    let bell = Doorbell::parse(bytes);
    Announced { qpn: bell.qpn(), next: bell.next() }
}

/// The request in the arm word of a CQ.
#[inline]
pub(crate) fn requested(word: u32) -> CqArm {
    CqArm::from_word(word)
}

/// WQEBBs of the longest WQE.
pub(crate) const LONGEST: usize = MAX_WQE / WQEBB;

/// The bytes of a WQEBB.
#[inline]
pub(crate) fn block_of(block: &Block) -> &[u8; 64] {
    transmute_ref!(block)
}

/// See [`Head`].
pub(crate) fn head(first: &Block) -> Head {
    let first = block_of(first);
    Head {
        units: wqe::peek(first) as u64,
        opcode: SendOpcode::from_value(first[3]),
        completion: Flags::from_byte(first[11]).unwrap_or_default().completion,
    }
}

/// WQEBBs of the WQE that begins with this one, by what it says.
#[inline(always)]
pub(crate) fn wqebbs(first: &Block) -> u64 {
    wqe::peek(block_of(first)) as u64
}

fn position(qpn: Qpn, index: u64) -> Position {
    Position { qpn, index: WqeIndex::of(index) }
}

/// The WQE of QP `qpn` at `index`: a datagram's, or a connection's.
#[inline(always)]
pub(crate) fn send_wqe(
    raw: &[u8],
    (qpn, index): (Qpn, u64),
    datagram: bool,
) -> Result<Wqe<'_>, WqeViolation> {
    let wqe = match datagram {
        true => wqe::parse_datagram(raw, position(qpn, index)),
        false => wqe::parse(raw, position(qpn, index)),
    }?;
    Ok(Wqe { units: wqe.wqebbs() as u64, flags: wqe.flags, op: wqe.op })
}

/// The WQE of QP `qpn` at `index`, if it is a plain WRITE and has one WQEBB.
#[inline(always)]
pub(super) fn short<'a, S>(
    block: &'a Block,
    (qpn, index): (Qpn, u64),
    payload: impl TakesPayload<'a, S>,
) -> Option<Short<S>> {
    // Segments of a longer WQE are missing here.
    let wqe = wqe::parse(block_of(block), position(qpn, index)).ok()?;
    let Op::Write { remote, payload: own, imm: None } = wqe.op else { return None };
    let source = match own {
        Payload::Sges(sges) => payload.piece(sges.single()?)?,
        Payload::Inline(bytes) => payload.inline(bytes)?,
        Payload::Mixed(_) => return None,
    };
    Some(Short { units: 1, remote, source, psn: 0, flags: wqe.flags })
}

/// Says more of a wrong index: a slot never written, or the WQE of an earlier lap.
#[cold]
pub(crate) fn explain(violation: WqeViolation, block: &Block, depth: u64) -> Rule {
    let fill = block.as_bytes()[0];
    if matches!(fill, 0 | 0xff) && block.as_bytes().iter().all(|&byte| byte == fill) {
        return Rule::NeverWritten { fill };
    }
    if let WqeViolation::Index { value, expected } = violation {
        let age = u64::from(expected.0.wrapping_sub(value.0));
        if age % depth == 0 && age / depth <= 2 {
            let laps = (age / depth) as u16;
            return Rule::StaleSlot { found: value.0, expected: expected.0, laps };
        }
    }
    Rule::Wqe(violation)
}

/// The segments of a receive.
#[inline]
pub(crate) fn parse_receive(raw: &[u8]) -> Result<Sges<'_>, Rule> {
    Ok(recv::parse(raw)?)
}

/// The link of a receive of an SRQ, and its segments.
#[inline]
pub(crate) fn parse_shared_receive(raw: &[u8]) -> Result<(u16, Sges<'_>), Rule> {
    Ok(recv::parse_srq(raw)?)
}

/// The CQE of what has ended.
#[inline]
pub(super) fn cqe(done: &Done) -> Cqe {
    let (qpn, wqe_counter) = (done.qpn, done.index as u16);
    let error = |side, opcode, status, vendor: Option<u8>, srqn| {
        let syndrome = Syndrome::of_failure(status);
        let vendor = vendor.unwrap_or(syndrome.usual_vendor());
        Cqe::Error { side, qpn, wqe_counter, opcode, syndrome, vendor, srqn }
    };
    match done.what {
        Ended::Sent { opcode, brought: byte_cnt } => {
            Cqe::Requester { qpn, wqe_counter, opcode, byte_cnt }
        }
        Ended::Received { kind, len: byte_cnt, srqn, solicited, from } => {
            Cqe::Receive { qpn, wqe_counter, kind, byte_cnt, srqn, solicited, from }
        }
        // Never written here.
        Ended::Queue { side } => error(side, SendOpcode::Nop, Status::Flushed, None, 0),
        Ended::Failed { side, opcode, status, vendor, srqn } => {
            error(side, opcode, status, vendor, srqn)
        }
    }
}
