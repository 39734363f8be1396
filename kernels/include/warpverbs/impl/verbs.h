// Bodies of verbs.h.
#pragma once

#include "warpverbs/impl/post.h"
#include "warpverbs/verbs.h"

namespace wv {
namespace impl {

constexpr u32 max_message = 0x7fffffffu;

// The atomics that every NIC has.
template <class Operands>
constexpr bool is_plain = false;
template <>
constexpr bool is_plain<FetchAdd> = true;
template <>
constexpr bool is_plain<CompareSwap> = true;

WV_DEVICE Posted refuse(outcome why) { return {Status::of(why), 0, 0}; }

template <class Nic, class Operands>
constexpr bool has_atomic = Nic::masked_atomics || is_plain<Operands>;

// Writes in a slot that the caller owns.
template <class Op, class Nic>
WV_DEVICE Posted place(const SendQueue<Nic>& q, Slot to, const Op& op, Flags flags) {
  const bool signalled = !flags.has(unsignalled);
  const u32 n = op.wqebbs();
  if (!signalled && !must_signal(q, to.index, n)) {
    raise<order::relaxed, scope::gpu>(&q.counters()->unsignalled, to.index + n);
  }
  write_op(q, to, op, flags, signalled);
  return {Status{}, n, to.index};
}

// The same for the only poster of a queue, who counts indexes alone.
template <class Op, class Nic>
WV_DEVICE Posted place_at(const QpOf<Nic>& qp, u64 index, const Op& op, Flags flags) {
  const SendQueue<Nic> q(qp);
  Slot to{index, 0};
  if constexpr (Nic::Counter::counts_packets) to.packet = q.nic.packet_at(index);
  return place(q, to, op, flags);
}

// Reserves for the calling thread alone and writes; rings nothing.
template <class Op, class Nic>
WV_DEVICE Posted write_unrung(const QpOf<Nic>& qp, const Op& op, Flags flags, Timeout timeout) {
  const SendQueue<Nic> q(qp);
  const u32 n = op.wqebbs();
  const Reserved r = reserve(qp, q, n, packets_of(q, op), false, flags, timeout);
  if (!r.status.ok()) return {r.status, n, 0};
  return place(q, Slot{r.base, r.packet}, op, flags);
}

}  // namespace impl

// Each verb in its two forms, from what its Op is made of.
#define WV_BOTH(verb, PARAMS, refused, why, op)                                              \
  template <class Nic>                                                                       \
  WV_DEVICE Posted verb(const QpOf<Nic>& qp, WV_ARGS PARAMS, Flags flags, Timeout timeout) { \
    if (refused) return impl::refuse(outcome::why);                                          \
    return impl::write_unrung(qp, op, flags, timeout);                                       \
  }                                                                                          \
  template <class Nic>                                                                       \
  WV_DEVICE Posted verb(const QpOf<Nic>& qp, u64 index, WV_ARGS PARAMS, Flags flags) {       \
    if (refused) return impl::refuse(outcome::why);                                          \
    return impl::place_at(qp, index, op, flags);                                             \
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
        (typename Nic::WriteInline{remote, static_cast<const u8*>(source), bytes}))
WV_BOTH(post_read, (Local local, Remote remote, u32 bytes), bytes > impl::max_message, too_long,
        (impl::Rdma{local, remote, bytes, mlx5::opcode::rdma_read}))
#undef WV_BOTH
#undef WV_ARGS

template <class Operands, class Nic>
WV_DEVICE Posted post_atomic(const QpOf<Nic>& qp, Local local, Remote remote, Operands operands,
                             Flags flags, Timeout timeout) {
  if constexpr (!impl::has_atomic<Nic, Operands>) return impl::refuse(outcome::unsupported);
  else return impl::write_unrung(qp, Nic::atomic(local, remote, operands), flags, timeout);
}
template <class Operands, class Nic>
WV_DEVICE Posted post_atomic(const QpOf<Nic>& qp, u64 index, Local local, Remote remote,
                             Operands operands, Flags flags) {
  if constexpr (!impl::has_atomic<Nic, Operands>) return impl::refuse(outcome::unsupported);
  else return impl::place_at(qp, index, Nic::atomic(local, remote, operands), flags);
}

template <class Nic>
WV_DEVICE Posted post_nop(const QpOf<Nic>& qp, Flags flags, Timeout timeout) {
  return impl::write_unrung(qp, impl::Nop{}, flags, timeout);
}
template <class Nic>
WV_DEVICE Posted post_nop(const QpOf<Nic>& qp, u64 index, Flags flags) {
  return impl::place_at(qp, index, impl::Nop{}, flags);
}

template <class Nic>
WV_DEVICE Posted post_recv(const QpOf<Nic>& qp, Local local, u32 bytes, Timeout timeout) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  const impl::RecvQueue<Nic> q(qp);
  const impl::Reserved r = impl::reserve_recv(qp, q, 1, impl::deadline_of(qp, timeout));
  if (!r.status.ok()) return {r.status, 1, 0};
  Nic::write(q, r.base, impl::Receive(local, bytes));
  return {Status{}, 1, r.base};
}
template <class Nic>
WV_DEVICE Posted post_recv(const QpOf<Nic>& qp, u64 index, Local local, u32 bytes) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  Nic::write(impl::RecvQueue<Nic>(qp), index, impl::Receive(local, bytes));
  return {Status{}, 1, index};
}

