//! Parts of the host's posting that depend on the format of a NIC's queues: bytes of work requests, doorbells
//! and completions. The order of all stores is the same.

use super::request::{Action, Request, Wqe};
use super::work::control_byte;
use crate::UsageError;
use crate::limits::BNXT_SLOTS;
use std::mem::offset_of;
use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::opcode::WqeFlags as BnxtFlags;
use warpverbs_bnxt::slot::{RecvHeader, SLOT, SendHeader};
use warpverbs_bnxt::{doorbell as bnxt_doorbell, recv as bnxt_recv, wqe as bnxt_wqe};
use warpverbs_ionic::body::{Header, WQE};
use warpverbs_ionic::opcode::{Protocol, WqeFlags as IonicFlags};
use warpverbs_ionic::ring::Position;
use warpverbs_ionic::{doorbell as ionic_doorbell, recv as ionic_recv, wqe as ionic_wqe};
use warpverbs_mlx5::export::NicFormat;
use warpverbs_mlx5::num::WQEBB;
use warpverbs_mlx5::recv;
use warpverbs_mlx5::segment::CtrlSeg;
use warpverbs_rdma::{Data, Op, Qpn, Remote, SendFlags, Sge, WorkRequest, is_odd_lap};

/// Bytes of one unit of a send queue.
pub(super) const fn unit_bytes(format: NicFormat) -> usize {
    match format {
        NicFormat::Mlx5 | NicFormat::Ionic => WQEBB,
        NicFormat::Bnxt => BNXT_SLOTS as usize * SLOT,
    }
}

/// Entries of a ring of 2^n that stay free, since a doorbell could not tell a full one from an empty one.
pub(super) const fn unused(format: NicFormat) -> u64 {
    matches!(format, NicFormat::Ionic) as u64
}

/// The bytes of a work request whose place and report are not known yet, whole units.
pub(super) fn encode<'b>(
    format: NicFormat,
    request: &Request<'_>,
    buf: &'b mut Wqe,
    qpn: Qpn,
) -> Result<&'b mut [u8], UsageError> {
    if format == NicFormat::Mlx5 {
        let len = request.encode(buf, qpn)?.len();
        return Ok(&mut buf[..len]);
    }
    let nothing = Op::Write(Remote::new(0, 0));
    let op = match request.action {
        Action::Rdma(op) => op,
        // Without a NOP, a WRITE of nothing, which the peer answers.
        Action::Nop => nothing,
        Action::MaskedCompareSwap(..) | Action::MaskedFetchAdd(..) => {
            return Err(UsageError::NotOfFormat { what: "a masked atomic", format });
        }
        Action::LocalInvalidate(_) => {
            return Err(UsageError::NotOfFormat { what: "an invalidation of a key", format });
        }
    };
    let (max, none) = (if format == NicFormat::Bnxt { 1 } else { 2 }, [Sge::default()]);
    let data = match request.data {
        Data::Sges(sges) if sges.len() > max => {
            let what = match max {
                1 => "a work request of more than one piece of memory",
                _ => "a work request of more than two pieces of memory",
            };
            return Err(UsageError::NotOfFormat { what, format });
        }
        // Three slots without an entry are one of no bytes.
        Data::Sges([]) if format == NicFormat::Bnxt => Data::Sges(&none),
        data => data,
    };
    let request = WorkRequest { id: 0, op, data, flags: request.flags };
    let wqe = &mut buf[..unit_bytes(format)];
    let built = match format {
        NicFormat::Bnxt => bnxt_wqe::build(wqe, &request).map(drop).map_err(|e| e.to_string()),
        _ => {
            let at = Position { counter: 0, log_depth: 1 };
            ionic_wqe::build(wqe, at, Protocol::V2, &request).map_err(|e| e.to_string())
        }
    };
    match built {
        Ok(()) => Ok(wqe),
        Err(why) => Err(UsageError::Request { why }),
    }
}

