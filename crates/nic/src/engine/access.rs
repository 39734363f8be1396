//! Access checks, for every backend: of the requester's own segments, and of a peer's request, in
//! the order of IBTA 9.7.4: operation, resource, length, key.
//!
//! A check has no side effect: receives are only read until [`take`].

use super::outcome::{Refusal, Stop, local};
use crate::AsyncEvent;
use crate::format::{MAX_MESSAGE, Mixed, Remote, Rkey, Sge, Sges};
use crate::objects::receive::{ReceiveQueue, Receives};
use crate::objects::send::SendQueue;
use crate::objects::srq::SharedReceiveQueue;
use crate::slots::{Slots, SrqSlot};
use crate::violation::{KeySide, Rule};
use arrayvec::ArrayVec;
use std::ops::Range;
use warpverbs_mem::{Access, AccessError, KeyHint, KeyTable, Kind, Span};

/// Segments of a receive at most; a WQE has fewer.
pub(crate) const MAX_PIECES: usize = 64;
/// Bytes at most of a message that begins in its WQE and goes on in memory.
const MAX_MIXED: u64 = 1 << 20;
/// Pieces of memory, in order: at most as many as a WQE has segments.
pub(crate) type Spans<'a> = ArrayVec<Span<'a>, MAX_PIECES>;

/// A receive that is looked at and not yet taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive<'a> {
    /// Its index: unmasked in a QP's own queue, its number in an SRQ.
    pub(crate) index: u64,
    /// The next WQE of an SRQ.
    link: u16,
    /// The segments that the message is written to.
    pub(crate) sges: Sges<'a>,
}

/// The QP allows this kind of request. `needed` is empty for a SEND.
#[inline]
pub(crate) fn check_op_valid(rq: &ReceiveQueue, needed: Access) -> Result<(), Refusal> {
    if !rq.grants.access.contains(needed) {
        let (needed, granted) = (needed.bits(), rq.grants.access.bits());
        return Err(Refusal::Invalid(Rule::NotAllowed { needed, granted }));
    }
    Ok(())
}

/// The QP has room for a READ or an atomic.
#[inline]
pub(crate) fn check_read_resource(rq: &ReceiveQueue) -> Result<(), Refusal> {
    if rq.grants.max_dest_rd_atomic == 0 {
        return Err(Refusal::Invalid(Rule::NoReadResources { attr: "max_dest_rd_atomic" }));
    }
    Ok(())
}

/// A receive is posted.
pub(crate) fn check_receive<'a>(
    rq: &mut ReceiveQueue,
    srqs: &mut Slots<SrqSlot, SharedReceiveQueue>,
    scratch: &'a mut [u64; 128],
) -> Result<Receive<'a>, Refusal> {
    let not_ready = Refusal::NotReady { timer: rq.grants.min_rnr_timer };
    if rq.refuse > 0 {
        return Err(not_ready);
    }
    let broken = |rule, receive| Refusal::Operational { rule, receive };
    match &mut rq.source {
        Receives::None => Err(not_ready),
        Receives::Own(own) => {
            let next = own.next().map_err(|rule| broken(rule, None))?;
            let index = next.ok_or(not_ready)?;
            let failed = |rule| broken(rule, Some(index));
            let sges = own.load(index, scratch).map_err(failed)?;
            Ok(Receive { index, link: 0, sges })
        }
        Receives::Shared(slot) => {
            let srq = srqs.live_mut(*slot).ok_or(not_ready)?;
            let next = srq.peek(scratch).map_err(|rule| broken(rule, None))?;
            let (number, link, sges) = next.ok_or(not_ready)?;
            Ok(Receive { index: u64::from(number), link, sges })
        }
    }
}

/// The message fits the connection, and the receive if it goes into one.
#[inline]
pub(crate) fn check_length(len: u64, receive: Option<&Receive<'_>>) -> Result<(), Refusal> {
    if len > MAX_MESSAGE {
        return Err(Refusal::Invalid(Rule::MessageLength { len, max: MAX_MESSAGE }));
    }
    match receive.map(|receive| receive.sges.byte_len()) {
        Some(room) if len > room => Err(Refusal::TooLong(Rule::ReceiveTooSmall { len, room })),
        _ => Ok(()),
    }
}

