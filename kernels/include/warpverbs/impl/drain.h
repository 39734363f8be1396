// Step 5 of the posting protocol: read the CQ. Callers hold the queue's poll lock (wait.h).
//
// Order: the NIC reads a WQE and writes payload, then writes the CQE. The poller's system-scope
// acquire of the CQE's last 8 bytes pairs with that. Its gpu-scope release of the poll word hands
// both on to whoever acquires that word: posters that reuse the slot, waiters that read what a READ
// or an atomic brought, the next poller.
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

WV_DEVICE u64 cqe_address(u64 cqes, u32 log_size, u64 ci) {
  return cqes + (ci & ((u64{1} << log_size) - 1)) * mlx5::cqe_bytes;
}

// Claims the error of a queue pair from its CQE. A CQE of another kind is not understood, and
// nothing after it counts.
WV_DEVICE Status claim_cqe_error(PostState* state, u64 cqe, u64 raw_tail) {
  const mlx5::CqeTail tail{raw_tail};
  const mlx5::CqeSyndrome syndrome{cqe_word(cqe, mlx5::cqe_syndrome_offset)};
  const outcome kind = tail.opcode() == mlx5::cqe_opcode::req_err    ? outcome::requester
                       : tail.opcode() == mlx5::cqe_opcode::resp_err ? outcome::responder
                                                                     : outcome::bad_error;
  const Status status =
      Status::of(kind, syndrome.code(), syndrome.vendor(), tail.wqe_opcode());
  return claim_error(state, status, tail.wqe_counter());
}

// Gives the entries below `ci` back. Release: they are read before the NIC may overwrite them.
WV_DEVICE void return_cqes(const Cq& cq, u64 ci) {
  store<order::release, scope::system>(at<u32>(cq.dbr), mlx5::cq_set_ci(ci));
}

// The same for a poller that took those from `from` on, unless they can wait: rings are twice as long
// as the queues whose completions they take, and a fence of system scope is most of what a poll costs.
WV_DEVICE void return_cqes_in_time(const Cq& cq, u64 from, u64 ci) {
  if (mlx5::gives_back(from, ci, cq.log_size)) return_cqes(cq, ci);
}

// A WQE of one WQEBB that the caller has posted and waits for: its completion says all without a
// look at GPU memory, which a lone post would wait for. None by default.
struct Expected {
  u64 index = ~u64{0};
  WV_DEVICE bool known() const { return index != ~u64{0}; }
};

// `done` moved past the WQE that a completion names; unchanged if that WQE is not in flight: it was
// counted before, or the store of `published` is not to be seen yet.
WV_DEVICE u64 past_wqe(const Qp& qp, u64 done, u16 wqe_counter, Expected expected) {
  // From `done` on, no other WQE in flight has these 16 bits: a ring is at most half as long as
  // they count. An index below `done` may share them with a newer one.
  if (expected.known() && expected.index >= done &&
      wqe_counter == static_cast<u16>(expected.index)) {
    return expected.index + 1;
  }
  const u64 published = load<order::relaxed, scope::gpu>(&state_of(qp)->sq.published);
  const auto newest = mlx5::collapsed_index(done, published, wqe_counter);
  if (!newest.some) return done;
  const u64 slot = newest.index & ((u64{1} << qp.log_sq) - 1);
  return newest.index + load<order::relaxed, scope::gpu>(at<u8>(qp.sq_span) + slot);
}

// Takes the entries of a ring CQ in order. It stops at one that cannot be counted yet, which stays
// in the CQ for the next look, and fails the queue at one that never can be: it names no WQE that
// the ring could hold.
template <bool ReturnCqes>
WV_DEVICE Status drain_ring(const Qp& qp, u64& done, Expected expected) {
  PostState* state = state_of(qp);
  QueueState* q = &state->sq;
  const u64 from = load<order::relaxed, scope::gpu>(&q->cq_ci);
  const u64 most = from + (u64{1} << qp.send_cq.log_size);
  u64 ci = from;
  Status status;
  // A caller that waits for one WQE goes on as soon as that is counted: one more look at a CQ across
  // PCIe would cost it a microsecond, and finds nothing where it posts alone.
  while (ci != most && status.ok() && done <= expected.index) {
    const u64 cqe = cqe_address(qp.send_cq.buf, qp.send_cq.log_size, ci);
    const mlx5::CqeTail tail = cqe_tail(cqe);
    if (!mlx5::owned_by_software(tail, ci, qp.send_cq.log_size)) break;
    if (tail.is_error()) {
      status = claim_cqe_error(state, cqe, tail.raw);
    } else {
      const u64 next = past_wqe(qp, done, tail.wqe_counter(), expected);
      if (next <= done) {
        if (mlx5::widen(done, tail.wqe_counter()) < done + (u64{1} << qp.log_sq)) break;
        const Status stray = Status::of(outcome::stray_cqe, 0, 0, tail.wqe_opcode());
        status = claim_error(state, stray, tail.wqe_counter());
      } else {
        done = next;
      }
    }
    ci += 1;
  }
  if (ci != from) {
    store<order::relaxed, scope::gpu>(&q->cq_ci, ci);
    if (ReturnCqes) return_cqes_in_time(qp.send_cq, from, ci);
  }
  return status;
}

// One look at the send queue's completions; raises `done` to what they say. The caller stores it.
template <bool ReturnCqes>
WV_DEVICE Status drain_send(const Qp& qp, u64& done, Expected expected = {}) {
  if (qp.send_cq.mode != cq_mode::collapsed) return drain_ring<ReturnCqes>(qp, done, expected);
  const mlx5::CqeTail tail = cqe_tail(qp.send_cq.buf);
  if (tail.is_error()) return claim_cqe_error(state_of(qp), qp.send_cq.buf, tail.raw);
  // The one entry of a collapsed CQ stays after it was counted, so finding no new one is not an
  // error.
  if (!tail.is_invalid()) done = past_wqe(qp, done, tail.wqe_counter(), expected);
  return Status{};
}

}  // namespace impl
}  // namespace wv
