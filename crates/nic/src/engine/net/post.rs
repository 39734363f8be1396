//! From a parsed WQE to a request of the connection: local checks, then [`Connection::post`].
//!
//! [`Connection::post`]: warpverbs_rc::Connection::post

use super::Connections;
use super::end::{End, Outgoing, Posted};
use crate::engine::access::{Spans, check_initiator, gather_mixed, gather_own};
use crate::engine::atomic::Amo;
use crate::engine::outcome::{Started, Stop, local};
use crate::engine::tables::Tables;
use crate::format::{MAX_MESSAGE, Op, Payload, SendWith, Sge, Sges, Wqe};
use crate::objects::send::SendQueue;
use crate::slots::QpSlot;
use crate::violation::{KeySide, Rule};
use warpverbs_mem::{Access, BouncePool, KeyTable, Kind, Span};
use warpverbs_rc::{Op as NetOp, PostError, Request};

/// Bytes of a single segment that need no more checks than its key's.
const MAX_PIECE: u32 = MAX_MESSAGE as u32;

/// The parts of a WQE that the connection needs.
struct Posting {
    op: NetOp,
    len: u32,
    outgoing: Outgoing,
    /// Bytes for the CQE.
    brought: u32,
    /// Bytes of the word of an extended atomic.
    extended: Option<u8>,
}

/// The state that checks of a request's own memory need.
struct Own<'a> {
    keys: &'a KeyTable,
    end: &'a mut End,
    pool: &'a BouncePool,
}

impl Own<'_> {
    /// The requester's own segments are its own, and reached by the CPU or through bounce buffers.
    #[inline]
    fn check(&mut self, q: &mut SendQueue, sges: &Sges<'_>, needed: Access) -> Result<(), Stop> {
        // The usual case, without a list of pieces.
        if let Some(Sge { addr, len: len @ 1..=MAX_PIECE, lkey }) = sges.single() {
            let found = self.keys.lookup(&mut q.local_hint, q.pd, lkey.0, addr, len, needed);
            let key = |error| local(Rule::Key { side: KeySide::Local, segment: 0, error });
            return self.reach(&found.map_err(key)?);
        }
        let mut spans = Spans::new();
        gather_own(self.keys, q, sges, needed, &mut spans)?;
        spans.iter().try_for_each(|span| self.reach(span))
    }

    #[inline]
    fn reach(&mut self, span: &Span<'_>) -> Result<(), Stop> {
        match span.region.kind() {
            Kind::Host => Ok(()),
            _ => self.end.bounce_for(self.pool, span.region).map_err(local),
        }
    }
}

/// Whether the WQE is the connection's.
fn leaves(op: &Op<'_>) -> bool {
    !matches!(op, Op::Nop | Op::LocalInval { .. } | Op::Wait { .. } | Op::Dump { .. })
}

impl Connections {
    /// Posts `wqe`, the next of the send queue in `slot`. `None`: nothing of it leaves this NIC.
    pub(crate) fn submit(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        wqe: &Wqe<'_>,
    ) -> Option<Result<Started, Stop>> {
        let Tables { keys, sends, .. } = tables;
        let q = sends.live_mut(slot)?;
        leaves(&wqe.op).then(|| start(self, keys, q, wqe))
    }
}

fn start(
    conns: &mut Connections,
    keys: &KeyTable,
    q: &mut SendQueue,
    wqe: &Wqe<'_>,
) -> Result<Started, Stop> {
    let Connections { ends, pool, .. } = conns;
    let end = ends.get_mut(q.slot).ok_or(Stop::NoAnswer)?;
    let mut own = Own { keys, end, pool };
    let Posting { op, len, outgoing, brought, extended } = posting(&mut own, q, wqe)?;
    let end = own.end;
    let request = Request {
        id: end.requests.next(),
        op,
        len,
        extended,
        fence: wqe.flags.fence.waits_for_reads(),
        solicited: wqe.flags.solicited,
    };
    end.conn.post(request).map_err(|error| match error {
        // It stays in the ring until there is room.
        PostError::Full { .. } => Stop::Drain,
        PostError::TooLong { .. } => {
            let max = u64::from(warpverbs_rc::MAX_MESSAGE);
            local(Rule::MessageLength { len: len.into(), max })
        }
        PostError::NotStarted => Stop::NoAnswer,
        PostError::AtomicLength { .. } | PostError::NoRdAtomic => {
            local(Rule::NoReadResources { attr: "max_rd_atomic" })
        }
    })?;
    let inline = matches!(wqe.op, Op::Read { .. })
        && wqe.flags.completion.is_signaled()
        && q.cqes.payload.takes(brought.into());
    end.requests.push(Posted { index: q.progress.next, outgoing, inline });
    conns.ends.enqueue(q.slot);
    Ok(Started { away: true, brought, delivery: None })
}