/// The key covers the range and grants the access. A request of no bytes needs no key
/// (IBTA 9.7.4.1.5): `None`.
#[inline]
pub(crate) fn check_rkey<'k>(
    keys: &'k KeyTable,
    rq: &mut ReceiveQueue,
    remote: Remote,
    len: u64,
    needed: Access,
) -> Result<Option<Span<'k>>, Refusal> {
    if len == 0 {
        return Ok(None);
    }
    let Remote { addr, rkey } = remote;
    keys.lookup(&mut rq.remote_hint, rq.pd, rkey.0, addr, len as u32, needed)
        .map(Some)
        .map_err(|error| Refusal::Access(Rule::Key { side: KeySide::Remote, segment: 0, error }))
}

/// The target of an atomic is aligned to its size.
#[inline]
pub(crate) fn check_alignment(addr: u64, size: u32) -> Result<(), Refusal> {
    if !addr.is_multiple_of(u64::from(size)) {
        return Err(Refusal::Invalid(Rule::AtomicAlignment { addr, size }));
    }
    Ok(())
}

/// A range of a receive's bytes, checked for local write access; `index` is the receive's.
pub(crate) fn check_scatter<'k>(
    keys: &'k KeyTable,
    rq: &mut ReceiveQueue,
    srqs: &mut Slots<SrqSlot, SharedReceiveQueue>,
    index: u64,
    sges: impl Iterator<Item = Sge>,
    range: Range<u64>,
    out: &mut Spans<'k>,
) -> Result<(), Refusal> {
    let (pd, hint) = match &rq.source {
        Receives::Shared(slot) => match srqs.live_mut(*slot) {
            Some(srq) => (srq.pd, &mut srq.hint),
            None => return Err(Refusal::NotReady { timer: rq.grants.min_rnr_timer }),
        },
        _ => (rq.pd, &mut rq.scatter_hint),
    };
    let needed = Access::LOCAL_WRITE;
    gather_range(keys, hint, pd, sges, range, needed, out).map_err(|(segment, error)| {
        Refusal::Operational {
            rule: Rule::Key { side: KeySide::Receive, segment, error },
            receive: Some(index),
        }
    })
}

/// The protection domain of the receives of `rq`.
pub(crate) fn receive_pd(rq: &ReceiveQueue, srqs: &Slots<SrqSlot, SharedReceiveQueue>) -> u32 {
    match &rq.source {
        Receives::Shared(slot) => srqs.live(*slot).map_or(rq.pd, |srq| srq.pd),
        _ => rq.pd,
    }
}

/// A SEND_INVAL's key may be invalidated.
pub(crate) fn check_invalidate(
    keys: &KeyTable,
    rq: &ReceiveQueue,
    rkey: Rkey,
    receive: u64,
) -> Result<(), Refusal> {
    keys.check_invalidate(rq.pd, rkey.0).map_err(|error| Refusal::Invalidation {
        rule: Rule::Key { side: KeySide::Remote, segment: 0, error },
        receive,
    })
}

/// The first `len` bytes of a list of segments, each checked; a segment not needed is not looked
/// at. On refusal, the segment's number.
#[inline]
pub(crate) fn gather<'k>(
    keys: &'k KeyTable,
    hint: &mut KeyHint,
    pd: u32,
    sges: &Sges<'_>,
    len: u64,
    needed: Access,
    out: &mut Spans<'k>,
) -> Result<(), (u8, AccessError)> {
    gather_range(keys, hint, pd, sges.iter(), 0..len, needed, out)
}

