//! Moving payload from pieces to pieces: at once where both sides are host memory and the message
//! is short, else slice by slice and without waiting for copy engines.

use std::collections::VecDeque;
use warpverbs_mem::{
    Kind, MemError, Pending, Progress, Region, SmallBuf, Span, copy, copy_on_host,
};

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
}

/// A message on its way. Regions are kept alive until the last byte is in place.
pub(crate) struct Transfer {
    from: VecDeque<Piece>,
    to: VecDeque<Piece>,
    /// Bytes not yet handed to memory or to a copy engine.
    left: u64,
    pending: VecDeque<Pending>,
    /// Why no more bytes are handed over. Told when nothing is under way any more.
    error: Option<MemError>,
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
                VecDeque::from([Piece { region, offset: 0, len }])
            }
        };
        let mut transfer =
            Self { from, to: own(to), left: len, pending: VecDeque::new(), error: None };
        let done = transfer.advance(slice)?;
        Ok((!done).then_some(transfer))
    }

    /// All bytes were handed over; only copy engines may still be at work.
    pub(crate) fn is_issued(&self) -> bool {
        self.left == 0 && self.error.is_none()
    }

    /// Goes on by at most `slice` bytes. True once all bytes are in place. Neither end nor error
    /// comes before all copies have landed, so that dropping it then waits for nothing.
    pub(crate) fn advance(&mut self, slice: u64) -> Result<bool, MemError> {
        if let Err(error) = self.hand_over(slice) {
            (self.error, self.left) = (Some(error), 0);
        }
        while let Some(first) = self.pending.front() {
            match first.is_done() {
                Ok(false) => return Ok(false),
                Ok(true) => {}
                Err(error) => (self.error, self.left) = (Some(error), 0),
            }
            self.pending.pop_front();
        }
        self.error.take().map_or(Ok(self.left == 0), Err)
    }

    fn hand_over(&mut self, slice: u64) -> Result<(), MemError> {
        let mut budget = slice;
        while self.left > 0 && budget > 0 {
            let (Some(src), Some(dst)) = (self.from.front_mut(), self.to.front_mut()) else {
                // The lists cover `len` bytes by construction; nothing is left to move.
                self.left = 0;
                break;
            };
            let now = src.len.min(dst.len).min(budget).min(self.left);
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
