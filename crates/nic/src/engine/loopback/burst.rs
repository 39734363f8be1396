//! The short way of [plain WRITEs](crate::engine::plain) from host memory to host memory that pass
//! every check of the peer, on a QP without work in flight.
//!
//! It reports no errors: any other WQE is left untouched for the general way (`execute`), so the
//! NIC behaves the same without this file.

use crate::engine::access::check_op_valid;
use crate::engine::plain::{PlainWrite, Source, plain_write};
use crate::engine::report::Report;
use crate::engine::tables::Tables;
use crate::format::{At, OfBnxt, OfIonic, OfMlx5, Plain, SendFormat};
use crate::objects::receive::ReceiveQueue;
use crate::objects::send::SendQueue;
use crate::slots::QpSlot;
use warpverbs_mem::{Access, KeyTable, copy_on_host};

/// A WRITE that was executed.
struct Done {
    units: u64,
    bytes: u64,
    signaled: bool,
}

/// Executes WQEs of the QP in `slot` as far as they are plain, up to `budget` of them, and no
/// further than the first that asks for a CQE. Returns a report of those executed, if any were.
pub(super) fn burst(tables: &mut Tables, slot: QpSlot, budget: u32, slice: u64) -> Option<Report> {
    match tables.sends.live(slot)?.format {
        SendFormat::Mlx5 => burst_of::<OfMlx5>(tables, slot, budget, slice),
        SendFormat::Bnxt(_) => burst_of::<OfBnxt>(tables, slot, budget, slice),
        SendFormat::Ionic(_) => burst_of::<OfIonic>(tables, slot, budget, slice),
    }
}

/// Not part of its caller, whose other values would take registers of the loop.
#[inline(never)]
fn burst_of<F: Plain>(
    tables: &mut Tables,
    slot: QpSlot,
    budget: u32,
    slice: u64,
) -> Option<Report> {
    let Tables { sends, receives, keys, .. } = tables;
    let q = sends.live_mut(slot)?;
    // A hint: the peer may be gone.
    let rq = receives.get_mut(q.peer.slot)?;
    if !is_plain(q, rq) {
        return None;
    }
    let (first, posted) = (q.progress.next, q.progress.posted);
    let budget = u64::from(budget);
    let end = if F::ONE_UNIT { posted.min(first + budget) } else { posted };
    let (mut next, mut counted, mut bytes, mut signaled) = (first, 0, 0, false);
    let count = |next, counted| if F::ONE_UNIT { next - first } else { counted };
    while next < end
        && (F::ONE_UNIT || counted < budget)
        && bytes < slice
        && let at = (At {
            index: next,
            nth: q.progress.ended + count(next, counted),
            announced: posted - next,
        })
        && let Some(write) = write::<F>(keys, (q, at), rq, slice)
    {
        next += if F::ONE_UNIT { 1 } else { write.units };
        counted += 1;
        bytes += write.bytes;
        if write.signaled {
            signaled = true;
            break;
        }
    }
    q.progress.next = next;
    let count = count(next, counted) as u32;
    (count > 0).then_some(Report::Executed { slot, count, bytes, signaled })
}

/// The state of the QP, of its peer and of its queue allow the short way.
fn is_plain(q: &SendQueue, rq: &ReceiveQueue) -> bool {
    let free = q.is_plain() && q.progress.in_flight.is_empty();
    free && rq.answers(q.qpn.get(), q.peer.qpn) && check_op_valid(rq, Access::REMOTE_WRITE).is_ok()
}

/// Executes the WQE of `q` at `at` if it is a plain WRITE, no longer than a slice, between host
/// memory.
#[inline]
fn write<F: Plain>(
    keys: &KeyTable,
    (q, at): (&mut SendQueue, At),
    rq: &mut ReceiveQueue,
    slice: u64,
) -> Option<Done> {
    let block = F::load(q.ring.wqes.as_ref()?, at.index);
    let PlainWrite { units, psn, remote, source, len, flags } =
        plain_write::<F>(q, keys, at, &block, slice)?;
    let (rkey, right) = (remote.rkey.0, Access::REMOTE_WRITE);
    // One of no bytes has no key to find.
    let to = keys.find(&mut rq.remote_hint, rq.pd, rkey, remote.addr, len, right)?;
    let moved = match source {
        Source::Inline(bytes) => to.region.write(to.offset, bytes),
        Source::Memory(_, from) => {
            copy_on_host(to.region, to.offset, from.region, from.offset, len as usize)
        }
    };
    moved.ok()?;
    F::passed(&mut q.format, psn);
    Some(Done { units, bytes: u64::from(len), signaled: flags.completion.is_signaled() })
}
