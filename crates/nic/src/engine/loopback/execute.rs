//! Carrying out one parsed WQE against a peer of the same NIC.
//!
//! Every check comes before the first side effect, so a WQE that has to wait (for earlier copies,
//! for a receive, for an answer) is simply executed again later. One whose payload takes time is
//! handed to the QP's copy queue, which keeps the order.

use crate::engine::access::{self, Receive, Spans, check_initiator, gather_mixed, gather_own};
use crate::engine::atomic::{Amo, AtomicGate, RemoteAtomic, whole};
use crate::engine::copies::{self, CopyQueue, Grant, Source, grants, move_now};
use crate::engine::outcome::Refusal;
use crate::engine::outcome::{Delivery, Stop, local};
use crate::engine::report::Report;
use crate::engine::wait::wait;
use crate::format::{Lkey, Op, Payload, ReceivedKind, Remote, SendWith, Sge, Sges, Wqe};
use crate::objects::cq::CompletionQueue;
use crate::objects::receive::ReceiveQueue;
use crate::objects::send::SendQueue;
use crate::objects::srq::SharedReceiveQueue;
use crate::slots::{CqSlot, QpSlot, Slots, SrqSlot};
use crate::violation::{KeySide, Rule};
use rustc_hash::FxHashMap;
use warpverbs_mem::{Access, KeyTable, Kind, Region, SmallBuf, Span};
use warpverbs_rdma::Status;

/// The parts of the NIC that executing a WQE uses, apart from its send queue.
pub(super) struct Env<'e> {
    pub(super) keys: &'e mut KeyTable,
    pub(super) receives: &'e mut Slots<QpSlot, ReceiveQueue>,
    pub(super) cqs: &'e mut Slots<CqSlot, CompletionQueue>,
    pub(super) srqs: &'e mut Slots<SrqSlot, SharedReceiveQueue>,
    pub(super) by_qpn: &'e FxHashMap<u32, QpSlot>,
    pub(super) reports: &'e mut Vec<Report>,
    pub(super) scratch: &'e mut [u64; 128],
    pub(super) atomics: &'e mut AtomicGate,
    pub(super) copies: &'e mut CopyQueue<()>,
    pub(super) slice: u64,
}

/// A WQE that was started.
#[derive(Default)]
pub(super) struct Executed {
    /// It ends with the copies before this one; else it has ended.
    pub(super) upto: Option<u64>,
    /// Bytes for the requester's CQE: those of a READ or an atomic.
    pub(super) brought: u32,
    /// The receive to complete at the end.
    pub(super) delivery: Option<Delivery>,
    /// An atomic that goes on after the copies.
    pub(super) atomic: Option<Box<RemoteAtomic>>,
}

/// Starts `wqe`, which is the next of `q`.
#[inline]
pub(super) fn execute(
    env: &mut Env<'_>,
    q: &mut SendQueue,
    wqe: &Wqe<'_>,
) -> Result<Executed, Stop> {
    if wqe.flags.fence.waits_for_reads() && q.progress.in_flight.iter().any(|flight| flight.reads) {
        return Err(Stop::Drain);
    }
    let (solicited, signaled) = (wqe.flags.solicited, wqe.flags.completion.is_signaled());
    match wqe.op {
        Op::Write { remote, payload, imm } => {
            let (remote, kind) = (Some(remote), imm.map(ReceivedKind::WriteImm));
            message(env, q, &Message { remote, kind, solicited }, payload)
        }
        Op::Send { with, payload } => {
            let kind = Some(match with {
                SendWith::Nothing => ReceivedKind::Send,
                SendWith::Imm(imm) => ReceivedKind::SendImm(imm),
                SendWith::Invalidate(rkey) => ReceivedKind::SendInvalidate(rkey),
            });
            message(env, q, &Message { remote: None, kind, solicited }, payload)
        }
        // A datagram QP's executor takes these.
        Op::SendTo { .. } => Err(Stop::NoAnswer),
        Op::Read { remote, local } => read(env, q, remote, local, signaled),
        Op::CompareSwap { remote, compare, swap, result } => {
            atomic(env, q, remote, Amo::compare_swap(compare, swap), result)
        }
        Op::FetchAdd { remote, add, result } => atomic(env, q, remote, Amo::fetch_add(add), result),
        Op::MaskedCompareSwap { remote, operands, result } => {
            atomic(env, q, remote, operands.into(), result)
        }
        Op::MaskedFetchAdd { remote, operands, result } => {
            atomic(env, q, remote, operands.into(), result)
        }
        Op::Nop => Ok(Executed::default()),
        Op::LocalInval { rkey } => {
            if !q.progress.in_flight.is_empty() {
                return Err(Stop::Drain);
            }
            env.keys.invalidate(q.pd, rkey.0).map_err(|error| Stop::Local {
                status: Status::LocalQpOperation,
                rule: Rule::Key { side: KeySide::Local, segment: 0, error },
            })?;
            Ok(Executed::default())
        }
        Op::Wait { cqn, index } => {
            wait(env.cqs, q, cqn, index)?;
            Ok(Executed::default())
        }
        // Bytes that the NIC wrote there before are in place, so nothing is read.
        Op::Dump { local: Sge { addr, len, lkey } } => {
            env.keys
                .lookup(&mut q.local_hint, q.pd, lkey.0, addr, len, Access::empty())
                .map_err(|error| local(Rule::Key { side: KeySide::Local, segment: 0, error }))?;
            Ok(Executed::default())
        }
    }
}

