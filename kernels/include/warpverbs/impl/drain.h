// Step 5 of the posting protocol: what the CQ says now. Callers hold the queue's poll token.
//
// Order: the NIC reads a WQE and writes payload, then writes the CQE; the poller's system-scope
// acquire of the CQE's last 8 bytes pairs with that, and its gpu-scope release of `completed`
// hands both on to whoever acquires `completed`: posters that reuse the slot, waiters that read
// what a READ or an atomic brought.
#pragma once

#include "warpverbs/impl/fault.h"
#include "warpverbs/mlx5/cqe.h"

namespace wv {
namespace impl {

WV_DEVICE mlx5::CqeTail cqe_tail(u64 cqe) {
  return {load<order::acquire, scope::system>(at<u64>(cqe + mlx5::cqe_tail_offset))};
}

WV_DEVICE u32 cqe_word(u64 cqe, u32 offset) {
  return load<order::relaxed, scope::system>(at<u32>(cqe + offset));
}

WV_DEVICE u64 cqe_address(const Cq& cq, u64 ci) {
  return cq.buf + (ci & ((u64{1} << cq.log_size) - 1)) * mlx5::cqe_bytes;
}

WV_DEVICE Status claim_cqe_error(PostState* state, u64 cqe, mlx5::CqeTail tail) {
  const mlx5::CqeSyndrome syndrome{cqe_word(cqe, mlx5::cqe_syndrome_offset)};
  return claim_error(state, ErrorWord::pack(static_cast<u8>(tail.opcode()), syndrome.code(),
                                            syndrome.vendor(), tail.wqe_opcode(),
                                            tail.wqe_counter()));
}

// Everything is read before the NIC may reuse the entries.
WV_DEVICE void return_cqes(const Cq& cq, u64 ci) {
  store<order::release, scope::system>(at<u32>(cq.dbr), mlx5::cq_set_ci(ci));
}

// A WQE of one WQEBB that the caller has posted and waits for: its completion says all without a
// look at GPU memory, which a lone post would wait for. None by default.
struct Expected {
  u64 index = ~u64{0};
  WV_DEVICE bool known() const { return index != ~u64{0}; }
};

// `done` moved past the WQE that a completion names, or as it was if the completion is none of a
// WQE in flight: older than `done`, or never rung.
WV_DEVICE u64 past_wqe(const Qp& qp, QueueState* q, u64 done, u16 wqe_counter, Expected expected) {
  // No older completion has these 16 bits: a ring is at most half as long as they count.
  if (expected.known() && wqe_counter == static_cast<u16>(expected.index)) return expected.index + 1;
  const u64 published = load<order::relaxed, scope::gpu>(&q->published);
  const auto newest = mlx5::collapsed_index(done, published, wqe_counter);
  if (!newest.some) return done;
  const u64 slot = newest.index & ((u64{1} << qp.log_sq) - 1);
  return newest.index + load<order::relaxed, scope::gpu>(at<u8>(qp.sq_span) + slot);
}

// One look at the send queue's completions; raises `done` and `completed` to what they say.
template <bool ReturnCqes>
WV_DEVICE Status drain_send(const Qp& qp, u64& done, Expected expected = {}) {
  PostState* state = state_of(qp);
  QueueState* q = &state->sq;
  const u64 before = done;
  Status status;
  if (qp.send_cq.mode == cq_mode::collapsed) {
    const mlx5::CqeTail tail = cqe_tail(qp.send_cq.buf);
    if (tail.is_error()) return claim_cqe_error(state, qp.send_cq.buf, tail);
    if (!tail.is_invalid()) done = past_wqe(qp, q, done, tail.wqe_counter(), expected);
  } else {
    const u64 from = load<order::relaxed, scope::gpu>(&q->cq_ci);
    const u64 most = from + (u64{1} << qp.send_cq.log_size);
    u64 ci = from;
    while (ci != most && status.ok()) {
      const u64 cqe = cqe_address(qp.send_cq, ci);
      const mlx5::CqeTail tail = cqe_tail(cqe);
      if (!mlx5::owned_by_software(tail, ci, qp.send_cq.log_size)) break;
      ci += 1;
      if (tail.is_error()) status = claim_cqe_error(state, cqe, tail);
      else done = past_wqe(qp, q, done, tail.wqe_counter(), expected);
    }
    if (ci != from) {
      store<order::relaxed, scope::gpu>(&q->cq_ci, ci);
      if (ReturnCqes) return_cqes(qp.send_cq, ci);
    }
  }
  if (done != before) store<order::release, scope::gpu>(&q->completed, done);
  return status;
}

}  // namespace impl
}  // namespace wv
