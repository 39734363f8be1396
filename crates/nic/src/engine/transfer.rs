//! Moving payload from pieces to pieces: at once where both sides are host memory and the message
//! is short, else slice by slice and without waiting for copy engines.

use crate::violation::KeySide;
use std::collections::VecDeque;
use warpverbs_mem::{
    Access, AccessError, KeyHint, KeyTable, Kind, MemError, Pending, Progress, Region, SmallBuf,
    Span, copy, copy_on_host,
};
use warpverbs_mlx5::wqe::Sge;

/// Where payload comes from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// Bytes of the WQE itself.
    Bytes(&'a [u8]),
    /// Registered memory.
    Spans(&'a [Span<'a>]),
}

/// An owned piece: keeps its memory alive.
#[derive(Debug)]
struct Piece {
    region: Region,
    offset: u64,
    len: u64,
    grant: Option<Grant>,
}

/// By what right a piece is accessed. It is checked again for every slice, so that memory is not
/// touched after its key was taken back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    key: u32,
    pd: u32,
    needed: Access,
    side: KeySide,
    segment: u8,
    /// The address behind the piece.
    end: u64,
}

/// The grants of the first `len` bytes of a list of segments: one for each piece.
pub(crate) fn grants(
    (pd, side, needed): (u32, KeySide, Access),
    sges: impl Iterator<Item = Sge>,
    len: u64,
) -> Vec<Grant> {
    let mut left = len;
    let grant = |(segment, sge): (usize, Sge)| {
        let used = left.min(u64::from(sge.len));
        left -= used;
        let (key, end) = (sge.lkey.0, sge.addr.wrapping_add(used));
        (used > 0).then_some(Grant { key, pd, needed, side, segment: segment as u8, end })
    };
    sges.enumerate().filter_map(grant).collect()
}

/// Why a transfer ended early.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// A copy engine failed.
    Copy(MemError),
    /// A key was taken back.
    Key { side: KeySide, segment: u8, error: AccessError },
}

impl Fault {
    /// The fault of a transfer without grants: only a copy can fail.
    pub(crate) fn into_copy(self) -> MemError {
        match self {
            Self::Copy(error) => error,
            Self::Key { .. } => MemError::CopyFailed { code: -1, what: "a key that nobody named" },
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Copy(error) => error.fmt(f),
            Self::Key { error, .. } => error.fmt(f),
        }
    }
}

impl From<MemError> for Fault {
    fn from(error: MemError) -> Self {
        Self::Copy(error)
    }
}

impl Piece {
    /// The next `now` bytes may still be accessed.
    fn check(&self, keys: &KeyTable, now: u64) -> Result<(), Fault> {
        let Some(Grant { key, pd, needed, side, segment, end }) = self.grant else {
            return Ok(());
        };
        let (addr, len) = (end.wrapping_sub(self.len), now as u32);
        let found = keys.lookup(&mut KeyHint::default(), pd, key, addr, len, needed);
        found.map(drop).map_err(|error| Fault::Key { side, segment, error })
    }
}

/// A message on its way. Regions are kept alive until the last byte is in place.
pub(crate) struct Transfer {
    from: VecDeque<Piece>,
    to: VecDeque<Piece>,
    /// Bytes not yet handed to memory or to a copy engine.
    left: u64,
    pending: VecDeque<Pending>,
    /// Why no more bytes are handed over. Reported when nothing is under way any more.
    error: Option<Fault>,
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transfer({} bytes left, {} copies)", self.left, self.pending.len())
    }
}

/// The copy engine that would move these bytes, named by the memory it works for; host memory if
/// the CPU does it. Copies of one engine end in the order in which they were started.
#[inline]
pub(crate) fn lane(from: Source<'_>, to: &[Span<'_>]) -> Kind {
    let foreign = |span: &&Span<'_>| span.region.kind() != Kind::Host;
    let from = match from {
        Source::Bytes(_) => &[],
        Source::Spans(spans) => spans,
    };
    to.iter().chain(from).find(foreign).map_or(Kind::Host, |span| span.region.kind())
}

/// Whether every byte goes the way of [`lane`]: then later messages of the same lane may follow
/// without waiting.
pub(crate) fn is_uniform(from: Source<'_>, to: &[Span<'_>], lane: Kind) -> bool {
    let through = |span: &Span<'_>| span.region.kind() == lane;
    to.iter().all(through)
        || matches!(from, Source::Spans(spans) if spans.iter().all(through) && to.iter().all(
            |span| span.region.kind() == Kind::Host))
}

/// Moves `len` bytes, at most `slice` of them now. `None`: all are in place.
#[inline]
pub(crate) fn begin(
    from: Source<'_>,
    to: &[Span<'_>],
    len: u64,
    slice: u64,
    lane: Kind,
) -> Result<Option<Transfer>, MemError> {
    if lane != Kind::Host || len > slice {
        return Transfer::start(from, to, len, slice);
    }
    match (from, to) {
        (Source::Spans([src]), [dst]) => {
            copy_on_host(dst.region, dst.offset, src.region, src.offset, len as usize)?;
        }
        (Source::Bytes(bytes), [dst]) => dst.region.write(dst.offset, bytes)?,
        _ => scatter(from, to)?,
    }
    Ok(None)
}

/// What is still free of a list of pieces.
struct Room<'a> {
    spans: std::slice::Iter<'a, Span<'a>>,
    first: Option<Span<'a>>,
}

