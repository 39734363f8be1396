//! Which WQEs may take the short way: the most common kind, for which most checks are not needed.

use crate::format::{self, Completion, Flags, Op, Payload, Remote, Sge};
use crate::objects::send::SendQueue;
use warpverbs_mem::{Access, Block, KeyTable, Span};

/// A WRITE without immediate data, in one WQEBB, whose own side passes every check.
pub(super) struct PlainWrite<'a> {
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

/// The WQE of `q` at `index`, whose first WQEBB is `block`, if it may take the short way and has
/// `max` bytes at most: all conditions of the WQE are here; those of the queue are in
/// [`SendQueue::is_plain`]. Any other WQE is left untouched for the general way, which also reports
/// what is wrong with it.
#[inline(always)]
pub(super) fn plain_write<'a>(
    q: &mut SendQueue,
    keys: &'a KeyTable,
    (block, index): (&'a Block, u64),
    max: u64,
) -> Option<PlainWrite<'a>> {
    let wqe = format::parse_write(block, (q.qpn, index))?;
    let Op::Write { remote, payload, imm: None } = wqe.op else { return None };
    if wqe.flags.completion == Completion::AlwaysWithEvent {
        return None;
    }
    let (source, len) = match payload {
        Payload::Sges(sges) => {
            let sge = sges.single().filter(|sge| u64::from(sge.len) <= max)?;
            let (key, right) = (sge.lkey.0, Access::empty());
            let span = keys.find(&mut q.local_hint, q.pd, key, sge.addr, sge.len, right)?;
            (Source::Memory(sge, span), sge.len)
        }
        Payload::Inline(bytes) if bytes.len() as u64 <= max => {
            (Source::Inline(bytes), bytes.len() as u32)
        }
        Payload::Inline(_) | Payload::Mixed(_) => return None,
    };
    Some(PlainWrite { remote, source, len, flags: wqe.flags })
}
