// Bodies of send.h.
#pragma once

#include "warpverbs/impl/complete.h"
#include "warpverbs/impl/verbs.h"
#include "warpverbs/send.h"

namespace wv {
namespace impl {

// Consumes one entry of the receive CQ. Holder of the receive queue's poll token only.
WV_DEVICE Status take_receive(const Qp& qp, Received& out) {
  PostState* state = state_of(qp);
  QueueState* q = &state->rq;
  const u64 ci = load<order::relaxed, scope::gpu>(&q->cq_ci);
  const u64 cqe = cqe_address(qp.recv_cq, ci);
  // Acquire, pairs with the NIC's last store to the entry: the message and the rest of the entry.
  const mlx5::CqeTail tail = cqe_tail(cqe);
  if (!mlx5::owned_by_software(tail, ci, qp.recv_cq.log_size)) return Status::of(outcome::no_room);
  Status status;
  const u64 index = load<order::relaxed, scope::gpu>(&q->completed);
  if (tail.is_error()) {
    status = claim_cqe_error(state, cqe, tail);
  } else {
    out.index = index;
    out.bytes = mlx5::bswap32(cqe_word(cqe, mlx5::cqe_byte_cnt_offset));
    out.imm = mlx5::bswap32(cqe_word(cqe, mlx5::cqe_imm_offset));
    out.opcode = static_cast<u32>(tail.opcode());
  }
  store<order::relaxed, scope::gpu>(&q->cq_ci, ci + 1);
  return_cqes(qp.recv_cq, ci + 1);
  // Receives are consumed in order. Release, pairs with reserve_recv: the entry before its reuse.
  store<order::release, scope::gpu>(&q->completed, index + 1);
  return status;
}

WV_DEVICE Status await_receive(const Qp& qp, Received& out, Deadline deadline) {
  QueueState* q = &state_of(qp)->rq;
  const Timer timer(qp, deadline);
  Patience patience;
  for (;;) {
    Status status = poll_recv(qp, out);
    if (status.kind() != outcome::no_room) return status;
    const bool late = timer.expired();
    if (late || (patience.look_at_host() && host_aborts(qp))) {
      status = Status::of(late ? outcome::timeout : outcome::aborted);
      const u64 next = load<order::relaxed, scope::gpu>(&q->completed);
      record_fault(qp, status, wait_for::receive, next, next);
      return status;
    }
    patience.rest();
  }
}

struct ReceivedStatus {
  Received received;
  Status status;
  u32 reserved;
};

}  // namespace impl

template <class Coop>
WV_DEVICE Posted send(const Coop& coop, const Qp& qp, Local local, u32 bytes, Flags flags,
                      Deadline deadline) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  return impl::post(coop, qp, impl::Send{local, bytes, mlx5::opcode::send}, flags, deadline);
}

template <class Coop>
WV_DEVICE Posted send_imm(const Coop& coop, const Qp& qp, Local local, u32 bytes, u32 imm,
                          Flags flags, Deadline deadline) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  return impl::post(coop, qp, impl::Send{local, bytes, mlx5::opcode::send_imm, imm}, flags,
                    deadline);
}

template <class Coop>
WV_DEVICE Posted receive(const Coop& coop, const Qp& qp, Local local, u32 bytes,
                         Deadline deadline) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  const impl::Receive op(local, bytes);
  if constexpr (Coop::alone) {
    return with_group(qp.state, deadline.ns, WV_SITE, [&](lane_mask together) {
      return impl::post_receives(qp, together, op, deadline);
    });
  } else {
    coop.sync();
    Posted posted{};
    if (coop.thread_rank() == 0) posted = impl::post_receive(qp, op, deadline);
    return coop.broadcast(posted);
  }
}

WV_DEVICE Status poll_recv(const Qp& qp, Received& out) {
  PostState* state = impl::state_of(qp);
  Status status = impl::error_of(state);
  if (!status.ok()) return status;
  if (!impl::try_elect(&state->rq)) return Status::of(outcome::no_room);
  status = impl::take_receive(qp, out);
  impl::resign(&state->rq);
  return status;
}

template <class Coop>
WV_DEVICE Status wait_recv(const Coop& coop, const Qp& qp, Received& out, Deadline deadline) {
  coop.sync();
  impl::ReceivedStatus result{};
  if (coop.thread_rank() == 0) {
    result.status = impl::await_receive(qp, result.received, deadline);
  }
  result = coop.broadcast(result);
  coop.sync();
  if (result.status.ok()) out = result.received;
  return result.status;
}

}  // namespace wv