/// The peer's receive queue, if it answers this QP.
#[inline]
fn peer<'r>(
    receives: &'r mut Slots<QpSlot, ReceiveQueue>,
    by_qpn: &FxHashMap<u32, QpSlot>,
    q: &mut SendQueue,
) -> Result<&'r mut ReceiveQueue, Stop> {
    let (from, to) = (q.qpn.get(), q.peer.qpn);
    let answers = |rq: &ReceiveQueue| rq.answers(from, to);
    if !receives.get(q.peer.slot).is_some_and(answers) {
        let slot = *by_qpn.get(&q.peer.qpn).ok_or(Stop::NoAnswer)?;
        if !receives.get(slot).is_some_and(answers) {
            return Err(Stop::NoAnswer);
        }
        q.peer.slot = slot;
    }
    receives.get_mut(q.peer.slot).ok_or(Stop::NoAnswer)
}

/// Moves `len` bytes, at once or through the copy queue, unless they could overtake earlier ones.
/// `None`: they are in place.
#[inline]
fn start(
    (keys, copies, slice): (&KeyTable, &mut CopyQueue<()>, u64),
    q: &SendQueue,
    from: Source<'_>,
    to: &[Span<'_>],
    len: u64,
    granted: impl FnOnce() -> [Vec<Grant>; 2],
) -> Result<Option<u64>, Stop> {
    let engine = copies::engine(from, to);
    let at_once = len == 0 || engine == Some(Kind::Host) && len <= slice;
    if !q.progress.in_flight.is_empty() {
        // Its copies start now, right behind those before them.
        let follows = !at_once && engine.is_some_and(|engine| copies.follows(engine));
        if !follows || q.progress.in_flight.len() >= MAX_FLIGHT {
            return Err(Stop::Drain);
        }
    }
    if at_once {
        move_now(from, to)?;
        return Ok(None);
    }
    let upto = copies.push_all(from, to, &granted(), ());
    copies.start(Some(keys), slice, false);
    Ok(Some(upto))
}

/// WQEs of one queue that may be in the hands of a copy engine.
const MAX_FLIGHT: usize = 256;

#[inline]
fn source<'a>(payload: &Payload<'a>, spans: &'a [Span<'a>]) -> Source<'a> {
    match *payload {
        Payload::Inline(bytes) => Source::Bytes(bytes),
        Payload::Sges(_) | Payload::Mixed(_) => Source::Spans(spans),
    }
}

/// The grants of the requester's own payload; inline data needs none.
fn own_grants(pd: u32, payload: &Payload<'_>) -> Vec<Grant> {
    match payload {
        Payload::Inline(_) | Payload::Mixed(_) => vec![],
        Payload::Sges(sges) => {
            grants((pd, KeySide::Local, Access::empty()), sges.iter(), sges.byte_len())
        }
    }
}

