//! Payload as lists of pieces: which engine can move it, and moving it at once.

use warpverbs_mem::{Kind, MemError, Span, copy_on_host, scatter};

/// Where payload comes from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// Bytes of the WQE itself.
    Bytes(&'a [u8]),
    /// Registered memory.
    Spans(&'a [Span<'a>]),
}

/// The copy engine that moves all of these bytes, named by the memory it works for; host memory if
/// the CPU does. `None`: more than one.
#[inline]
pub(crate) fn engine(from: Source<'_>, to: &[Span<'_>]) -> Option<Kind> {
    let from = match from {
        Source::Bytes(_) => &[],
        Source::Spans(spans) => spans,
    };
    match common(to)? {
        Kind::Host => common(from),
        kind => Some(kind),
    }
}

/// The kind of memory of all pieces: host memory if there are none.
#[inline]
fn common(spans: &[Span<'_>]) -> Option<Kind> {
    let mut kinds = spans.iter().map(|span| span.region.kind());
    let first = kinds.next().unwrap_or(Kind::Host);
    kinds.all(|kind| kind == first).then_some(first)
}

/// Moves bytes from pieces to pieces of host memory, as far as the shorter list goes: callers have
/// compared the lengths.
#[inline]
pub(crate) fn move_now(from: Source<'_>, to: &[Span<'_>]) -> Result<(), MemError> {
    match (from, to) {
        (Source::Bytes(bytes), _) => scatter(to, bytes).map(drop),
        (Source::Spans([src]), [dst]) => {
            let len = src.len.min(dst.len) as usize;
            copy_on_host(dst.region, dst.offset, src.region, src.offset, len)
        }
        (Source::Spans(from), _) => pairs(from, to).try_for_each(|Pair { from, to, .. }| {
            let len = from.len as usize;
            copy_on_host(to.region, to.offset, from.region, from.offset, len)
        }),
    }
}

/// Parts of two pieces, of one length: each with the number of its piece, and how many bytes of
/// that are before it.
pub(super) struct Pair<'a> {
    pub(super) from: Span<'a>,
    pub(super) from_at: (usize, u32),
    pub(super) to: Span<'a>,
    pub(super) to_at: (usize, u32),
}

/// Two lists of pieces, cut where a piece of either ends. It ends with the shorter one.
pub(super) fn pairs<'a>(
    from: &'a [Span<'a>],
    to: &'a [Span<'a>],
) -> impl Iterator<Item = Pair<'a>> {
    let (mut from_at, mut to_at) = ((0, 0), (0, 0));
    std::iter::from_fn(move || {
        let (src, dst) = (rest(from, &mut from_at)?, rest(to, &mut to_at)?);
        let len = src.len.min(dst.len);
        let pair = Pair { from: Span { len, ..src }, from_at, to: Span { len, ..dst }, to_at };
        from_at.1 += len;
        to_at.1 += len;
        Some(pair)
    })
}

/// The rest of the piece at `at`, or of the next one that has bytes.
fn rest<'a>(spans: &[Span<'a>], at: &mut (usize, u32)) -> Option<Span<'a>> {
    while spans.get(at.0)?.len == at.1 {
        *at = (at.0 + 1, 0);
    }
    let span = spans[at.0];
    Some(Span { offset: span.offset + u64::from(at.1), len: span.len - at.1, ..span })
}
