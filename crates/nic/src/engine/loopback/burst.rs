//! The short way of [plain WRITEs](crate::engine::plain), host memory to host memory, that pass
//! every check of the peer too and that nothing stands in the way of.
//!
//! It decides nothing. Whatever is not plainly fine is left as it was found, for the general way
//! (`execute`), so this file may be taken out without a change in what the NIC does.

use crate::cq::{CompletionQueue, Overrun};
use crate::engine::access::check_op_valid;
use crate::engine::plain::{PlainWrite, Source, plain_write};
use crate::engine::tables::Tables;
use crate::qp::QpState;
use crate::qp::receive::ReceiveQueue;
use crate::qp::send::{Executor, SendQueue};
use crate::slots::QpSlot;
use warpverbs_mem::{Access, KeyTable, copy_on_host};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::opcode::SendOpcode;

/// A WRITE that was executed.
struct Done {
    bytes: u64,
    signaled: bool,
}

/// Executes up to `budget` WQEs of the QP in `slot`: how many, and whether its CQ overran.
pub(super) fn burst(tables: &mut Tables, slot: QpSlot, budget: u32, slice: u64) -> (u32, bool) {
    let Tables { sends, receives, cqs, keys, .. } = tables;
    let Some(q) = sends.live_mut(slot) else { return (0, false) };
    // A hint: the peer may be gone.
    let Some(rq) = receives.get_mut(q.peer_slot) else { return (0, false) };
    let upto = q.posted;
    let Some(cq) = cqs.live_mut(q.cq) else { return (0, false) };
    if !is_plain(q, rq, cq) {
        return (0, false);
    }
    let (mut done, mut bytes, mut cqes, mut overrun) = (0, 0, 0, false);
    while done < budget && bytes < slice && q.next != upto && !overrun {
        let Some(write) = write(keys, q, rq, slice) else { break };
        let index = q.next;
        q.next += 1;
        done += 1;
        bytes += write.bytes;
        if write.signaled {
            let (qpn, wqe_counter, opcode) = (q.qpn, index as u16, SendOpcode::RdmaWrite);
            let cqe = Cqe::Requester { qpn, wqe_counter, opcode, byte_cnt: 0 };
            overrun = cq.publish(&cqe) == Err(Overrun);
            q.reported = q.next;
            cqes += 1;
        }
    }
    if done > 0 {
        q.retired = q.next;
        q.restore_retries();
        q.stats.wqes.add(SendOpcode::RdmaWrite, u64::from(done));
        q.stats.bytes += bytes;
        q.stats.send_cqes += cqes;
    }
    (done, overrun)
}

/// Nothing but the next WQE itself can be in the way.
fn is_plain(q: &SendQueue, rq: &ReceiveQueue, cq: &CompletionQueue) -> bool {
    let free = q.state == QpState::Rts
        && q.executor == Executor::Loopback
        && !q.stuck
        && q.wake.is_none()
        && q.poison.is_none()
        && q.flight.is_empty();
    let direct = cq.delay.is_none() && cq.held.is_empty();
    free && direct
        && rq.answers(q.qpn.get(), q.peer_qpn)
        && check_op_valid(rq, Access::REMOTE_WRITE).is_ok()
}

/// Executes the next WQE of `q` if it is a plain WRITE, no longer than a slice, between host
/// memory.
#[inline]
fn write(keys: &KeyTable, q: &mut SendQueue, rq: &mut ReceiveQueue, slice: u64) -> Option<Done> {
    let block = q.ring.as_ref()?.load(q.next);
    let PlainWrite { remote, source, len, flags } = plain_write(q, keys, &block)?;
    if u64::from(len) > slice {
        return None;
    }
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
    Some(Done { bytes: u64::from(len), signaled: flags.completion.is_signaled() })
}