namespace impl {

// Calls `body`, for lanes in lockstep one after the other: of their stores to one doorbell register in one
// instruction, which may be that of several queues, only one may reach the bus.
template <class Body>
WV_DEVICE void one_by_one(site where, Body body) {
  if (lockstep()) {
    (void)in_turns(lane_id(), 0, where, [&](lane_mask) {
      body();
      return true;
    });
  } else {
    body();
  }
}

}  // namespace impl

template <class Nic>
WV_DEVICE void ring_doorbell(const QpOf<Nic>& qp, Posted posted) {
  if (!posted.ok()) return;
  impl::one_by_one(WV_SITE, [&] {
    impl::publish(impl::SendQueue<Nic>(qp), impl::Alone{}, posted.index, posted.wqebbs);
  });
}
template <class Nic>
WV_DEVICE void update_recv_dbrec(const QpOf<Nic>& qp, Posted posted) {
  if (!posted.ok()) return;
  const Unbroken section(lane_bit(lane_id()));
  impl::publish(impl::RecvQueue<Nic>(qp), impl::Alone{}, posted.index, posted.wqebbs);
}

template <class Nic>
WV_DEVICE u64 next_send_index(const QpOf<Nic>& qp) {
  return impl::next_index(qp);
}
template <class Nic>
WV_DEVICE u64 next_recv_index(const QpOf<Nic>& qp) {
  return load<order::relaxed, scope::gpu>(&impl::state_of(qp)->rq.reserved);
}

namespace impl {

// Brings the counters of a queue with one poster to `next`, ready bits included.
template <class Queue>
WV_DEVICE void advance_alone(const Queue& q, u64 next) {
  QueueState* c = q.counters();
  const u64 from = load<order::relaxed, scope::gpu>(&c->published);
  if (next > from) mark_ready<order::relaxed>(q, from, next - from);
  if constexpr (Queue::Counter::counts_packets) {
    const u64 word = Queue::Counter::word(next, q.nic.packet_at(next));
    store<order::relaxed, scope::gpu>(&c->reserved, word);
  } else {
    raise<order::relaxed, scope::gpu>(&c->reserved, next);
  }
}

}  // namespace impl

template <class Nic>
WV_DEVICE void update_send_dbrec(const QpOf<Nic>& qp, u64 next) {
  impl::SendQueue<Nic>(qp).nic.set_record(next);
}
template <class Nic>
WV_DEVICE void ring_doorbell(const QpOf<Nic>& qp, u64 next) {
  const impl::SendQueue<Nic> q(qp);
  impl::advance_alone(q, next);
  store<order::relaxed, scope::gpu>(&q.counters()->published, next);
  impl::one_by_one(WV_SITE, [&] { q.ring_doorbell(next); });
}
template <class Nic>
WV_DEVICE void update_recv_dbrec(const QpOf<Nic>& qp, u64 next) {
  const impl::RecvQueue<Nic> q(qp);
  impl::advance_alone(q, next);
  q.announce(next);
}

template <class Nic>
WV_DEVICE Status poll_cq_once(const QpOf<Nic>& qp, u64& completed) {
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
template <class Nic>
WV_DEVICE Status poll_cq(const QpOf<Nic>& qp, u64 upto, Timeout timeout) {
  return impl::await_send<false, false>(qp, upto, wait_for::completion,
                                        impl::deadline_of(qp, timeout))
      .status;
}
template <class Nic>
WV_DEVICE Status poll_cq(const QpOf<Nic>& qp, Posted posted, Timeout timeout) {
  return posted.ok() ? poll_cq(qp, posted.end(), timeout) : posted.status;
}
template <class Nic>
WV_DEVICE void update_cq_dbrec(const QpOf<Nic>& qp) {
  if (qp.send_cq.mode == cq_mode::collapsed) return;
  const u64 ci = load<order::acquire, scope::gpu>(&impl::state_of(qp)->sq.cq_ci);
  Nic::return_cqes(qp.send_cq, ci);
}

}  // namespace wv