impl<'a> Room<'a> {
    fn new(spans: &'a [Span<'a>]) -> Self {
        let mut spans = spans.iter();
        let first = spans.next().copied();
        Self { spans, first }
    }

    /// At most `want` bytes that lie together.
    fn take(&mut self, want: u32) -> Option<Span<'a>> {
        let first = self.first.as_mut()?;
        let len = want.min(first.len);
        let taken = Span { len, ..*first };
        first.offset += u64::from(len);
        first.len -= len;
        if first.len == 0 {
            self.first = self.spans.next().copied();
        }
        Some(taken)
    }
}

/// Host memory to host memory, several pieces. What the pieces do not hold is left out: callers
/// have compared the lengths.
fn scatter(from: Source<'_>, to: &[Span<'_>]) -> Result<(), MemError> {
    let mut room = Room::new(to);
    match from {
        Source::Bytes(mut bytes) => {
            while let Some(to) = room.take(bytes.len() as u32).filter(|to| to.len > 0) {
                let (now, rest) = bytes.split_at(to.len as usize);
                to.region.write(to.offset, now)?;
                bytes = rest;
            }
        }
        Source::Spans(spans) => {
            for span in spans {
                let (mut at, mut left) = (span.offset, span.len);
                while let Some(to) = room.take(left).filter(|to| to.len > 0) {
                    copy_on_host(to.region, to.offset, span.region, at, to.len as usize)?;
                    (at, left) = (at + u64::from(to.len), left - to.len);
                }
            }
        }
    }
    Ok(())
}

fn own(spans: &[Span<'_>]) -> VecDeque<Piece> {
    let piece = |span: &Span<'_>| Piece {
        region: span.region.clone(),
        offset: span.offset,
        len: u64::from(span.len),
        grant: None,
    };
    spans.iter().map(piece).collect()
}

impl Transfer {
    fn start(
        from: Source<'_>,
        to: &[Span<'_>],
        len: u64,
        slice: u64,
    ) -> Result<Option<Self>, MemError> {
        let from = match from {
            Source::Spans(spans) => own(spans),
            Source::Bytes(bytes) => {
                // The WQE's slot is reused before a copy engine may have read it.
                let region = SmallBuf::region(bytes.len());
                region.write(0, bytes)?;
                VecDeque::from([Piece { region, offset: 0, len, grant: None }])
            }
        };
        let mut transfer =
            Self { from, to: own(to), left: len, pending: VecDeque::new(), error: None };
        let done = transfer.advance(slice, None).map_err(Fault::into_copy)?;
        Ok((!done).then_some(transfer))
    }

    /// From now on, every slice checks the grants of what is left: those of all pieces, in order.
    pub(crate) fn check_by(&mut self, from: &[Grant], to: &[Grant]) {
        for (pieces, grants) in [(&mut self.from, from), (&mut self.to, to)] {
            for (piece, grant) in pieces.iter_mut().rev().zip(grants.iter().rev()) {
                piece.grant = Some(*grant);
            }
        }
    }

    /// All bytes were handed over; only copy engines may still be at work.
    pub(crate) fn is_issued(&self) -> bool {
        self.left == 0 && self.error.is_none()
    }

    /// Goes on by at most `slice` bytes. True once all bytes are in place. Neither end nor error
    /// comes before all copies have landed, so that dropping it then waits for nothing.
    pub(crate) fn advance(&mut self, slice: u64, keys: Option<&KeyTable>) -> Result<bool, Fault> {
        if let Err(error) = self.hand_over(slice, keys) {
            (self.error, self.left) = (Some(error), 0);
        }
        while let Some(first) = self.pending.front() {
            match first.is_done() {
                Ok(false) => return Ok(false),
                Ok(true) => {}
                Err(error) => (self.error, self.left) = (Some(error.into()), 0),
            }
            self.pending.pop_front();
        }
        self.error.take().map_or(Ok(self.left == 0), Err)
    }

    fn hand_over(&mut self, slice: u64, keys: Option<&KeyTable>) -> Result<(), Fault> {
        let mut budget = slice;
        while self.left > 0 && budget > 0 {
            let (Some(src), Some(dst)) = (self.from.front_mut(), self.to.front_mut()) else {
                // The lists cover `len` bytes by construction; nothing is left to move.
                self.left = 0;
                break;
            };
            let now = src.len.min(dst.len).min(budget).min(self.left);
            if let Some(keys) = keys {
                src.check(keys, now)?;
                dst.check(keys, now)?;
            }
            let moved = copy(&dst.region, dst.offset, &src.region, src.offset, now as usize)?;
            if let Progress::Pending(pending) = moved {
                self.pending.push_back(pending);
            }
            for piece in [&mut *src, &mut *dst] {
                piece.offset += now;
                piece.len -= now;
            }
            let (src_used, dst_used) = (src.len == 0, dst.len == 0);
            if src_used {
                self.from.pop_front();
            }
            if dst_used {
                self.to.pop_front();
            }
            self.left -= now;
            budget -= now;
        }
        Ok(())
    }
}