fn remote_grant(pd: u32, remote: Remote, len: u64, needed: Access) -> Vec<Grant> {
    let Remote { addr, rkey } = remote;
    let sge = Sge { addr, len: len as u32, lkey: Lkey(rkey.0) };
    grants((pd, KeySide::Remote, needed), std::iter::once(sge), len)
}

fn refused_by(peer: QpSlot) -> impl Fn(Refusal) -> Stop + Copy {
    move |refusal| Stop::Refused { peer, refusal }
}

/// A WRITE or SEND without its payload.
struct Message {
    /// The range that a WRITE names; a SEND goes into the receive.
    remote: Option<Remote>,
    /// How the receive completes, if it takes one.
    kind: Option<ReceivedKind>,
    solicited: bool,
}

/// A WRITE or a SEND.
fn message(
    env: &mut Env<'_>,
    q: &mut SendQueue,
    message: &Message,
    payload: Payload<'_>,
) -> Result<Executed, Stop> {
    let Message { remote, kind, solicited } = *message;
    let (keys, len) = (&*env.keys, payload.byte_len());
    let together;
    let payload = match &payload {
        Payload::Mixed(mixed) => {
            together = gather_mixed(keys, q, mixed)?;
            Payload::Inline(&together)
        }
        other => *other,
    };
    let mut from = Spans::new();
    if let Payload::Sges(sges) = &payload {
        gather_own(keys, q, sges, Access::empty(), &mut from)?;
    }
    let rq = peer(env.receives, env.by_qpn, q)?;
    let refused = refused_by(rq.slot);
    let needed = if remote.is_some() { Access::REMOTE_WRITE } else { Access::empty() };
    access::check_op_valid(rq, needed).map_err(refused)?;
    let receive = match kind {
        Some(_) => Some(access::check_receive(rq, env.srqs, env.scratch).map_err(refused)?),
        None => None,
    };
    let room = receive.as_ref().filter(|_| remote.is_none());
    access::check_length(len, room).map_err(refused)?;
    let inline;
    let mut to = Spans::new();
    if let Some(remote) = remote {
        inline = None;
        to.extend(access::check_rkey(keys, rq, remote, len, needed).map_err(refused)?);
    } else if let Some(Receive { index, sges, .. }) = receive {
        access::check_scatter(keys, rq, env.srqs, index, sges.iter(), 0..len, &mut to)
            .map_err(refused)?;
        inline = rq.cqes.payload.takes(len).then(|| SmallBuf::region(len as usize));
        if let Some(inline) = &inline {
            to.clear();
            to.push(whole(inline));
        }
    } else {
        inline = None;
    }
    let index = receive.map_or(0, |receive| receive.index);
    if let Some(ReceivedKind::SendInvalidate(rkey)) = kind {
        access::check_invalidate(keys, rq, rkey, index).map_err(refused)?;
    }
    let (pd, peer_pd, receive_pd) = (q.pd, rq.pd, access::receive_pd(rq, env.srqs));
    let granted = || {
        let to = match (remote, &receive) {
            (Some(remote), _) => remote_grant(peer_pd, remote, len, needed),
            (None, Some(_)) if inline.is_some() => vec![],
            (None, Some(receive)) => {
                let right = (receive_pd, KeySide::Receive, Access::LOCAL_WRITE);
                grants(right, receive.sges.iter(), len)
            }
            (None, None) => vec![],
        };
        [own_grants(pd, &payload), to]
    };
    let how = (keys, &mut *env.copies, env.slice);
    let upto = start(how, q, source(&payload, &from), &to, len, granted)?;
    let delivery = receive.zip(kind).map(|(receive, kind)| {
        let (index, link) = receive.place();
        let limit = access::take(rq, env.srqs, index, link);
        env.reports.extend(limit.map(Report::Event));
        if let Some(inline) = inline.clone() {
            rq.cqes.payload.keep(index, inline);
        }
        delivery(rq, index, kind, len, solicited)
    });
    Ok(Executed { upto, delivery, ..Executed::default() })
}

