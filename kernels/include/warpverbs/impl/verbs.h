// Bodies of verbs.h.
#pragma once

#include "warpverbs/impl/post.h"
#include "warpverbs/verbs.h"

namespace wv {
namespace impl {

constexpr u32 max_message = 0x7fffffffu;

WV_DEVICE Posted refuse(outcome why) { return {Status::of(why), 0, 0}; }

WV_DEVICE Atomic atomic_op(Local local, Remote remote, FetchAdd v) {
  return {{}, local, remote, mlx5::atomic_fa(v.add), mlx5::opcode::atomic_fa, 0, 8};
}
WV_DEVICE Atomic atomic_op(Local local, Remote remote, CompareSwap v) {
  return {{}, local, remote, mlx5::atomic_cs(v.compare, v.swap), mlx5::opcode::atomic_cs, 0, 8};
}
WV_DEVICE Atomic atomic_op(Local local, Remote remote, MaskedFetchAdd<u32> v) {
  return {{}, local, remote, mlx5::masked_fa4(v.add, v.boundary), mlx5::opcode::masked_fa,
          mlx5::opmod_masked_4b, 4};
}
WV_DEVICE Atomic atomic_op(Local local, Remote remote, MaskedFetchAdd<u64> v) {
  return {{}, local, remote, mlx5::masked_fa8(v.add, v.boundary), mlx5::opcode::masked_fa,
          mlx5::opmod_masked_8b, 8};
}
WV_DEVICE Atomic atomic_op(Local local, Remote remote, MaskedCompareSwap<u32> v) {
  return {{}, local, remote,
          mlx5::masked_cs4(v.compare, v.compare_mask, v.swap, v.swap_mask),
          mlx5::opcode::masked_cs, mlx5::opmod_masked_4b, 4};
}
WV_DEVICE MaskedCas8 atomic_op(Local local, Remote remote, MaskedCompareSwap<u64> v) {
  return {local, remote, mlx5::masked_cs8_data(v.compare, v.swap),
          mlx5::masked_cs8_mask(v.compare_mask, v.swap_mask)};
}

// Writes at `index`, which the caller owns.
template <class Op>
WV_DEVICE Posted place(const Qp& qp, u64 index, const Op& op, Flags flags) {
  const SendQueue q(qp);
  const bool signalled = !flags.has(unsignalled);
  const u32 n = op.wqebbs();
  if (!signalled && !must_signal(q, index, n)) {
    raise<order::relaxed, scope::gpu>(&q.counters()->unsignalled, index + n);
  }
  write_op(q, index, op, flags, signalled);
  return {Status{}, n, index};
}

// Reserves for the calling thread alone and writes; rings nothing.
template <class Op>
WV_DEVICE Posted write_unrung(const Qp& qp, const Op& op, Flags flags, Timeout timeout) {
  const SendQueue q(qp);
  const u32 n = op.wqebbs();
  const Reserved r = reserve(qp, q, n, false, flags, timeout);
  if (!r.status.ok()) return {r.status, n, 0};
  return place(qp, r.base, op, flags);
}

}  // namespace impl

// Each verb in its two forms, from what its Op is made of.
#define WV_BOTH(verb, PARAMS, refused, why, op)                                             \
  WV_DEVICE Posted verb(const Qp& qp, WV_ARGS PARAMS, Flags flags, Timeout timeout) {     \
    if (refused) return impl::refuse(outcome::why);                                         \
    return impl::write_unrung(qp, op, flags, timeout);                                     \
  }                                                                                         \
  WV_DEVICE Posted verb(const Qp& qp, u64 index, WV_ARGS PARAMS, Flags flags) {             \
    if (refused) return impl::refuse(outcome::why);                                         \
    return impl::place(qp, index, op, flags);                                               \
  }
#define WV_ARGS(...) __VA_ARGS__

WV_BOTH(post_send, (Local local, u32 bytes), bytes > impl::max_message, too_long,
        (impl::Send{local, bytes, mlx5::opcode::send}))
WV_BOTH(post_send_imm, (Local local, u32 bytes, u32 imm), bytes > impl::max_message, too_long,
        (impl::Send{local, bytes, mlx5::opcode::send_imm, imm}))
WV_BOTH(post_write, (Local local, Remote remote, u32 bytes), bytes > impl::max_message, too_long,
        (impl::Rdma{local, remote, bytes, mlx5::opcode::rdma_write}))
WV_BOTH(post_write_imm, (Local local, Remote remote, u32 bytes, u32 imm),
        bytes > impl::max_message, too_long,
        (impl::Rdma{local, remote, bytes, mlx5::opcode::rdma_write_imm, imm}))
WV_BOTH(post_write_inline, (const void* source, Remote remote, u32 bytes),
        bytes > u32{qp.inline_words} * 4, too_long,
        (impl::WriteInline{remote, static_cast<const u8*>(source), bytes}))
WV_BOTH(post_read, (Local local, Remote remote, u32 bytes), bytes > impl::max_message, too_long,
        (impl::Rdma{local, remote, bytes, mlx5::opcode::rdma_read}))
#undef WV_BOTH
#undef WV_ARGS

template <class Operands>
WV_DEVICE Posted post_atomic(const Qp& qp, Local local, Remote remote, Operands operands,
                             Flags flags, Timeout timeout) {
  return impl::write_unrung(qp, impl::atomic_op(local, remote, operands), flags, timeout);
}
template <class Operands>
WV_DEVICE Posted post_atomic(const Qp& qp, u64 index, Local local, Remote remote,
                             Operands operands, Flags flags) {
  return impl::place(qp, index, impl::atomic_op(local, remote, operands), flags);
}

WV_DEVICE Posted post_nop(const Qp& qp, Flags flags, Timeout timeout) {
  return impl::write_unrung(qp, impl::Nop{}, flags, timeout);
}
WV_DEVICE Posted post_nop(const Qp& qp, u64 index, Flags flags) {
  return impl::place(qp, index, impl::Nop{}, flags);
}

WV_DEVICE Posted post_recv(const Qp& qp, Local local, u32 bytes, Timeout timeout) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  const impl::RecvQueue q(qp);
  const impl::Reserved r = impl::reserve_recv(qp, q, 1, impl::deadline_of(qp, timeout));
  if (!r.status.ok()) return {r.status, 1, 0};
  impl::Receive(local, bytes).write(q, r.base);
  return {Status{}, 1, r.base};
}
WV_DEVICE Posted post_recv(const Qp& qp, u64 index, Local local, u32 bytes) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  impl::Receive(local, bytes).write(impl::RecvQueue(qp), index);
  return {Status{}, 1, index};
}

