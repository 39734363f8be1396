// Bodies of send.h.
#pragma once

#include "warpverbs/impl/complete.h"
#include "warpverbs/impl/verbs.h"
#include "warpverbs/send.h"

namespace wv {
namespace impl {

// Consumes one entry of the receive CQ, if there is one, and moves `done` past its receive: they
// are consumed in order. The caller holds the queue's poll lock; its unlock gives the receive's
// slot back.
template <class Nic>
WV_DEVICE Status take_receive(const QpOf<Nic>& qp, u64& done, Received& out) {
  PostState* state = state_of(qp);
  QueueState* q = &state->rq;
  const u64 ci = load<order::relaxed, scope::gpu>(&q->cq_ci);
  const u64 cqe = cqe_address<Nic>(qp.recv_cq, ci);
  // Acquire, pairs with the NIC's last store to the entry: the message and the rest of the entry.
  const typename Nic::Tail tail = Nic::look(cqe);
  if (!Nic::is_new(tail, ci, qp.recv_cq.log_size)) return Status::of(outcome::no_room);
  Status status;
  if (tail.is_error()) {
    status = claim_cqe_error<Nic>(state, cqe, tail, done);
  } else {
    const typename Nic::Arrived arrived = Nic::arrived(cqe, tail);
    out.index = done;
    out.bytes = arrived.bytes;
    out.imm = arrived.imm;
    out.opcode = arrived.opcode;
  }
  store<order::relaxed, scope::gpu>(&q->cq_ci, ci + 1);
  return_cqes_in_time<Nic>(qp.recv_cq, ci, ci + 1);
  done += 1;
  return status;
}

template <class Nic>
WV_DEVICE Status await_receive(const QpOf<Nic>& qp, Received& out, Timeout timeout) {
  const Deadline deadline = deadline_of(qp, timeout);
  Backoff backoff;
  Status status;
  repeat(qp.state, patience_of(deadline), WV_SITE, [&](bool) {
    status = poll_recv(qp, out);
    if (status.kind() != outcome::no_room) return true;
    const u64 next = load_poll_word(&state_of(qp)->rq).completed();
    status = pause_or_give_up(qp, backoff, deadline, wait_for::receive, next, next);
    return !status.ok();
  });
  return status;
}

struct ReceivedStatus {
  Received received;
  Status status;
  u32 reserved;
};

}  // namespace impl

template <class Coop, class Nic>
WV_DEVICE Posted send(const Coop& coop, const QpOf<Nic>& qp, Local local, u32 bytes, Flags flags,
                      Timeout timeout) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  return impl::post(coop, qp, impl::Send{local, bytes, mlx5::opcode::send}, flags, timeout);
}

template <class Coop, class Nic>
WV_DEVICE Posted send_imm(const Coop& coop, const QpOf<Nic>& qp, Local local, u32 bytes, u32 imm,
                          Flags flags, Timeout timeout) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  return impl::post(coop, qp, impl::Send{local, bytes, mlx5::opcode::send_imm, imm}, flags,
                    timeout);
}

template <class Coop, class Nic>
WV_DEVICE Posted receive(const Coop& coop, const QpOf<Nic>& qp, Local local, u32 bytes,
                         Timeout timeout) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  const impl::Receive op(local, bytes);
  if constexpr (Coop::alone) {
    return with_group(qp.state, timeout.ns, WV_SITE, [&](lane_mask together) {
      return impl::post_receives(qp, together, op, timeout);
    });
  } else {
    coop.sync();
    Posted posted{};
    if (coop.thread_rank() == 0) {
      posted = impl::post_receive(qp, op, impl::deadline_of(qp, timeout));
    }
    return coop.broadcast(posted);
  }
}

template <class Nic>
WV_DEVICE Status poll_recv(const QpOf<Nic>& qp, Received& out) {
  PostState* state = impl::state_of(qp);
  Status taken = Status::of(outcome::no_room);
  if (!impl::if_unlocked(&state->rq, [&](u64& done) {
        taken = impl::take_receive(qp, done, out);
      })) {
    return taken;
  }
  if (taken.kind() != outcome::no_room) return taken;
  if constexpr (!Nic::flushes_receives) {
    (void)impl::if_unlocked(&state->sq, [&](u64& done) { (void)impl::drain_send<true>(qp, done); });
  }
  // Only now: what arrived before the queue pair failed is still delivered.
  const Status error = impl::error_of(state);
  return error.ok() ? taken : error;
}

template <class Coop, class Nic>
WV_DEVICE Status wait_recv(const Coop& coop, const QpOf<Nic>& qp, Received& out, Timeout timeout) {
  coop.sync();
  impl::ReceivedStatus result{};
  if (coop.thread_rank() == 0) {
    result.status = impl::await_receive(qp, result.received, timeout);
  }
  result = coop.broadcast(result);
  coop.sync();
  if (result.status.ok()) out = result.received;
  return result.status;
}

}  // namespace wv