/// As [`gather`], for the bytes of `range` among those of all segments.
#[inline]
pub(crate) fn gather_range<'k>(
    keys: &'k KeyTable,
    hint: &mut KeyHint,
    pd: u32,
    sges: impl Iterator<Item = Sge>,
    range: Range<u64>,
    needed: Access,
    out: &mut Spans<'k>,
) -> Result<(), (u8, AccessError)> {
    let (mut skip, mut left) = (range.start, range.end - range.start);
    for (segment, sge) in sges.enumerate() {
        if left == 0 {
            break;
        }
        let len = u64::from(sge.len);
        if skip >= len {
            skip -= len;
            continue;
        }
        let used = left.min(len - skip) as u32;
        // An address that wraps is beyond every region.
        let span = keys
            .lookup(hint, pd, sge.lkey.0, sge.addr.wrapping_add(skip), used, needed)
            .map_err(|error| (segment as u8, error))?;
        // A WQE has at most 63 segments, a receive at most 64.
        out.push(span);
        left -= u64::from(used);
        skip = 0;
    }
    Ok(())
}

/// Takes the receive that [`check_receive`] found. The SRQ's limit event, if it is due.
pub(crate) fn take(
    rq: &mut ReceiveQueue,
    srqs: &mut Slots<SrqSlot, SharedReceiveQueue>,
    index: u64,
    link: u16,
) -> Option<AsyncEvent> {
    rq.open.push_back(index);
    match &mut rq.source {
        Receives::None => {}
        Receives::Own(own) => own.taken = index + 1,
        Receives::Shared(slot) => {
            let srq = srqs.live_mut(*slot)?;
            srq.take(link);
            if srq.below_limit() {
                return Some(AsyncEvent::SrqLimit { srqn: srq.srqn });
            }
        }
    }
    None
}

impl Receive<'_> {
    /// The arguments of [`take`]: index and link.
    pub(crate) fn place(&self) -> (u64, u16) {
        (self.index, self.link)
    }
}

#[inline]
fn check_message(len: u64) -> Result<(), Stop> {
    if len > MAX_MESSAGE {
        return Err(local(Rule::MessageLength { len, max: MAX_MESSAGE }));
    }
    Ok(())
}

/// The requester's own segments, checked.
#[inline]
pub(crate) fn gather_own<'k>(
    keys: &'k KeyTable,
    q: &mut SendQueue,
    sges: &Sges<'_>,
    needed: Access,
    out: &mut Spans<'k>,
) -> Result<(), Stop> {
    check_message(sges.byte_len())?;
    gather(keys, &mut q.local_hint, q.pd, sges, sges.byte_len(), needed, out)
        .map_err(|(segment, error)| local(Rule::Key { side: KeySide::Local, segment, error }))
}

/// The bytes of a message whose beginning lies in the WQE, put together: such messages are short.
pub(crate) fn gather_mixed(
    keys: &KeyTable,
    q: &mut SendQueue,
    mixed: &Mixed<'_>,
) -> Result<Vec<u8>, Stop> {
    let (inline, rest) = (mixed.inline(), mixed.local());
    let len = inline.len() as u64 + rest.byte_len();
    if len > MAX_MIXED {
        return Err(local(Rule::MessageLength { len, max: MAX_MIXED }));
    }
    let mut spans = Spans::new();
    gather_own(keys, q, &rest, Access::empty(), &mut spans)?;
    let mut bytes = Vec::with_capacity(len as usize);
    bytes.extend_from_slice(inline);
    for span in &spans {
        if span.region.kind() != Kind::Host {
            let kind = span.region.kind();
            return Err(local(Rule::CopyFailed { kind }));
        }
        let at = bytes.len();
        bytes.resize(at + span.len as usize, 0);
        span.region.read(span.offset, &mut bytes[at..])?;
    }
    Ok(bytes)
}

/// READs and atomics need initiator depth, and no more of them may be under way than that.
pub(crate) fn check_initiator(q: &SendQueue) -> Result<(), Stop> {
    let max = q.attrs.max_rd_atomic.unwrap_or(0);
    if max == 0 {
        return Err(local(Rule::NoReadResources { attr: "max_rd_atomic" }));
    }
    if q.progress.in_flight.iter().filter(|flight| flight.reads).count() >= usize::from(max) {
        return Err(Stop::Drain);
    }
    Ok(())
}