fn posting(own: &mut Own<'_>, q: &mut SendQueue, wqe: &Wqe<'_>) -> Result<Posting, Stop> {
    match wqe.op {
        Op::Write { remote, payload, imm } => {
            let op = match imm {
                None => NetOp::Write(remote),
                Some(imm) => NetOp::WriteImm(remote, imm),
            };
            sending(own, q, op, payload)
        }
        Op::Send { with, payload } => {
            let op = match with {
                SendWith::Nothing => NetOp::Send,
                SendWith::Imm(imm) => NetOp::SendImm(imm),
                SendWith::Invalidate(rkey) => NetOp::SendInvalidate(rkey),
            };
            sending(own, q, op, payload)
        }
        Op::Read { remote, local } => {
            check_initiator(q)?;
            own.check(q, &local, Access::LOCAL_WRITE)?;
            let len = local.byte_len() as u32;
            let (op, outgoing) = (NetOp::Read(remote), kept(&local));
            Ok(Posting { op, len, outgoing, brought: len, extended: None })
        }
        Op::CompareSwap { remote, compare, swap, result } => {
            atomic(own, q, NetOp::CompareSwap { remote, compare, swap }, result)
        }
        Op::FetchAdd { remote, add, result } => {
            atomic(own, q, NetOp::FetchAdd { remote, add }, result)
        }
        Op::MaskedCompareSwap { remote, operands, result } => {
            let op = NetOp::CompareSwap { remote, compare: 0, swap: 0 };
            extended(own, q, op, &operands.into(), result)
        }
        Op::MaskedFetchAdd { remote, operands, result } => {
            extended(own, q, NetOp::FetchAdd { remote, add: 0 }, &operands.into(), result)
        }
        // Datagrams, and what does not leave the NIC, do not come here.
        Op::SendTo { .. } | Op::Nop | Op::LocalInval { .. } | Op::Wait { .. } | Op::Dump { .. } => {
            Err(Stop::NoAnswer)
        }
    }
}

fn sending(
    own: &mut Own<'_>,
    q: &mut SendQueue,
    op: NetOp,
    payload: Payload<'_>,
) -> Result<Posting, Stop> {
    let outgoing = match &payload {
        Payload::Inline(bytes) => Outgoing::Bytes((*bytes).into()),
        Payload::Sges(sges) => {
            own.check(q, sges, Access::empty())?;
            kept(sges)
        }
        Payload::Mixed(mixed) => Outgoing::Bytes(gather_mixed(own.keys, q, mixed)?.into()),
    };
    let len = payload.byte_len() as u32;
    Ok(Posting { op, len, outgoing, brought: 0, extended: None })
}

fn atomic(own: &mut Own<'_>, q: &mut SendQueue, op: NetOp, result: Sge) -> Result<Posting, Stop> {
    let result = result_of(own, q, Sge { len: 8, ..result })?;
    Ok(Posting { op, len: 8, outgoing: Outgoing::One(result), brought: 8, extended: None })
}

/// An atomic with masks, in a packet of this project's own.
fn extended(
    own: &mut Own<'_>,
    q: &mut SendQueue,
    op: NetOp,
    amo: &Amo,
    result: Sge,
) -> Result<Posting, Stop> {
    let size = amo.size();
    let result = result_of(own, q, Sge { len: size, ..result })?;
    let operands = amo.operands();
    let len = operands.len() as u32;
    let outgoing = Outgoing::Operands(operands.into(), result);
    Ok(Posting { op, len, outgoing, brought: size, extended: Some(size as u8) })
}

/// Where the result of an atomic goes, checked.
fn result_of(own: &mut Own<'_>, q: &mut SendQueue, result: Sge) -> Result<Sge, Stop> {
    check_initiator(q)?;
    let Sge { addr, len, lkey } = result;
    let span = own
        .keys
        .lookup(&mut q.local_hint, q.pd, lkey.0, addr, len, Access::LOCAL_WRITE)
        .map_err(|error| local(Rule::Key { side: KeySide::Local, segment: 0, error }))?;
    own.reach(&span)?;
    Ok(result)
}

fn kept(sges: &Sges<'_>) -> Outgoing {
    match sges.single() {
        Some(sge) => Outgoing::One(sge),
        None => Outgoing::Many(sges.iter().collect()),
    }
}