fn delivery(
    rq: &ReceiveQueue,
    index: u64,
    kind: ReceivedKind,
    len: u64,
    solicited: bool,
) -> Delivery {
    let ReceiveQueue { slot, qpn, generation, .. } = *rq;
    let (byte_cnt, from) = (len as u32, None);
    Delivery { slot, qpn, generation, kind, index, byte_cnt, solicited, from }
}

fn read(
    env: &mut Env<'_>,
    q: &mut SendQueue,
    remote: Remote,
    sges: Sges<'_>,
    signaled: bool,
) -> Result<Executed, Stop> {
    let (keys, len) = (&*env.keys, sges.byte_len());
    check_initiator(q)?;
    let inline = (signaled && q.cqes.payload.takes(len)).then(|| SmallBuf::region(len as usize));
    let mut to = Spans::new();
    gather_own(keys, q, &sges, Access::LOCAL_WRITE, &mut to)?;
    if let Some(inline) = &inline {
        to.clear();
        to.push(whole(inline));
    }
    let rq = peer(env.receives, env.by_qpn, q)?;
    let refused = refused_by(rq.slot);
    access::check_op_valid(rq, Access::REMOTE_READ).map_err(refused)?;
    access::check_read_resource(rq).map_err(refused)?;
    let from = access::check_rkey(keys, rq, remote, len, Access::REMOTE_READ).map_err(refused)?;
    let (right, peer_pd) = ((q.pd, KeySide::Local, Access::LOCAL_WRITE), rq.pd);
    let granted = || {
        let from = remote_grant(peer_pd, remote, len, Access::REMOTE_READ);
        [from, if inline.is_some() { vec![] } else { grants(right, sges.iter(), len) }]
    };
    let how = (keys, &mut *env.copies, env.slice);
    let upto = start(how, q, Source::Spans(from.as_slice()), &to, len, granted)?;
    keep(q, inline.as_ref());
    Ok(Executed { upto, brought: len as u32, ..Executed::default() })
}

/// The payload of the WQE that starts is for its CQE.
fn keep(q: &mut SendQueue, inline: Option<&Region>) {
    if let Some(inline) = inline {
        q.cqes.payload.keep(q.progress.next, inline.clone());
    }
}

fn atomic(
    env: &mut Env<'_>,
    q: &mut SendQueue,
    remote: Remote,
    amo: Amo,
    result: Sge,
) -> Result<Executed, Stop> {
    let (keys, size) = (&*env.keys, amo.size());
    check_initiator(q)?;
    let result = keys
        .lookup(&mut q.local_hint, q.pd, result.lkey.0, result.addr, size, Access::LOCAL_WRITE)
        .map_err(|error| local(Rule::Key { side: KeySide::Local, segment: 0, error }))?;
    let rq = peer(env.receives, env.by_qpn, q)?;
    let refused = refused_by(rq.slot);
    let needed = Access::REMOTE_ATOMIC;
    access::check_op_valid(rq, needed).map_err(refused)?;
    access::check_read_resource(rq).map_err(refused)?;
    access::check_alignment(remote.addr, size).map_err(refused)?;
    let target = access::check_rkey(keys, rq, remote, u64::from(size), needed).map_err(refused)?;
    let target = target.ok_or(Stop::NoAnswer)?;
    if !q.progress.in_flight.is_empty() {
        return Err(Stop::Drain);
    }
    if target.region.kind() == Kind::Host {
        let old = amo.on_host(target.region, target.offset)?;
        let (how, len) = ((keys, &mut *env.copies, u64::MAX), u64::from(size));
        let upto = start(how, q, old.as_source(), &[result], len, || [vec![], vec![]])?;
        return Ok(Executed { upto, brought: size, ..Executed::default() });
    }
    if !env.atomics.is_free() {
        return Err(Stop::Drain);
    }
    let atomic = Box::new(RemoteAtomic::start(amo, &target, Some(&result), env.copies, ())?);
    env.atomics.take(q.slot);
    let upto = Some(env.copies.next());
    Ok(Executed { upto, brought: size, delivery: None, atomic: Some(atomic) })
}
