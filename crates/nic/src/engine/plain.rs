//! Which WQEs may take the short way: the most common kind, for which most checks are not needed.

use crate::format::{At, Completion, Flags, Plain, Remote, Sge, Short, TakesPayload};
use crate::objects::send::SendQueue;
use warpverbs_mem::{Access, Block, KeyHint, KeyTable, Span};

/// A WRITE without immediate data, in one WQEBB, whose own side passes every check.
pub(super) struct PlainWrite<'a> {
    pub(super) units: u64,
    /// First packet number of the next WQE, where posters count them.
    pub(super) psn: u32,
    pub(super) remote: Remote,
    pub(super) source: Source<'a>,
    /// At most what the caller allows.
    pub(super) len: u32,
    pub(super) flags: Flags,
}

/// Where the bytes of a [`PlainWrite`] are.
pub(super) enum Source<'a> {
    /// In the WQE.
    Inline(&'a [u8]),
    /// In one piece of registered memory.
    Memory(Sge, Span<'a>),
}

/// The WQE of `q` at `at`, which is next, if it may take the short way and has `max` bytes at most: all
/// conditions of the WQE are here; those of the queue are in [`SendQueue::is_plain`]. Any other WQE is
/// left untouched for the general way, which also reports what is wrong with it. `block` has its first
/// 64 bytes.
#[inline(always)]
pub(super) fn plain_write<'a, F: Plain>(
    q: &mut SendQueue,
    keys: &'a KeyTable,
    at: At,
    block: &'a Block,
    max: u64,
) -> Option<PlainWrite<'a>> {
    let taker = Taker { keys, hint: &mut q.local_hint, pd: q.pd, max };
    let Short { units, remote, source: (source, len), psn, flags } =
        F::short(&q.format, q.qpn, at, block, taker)?;
    (flags.completion != Completion::AlwaysWithEvent).then_some(PlainWrite {
        units,
        psn,
        remote,
        source,
        len,
        flags,
    })
}

/// Payload that is at most so long, and in registered memory.
struct Taker<'a, 'h> {
    keys: &'a KeyTable,
    hint: &'h mut KeyHint,
    pd: u32,
    max: u64,
}

impl<'a> TakesPayload<'a, (Source<'a>, u32)> for Taker<'a, '_> {
    #[inline(always)]
    fn inline(self, bytes: &'a [u8]) -> Option<(Source<'a>, u32)> {
        let len = bytes.len();
        (len as u64 <= self.max).then_some((Source::Inline(bytes), len as u32))
    }

    #[inline(always)]
    fn piece(self, sge: Sge) -> Option<(Source<'a>, u32)> {
        if u64::from(sge.len) > self.max {
            return None;
        }
        let (key, right) = (sge.lkey.0, Access::empty());
        let span = self.keys.find(self.hint, self.pd, key, sge.addr, sge.len, right)?;
        Some((Source::Memory(sge, span), sge.len))
    }
}