/// Puts place and report into the first bytes of a work request.
#[inline]
pub(super) fn stamp(
    format: NicFormat,
    head: &mut [u8; 16],
    (base, log_depth): (u64, u32),
    (flags, signaled): (SendFlags, bool),
) {
    match format {
        NicFormat::Mlx5 => {
            const INDEX: usize = offset_of!(CtrlSeg, wqe_index);
            head[INDEX..INDEX + 2].copy_from_slice(&(base as u16).to_be_bytes());
            head[offset_of!(CtrlSeg, fm_ce_se)] = control_byte(flags, signaled);
        }
        NicFormat::Bnxt => {
            let byte = &mut head[offset_of!(SendHeader, flags)];
            *byte |= u8::from(signaled) * BnxtFlags::SIGNALED.bits();
        }
        NicFormat::Ionic => {
            let log_depth = log_depth as u8;
            let at = Position { counter: base, log_depth };
            head[..8].copy_from_slice(&base.to_le_bytes());
            const FLAGS: usize = offset_of!(Header, flags);
            let old = u16::from_be_bytes([head[FLAGS], head[FLAGS + 1]]);
            let mut bits = IonicFlags::from_bits_retain(old);
            bits.set(IonicFlags::SIGNALED, signaled);
            bits.set(IonicFlags::COLOR, at.color());
            head[FLAGS..FLAGS + 2].copy_from_slice(&bits.bits().to_be_bytes());
        }
    }
}

/// Bytes of a message.
pub(super) fn length(request: &Request<'_>) -> u32 {
    match request.data {
        Data::Inline(bytes) => bytes.len() as u32,
        Data::Sges(sges) => sges.iter().map(|sge| sge.len).sum(),
    }
}

/// The bytes of a receive whose place is not known yet.
pub(super) fn encode_recv(
    format: NicFormat,
    slot: &mut [u8],
    sges: &[Sge],
) -> Result<(), UsageError> {
    let why = |error: &dyn std::fmt::Display| UsageError::Request { why: error.to_string() };
    match format {
        NicFormat::Mlx5 => Ok(recv::build(slot, sges)?),
        NicFormat::Bnxt => bnxt_recv::build(slot, 0, sges).map(drop).map_err(|e| why(&e)),
        NicFormat::Ionic => {
            let at = Position { counter: 0, log_depth: 1 };
            ionic_recv::build(slot, at, sges).map_err(|e| why(&e))
        }
    }
}

/// Entries that a receive of so many bytes takes.
pub(super) const fn most_recv_sges(format: NicFormat, stride: usize) -> usize {
    match format {
        NicFormat::Mlx5 => stride / 16,
        NicFormat::Bnxt | NicFormat::Ionic => (stride - 32) / 16,
    }
}

/// Puts its place into the first bytes of a receive.
pub(super) fn stamp_recv(format: NicFormat, head: &mut [u8; 16], place: u64) {
    const ID: usize = offset_of!(RecvHeader, id);
    match format {
        NicFormat::Mlx5 => {}
        NicFormat::Bnxt => head[ID..ID + 4].copy_from_slice(&(place as u32).to_le_bytes()),
        NicFormat::Ionic => head[..8].copy_from_slice(&place.to_le_bytes()),
    }
}

/// A queue as doorbells name it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    Send(u32),
    Receive(u32),
    Completion(u32),
}

/// The doorbell of a ring without a record, of 2^`log` entries, for everything below `next`; in memory's
/// order.
#[inline]
pub(super) fn doorbell(format: NicFormat, queue: Named, next: u64, log: u32) -> u64 {
    let (kind, number, units) = match queue {
        Named::Send(qpn) => (Kind::Send, qpn, BNXT_SLOTS),
        Named::Receive(qpn) => (Kind::Receive, qpn, 1),
        Named::Completion(cqn) => (Kind::Completion, cqn, 1),
    };
    let place = (next & ((1 << log) - 1)) as u32;
    let word = match format {
        NicFormat::Bnxt => {
            let (index, epoch) = (place * units, is_odd_lap(next, log as u8));
            let queue = number & 0xf_ffff;
            bnxt_doorbell::Doorbell { kind, queue, index, epoch, toggle: false, valid: true }.word()
        }
        _ => {
            let (queue, index) = (Qpn::truncate(number), place as u16);
            ionic_doorbell::Doorbell { queue, index, arm: None }.word()
        }
    };
    u64::from_ne_bytes(word.to_le_bytes())
}

const _: () = assert!(WQE == WQEBB, "both formats' unit");
