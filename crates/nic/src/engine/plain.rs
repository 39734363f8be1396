//! Which WQEs may take the short way: the most common kind, for which most checks are not needed.

use crate::format::{At, Completion, Flags, Own, Plain, Remote, Sge, Short};
use crate::objects::send::SendQueue;
use warpverbs_mem::{Access, Block, KeyTable, Span};

/// A WRITE without immediate data, in one WQEBB, whose own side passes every check.
pub(super) struct PlainWrite<'a> {
    pub(super) units: u64,
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
/// left untouched for the general way, which also reports what is wrong with it. `block` is for the bytes.
#[inline(always)]
pub(super) fn plain_write<'a, F: Plain>(
    q: &mut SendQueue,
    keys: &'a KeyTable,
    at: At,
    block: &'a mut Block,
    max: u64,
) -> Option<PlainWrite<'a>> {
    let ring = q.ring.wqes.as_ref()?;
    let Short { units, remote, own, flags } = F::short(&q.format, q.qpn, ring, at, block)?;
    if flags.completion == Completion::AlwaysWithEvent {
        return None;
    }
    let (source, len) = match own {
        Own::Piece(sge) if u64::from(sge.len) <= max => {
            let (key, right) = (sge.lkey.0, Access::empty());
            let span = keys.find(&mut q.local_hint, q.pd, key, sge.addr, sge.len, right)?;
            (Source::Memory(sge, span), sge.len)
        }
        Own::Inline(bytes) if bytes.len() as u64 <= max => {
            (Source::Inline(bytes), bytes.len() as u32)
        }
        _ => return None,
    };
    Some(PlainWrite { units, remote, source, len, flags })
}