WV_DEVICE void ring_doorbell(const Qp& qp, Posted posted) {
  if (!posted.ok()) return;
  const Unbroken section(lane_bit(lane_id()));
  impl::publish(impl::SendQueue(qp), impl::Alone{}, posted.index, posted.wqebbs);
}
WV_DEVICE void update_recv_dbrec(const Qp& qp, Posted posted) {
  if (!posted.ok()) return;
  const Unbroken section(lane_bit(lane_id()));
  impl::publish(impl::RecvQueue(qp), impl::Alone{}, posted.index, posted.wqebbs);
}

WV_DEVICE u64 next_send_index(const Qp& qp) {
  return load<order::relaxed, scope::gpu>(&impl::state_of(qp)->sq.reserved);
}
WV_DEVICE u64 next_recv_index(const Qp& qp) {
  return load<order::relaxed, scope::gpu>(&impl::state_of(qp)->rq.reserved);
}

namespace impl {

// Brings the counters of a queue with one poster to `next`, ready bits included.
template <class Queue>
WV_DEVICE void advance_alone(const Queue& q, u64 next) {
  QueueState* c = q.counters();
  const u64 from = load<order::relaxed, scope::gpu>(&c->published);
  if (next > from) mark_ready<order::relaxed>(q, from, next - from);
  raise<order::relaxed, scope::gpu>(&c->reserved, next);
}

}  // namespace impl

WV_DEVICE void update_send_dbrec(const Qp& qp, u64 next) {
  impl::SendQueue(qp).set_record(next);
}
WV_DEVICE void ring_doorbell(const Qp& qp, u64 next) {
  const impl::SendQueue q(qp);
  impl::advance_alone(q, next);
  store<order::relaxed, scope::gpu>(&q.counters()->published, next);
  store<order::release, scope::system>(q.doorbell, mlx5::doorbell_next(next, q.qpn));
}
WV_DEVICE void update_recv_dbrec(const Qp& qp, u64 next) {
  const impl::RecvQueue q(qp);
  impl::advance_alone(q, next);
  q.announce(next);
}

WV_DEVICE Status poll_cq_once(const Qp& qp, u64& completed) {
  PostState* state = impl::state_of(qp);
  const u64 before = completed;
  u64 done = impl::load_poll_word(&state->sq).completed();
  Status status = impl::error_of(state);
  if (status.ok()) {
    (void)impl::if_unlocked(&state->sq, [&](u64& now) {
      status = impl::drain_send<false>(qp, now);
      done = now;
    });
  }
  completed = done;
  return status.ok() && done == before ? Status::of(outcome::no_room) : status;
}
WV_DEVICE Status poll_cq(const Qp& qp, u64 upto, Timeout timeout) {
  return impl::await_send<false, false>(qp, upto, wait_for::completion,
                                        impl::deadline_of(qp, timeout))
      .status;
}
WV_DEVICE Status poll_cq(const Qp& qp, Posted posted, Timeout timeout) {
  return posted.ok() ? poll_cq(qp, posted.end(), timeout) : posted.status;
}
WV_DEVICE void update_cq_dbrec(const Qp& qp) {
  if (qp.send_cq.mode == cq_mode::collapsed) return;
  const u64 ci = load<order::acquire, scope::gpu>(&impl::state_of(qp)->sq.cq_ci);
  impl::return_cqes(qp.send_cq, ci);
}

}  // namespace wv
