//! The short way for the commonest work: WRITEs of one segment, host memory to host memory, that
//! pass every check and that nothing stands in the way of.
//!
//! It decides nothing. Whatever is not plainly fine is left as it was found, for the general way
//! (`execute`) to look at, name and answer; so this file may be taken out without a change
//! in what the NIC does.

use crate::cq::{CompletionQueue, Overrun};
use crate::engine::access::check_op_valid;
use crate::engine::tables::Tables;
use crate::qp::QpState;
use crate::qp::receive::ReceiveQueue;
use crate::qp::send::{Executor, SendQueue};
use crate::slots::QpSlot;
use warpverbs_mem::{Access, KeyTable, copy_on_host};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::flags::Completion;
use warpverbs_mlx5::num::{MAX_MESSAGE, WqeIndex};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::wqe::{Op, Payload, Position, parse, peek};
use zerocopy::transmute_ref;

/// What became of the next WQE.
enum Short {
    /// It is done; so many bytes, and whether it wants a CQE.
    Done(u64, bool),
    /// It is for the general way.
    Not,
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
        let Short::Done(len, signaled) = write(keys, q, rq, slice) else { break };
        let index = q.next;
        q.next += 1;
        done += 1;
        bytes += len;
        if signaled {
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
        && q.flight.is_empty()
        && q.snapshot.is_empty();
    let direct = cq.delay.is_none() && cq.held.is_empty();
    free && direct
        && rq.answers(q.qpn.get(), q.peer_qpn)
        && check_op_valid(rq, Access::REMOTE_WRITE).is_ok()
}

/// Executes the next WQE of `q` if it is a plain WRITE of one WQEBB.
#[inline]
fn write(keys: &KeyTable, q: &mut SendQueue, rq: &mut ReceiveQueue, slice: u64) -> Short {
    let Some(ring) = &q.ring else { return Short::Not };
    let block = ring.load(q.next);
    let raw: &[u8; 64] = transmute_ref!(&block);
    let at = Position { qpn: q.qpn, index: WqeIndex::of(q.next) };
    if peek(raw) != 1 {
        return Short::Not;
    }
    let Ok(wqe) = parse(raw, at) else { return Short::Not };
    let Op::Write { remote, payload, imm: None } = wqe.op else { return Short::Not };
    let len = payload.byte_len();
    if len > slice.min(MAX_MESSAGE) || wqe.flags.completion == Completion::AlwaysWithEvent {
        return Short::Not;
    }
    let (rkey, right) = (remote.rkey.0, Access::REMOTE_WRITE);
    // No message is longer than a slice, so the length fits; one of no bytes has no key to find.
    let to = keys.find(&mut rq.remote_hint, rq.pd, rkey, remote.addr, len as u32, right);
    let Some(to) = to else { return Short::Not };
    let moved = match payload {
        Payload::Inline(bytes) => to.region.write(to.offset, bytes),
        Payload::Sges(sges) => {
            let Some(sge) = sges.single() else { return Short::Not };
            let none = Access::empty();
            let from = keys.find(&mut q.local_hint, q.pd, sge.lkey.0, sge.addr, sge.len, none);
            let Some(from) = from else { return Short::Not };
            copy_on_host(to.region, to.offset, from.region, from.offset, len as usize)
        }
    };
    match moved {
        Ok(()) => Short::Done(len, wqe.flags.completion.is_signaled()),
        Err(_) => Short::Not,
    }
}
