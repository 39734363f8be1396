// Step 5 of the posting protocol: read the CQ. Callers hold the queue's poll lock (wait.h).
//
// Order: the NIC reads a WQE and writes payload, then writes the CQE. The poller's system-scope
// acquire of the CQE's last 8 bytes pairs with that. Its gpu-scope release of the poll word hands
// both on to whoever acquires that word: posters that reuse the slot, waiters that read what a READ
// or an atomic brought, the next poller.
#pragma once

#include "warpverbs/impl/bnxt.h"
#include "warpverbs/impl/fault.h"
#include "warpverbs/impl/ionic.h"
#include "warpverbs/impl/mlx5.h"

namespace wv {
namespace impl {

template <class Nic>
WV_DEVICE u64 cqe_address(const Cq& cq, u64 ci) {
  return cq.buf + (ci & ((u64{1} << cq.log_size) - 1)) * Nic::cqe_bytes;
}

// Claims the error of a queue pair from its CQE; `done` is what came before.
template <class Nic>
WV_DEVICE Status claim_cqe_error(PostState* state, u64 cqe, typename Nic::Tail tail, u64 done) {
  return claim_error(state, Nic::failure(cqe, tail), Nic::counter(tail, done));
}

// Gives the entries below `ci` back, unless they can wait: rings are twice as long as the queues whose
// completions they take, and a fence of system scope is most of what a poll costs. Release: the entries
// from `from` on are read before the NIC may overwrite them.
template <class Nic>
WV_DEVICE void return_cqes_in_time(const Cq& cq, u64 from, u64 ci) {
  if (mlx5::gives_back(from, ci, cq.log_size)) Nic::return_cqes(cq, ci);
}

// A WQE of one WQEBB that the caller has posted and waits for: its completion says all without a
// look at GPU memory, which a lone post would wait for. None by default.
struct Expected {
  u64 index = ~u64{0};
  WV_DEVICE bool known() const { return index != ~u64{0}; }
};

// `done` moved past the WQE that a completion names; unchanged if that WQE is not in flight: it was
// counted before, or the store of `published` is not to be seen yet.
template <class Nic>
WV_DEVICE u64 past_wqe(const QpOf<Nic>& qp, u64 done, u64 cqe, typename Nic::Tail tail,
                       Expected expected) {
  // From `done` on, no other WQE in flight has the bits that the CQE tells: a ring is at most half as
  // long as they count. An index below `done` may share them with a newer one.
  if (expected.known() && expected.index >= done && Nic::names(cqe, tail, expected.index)) {
    return expected.index + 1;
  }
  const u64 published = load<order::relaxed, scope::gpu>(&state_of(qp)->sq.published);
  const u64 newest = Nic::index_in(cqe, tail, done);
  return newest < published ? newest + Nic::span(qp, newest) : done;
}

// Takes the entries of a ring CQ in order. It stops at one that cannot be counted yet, which stays
// in the CQ for the next look, and fails the queue at one that never can be: it names no WQE that
// the ring could hold.
template <bool ReturnCqes, class Nic>
WV_DEVICE Status drain_ring(const QpOf<Nic>& qp, u64& done, Expected expected) {
  PostState* state = state_of(qp);
  QueueState* q = &state->sq;
  const u64 from = load<order::relaxed, scope::gpu>(&q->cq_ci);
  const u64 most = from + (u64{1} << qp.send_cq.log_size);
  u64 ci = from;
  Status status;
  // A caller that waits for one WQE goes on as soon as that is counted: one more look at a CQ across
  // PCIe would cost it a microsecond, and finds nothing where it posts alone.
  while (ci != most && status.ok() && done <= expected.index) {
    const u64 cqe = cqe_address<Nic>(qp.send_cq, ci);
    const typename Nic::Tail tail = Nic::look(cqe);
    if (!Nic::is_new(tail, ci, qp.send_cq.log_size)) break;
    if (tail.is_error()) {
      status = claim_cqe_error<Nic>(state, cqe, tail, done);
    } else {
      const u64 next = past_wqe(qp, done, cqe, tail, expected);
      if (next <= done) {
        if (Nic::index_in(cqe, tail, done) < done + (u64{1} << qp.log_sq)) break;
        status = claim_error(state, Nic::stray(tail), Nic::counter(tail, done));
      } else {
        done = next;
      }
    }
    ci += 1;
  }
  if (ci != from) {
    store<order::relaxed, scope::gpu>(&q->cq_ci, ci);
    if (ReturnCqes) return_cqes_in_time<Nic>(qp.send_cq, from, ci);
  }
  return status;
}

// One look at the send queue's completions; raises `done` to what they say. The caller stores it.
template <bool ReturnCqes, class Nic>
WV_DEVICE Status drain_send(const QpOf<Nic>& qp, u64& done, Expected expected = {}) {
  if constexpr (Nic::collapses) {
    if (qp.send_cq.mode == cq_mode::collapsed) {
      const u64 cqe = qp.send_cq.buf;
      const typename Nic::Tail tail = Nic::look(cqe);
      if (tail.is_error()) return claim_cqe_error<Nic>(state_of(qp), cqe, tail, done);
      // The one entry of a collapsed CQ stays after it was counted, so finding no new one is not an
      // error.
      if (!tail.is_invalid()) done = past_wqe(qp, done, cqe, tail, expected);
      return Status{};
    }
  }
  return drain_ring<ReturnCqes>(qp, done, expected);
}

}  // namespace impl
}  // namespace wv
