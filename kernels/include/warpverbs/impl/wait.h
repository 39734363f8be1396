// Waiting: bounded by a deadline, quiet on PCIe, and with one poller per CQ.
#pragma once

#include "warpverbs/impl/drain.h"

namespace wv {
namespace impl {

struct Timer {
  u64 start;
  u64 limit;

  WV_DEVICE Timer(const Qp& qp, Deadline deadline)
      : start(now_ns()), limit(deadline.ns != 0 ? deadline.ns : qp.timeout_ns) {}
  WV_DEVICE bool expired() const { return now_ns() - start >= limit; }
};

// For those who only watch GPU memory. The abort word lies in host memory and is looked at rarely.
struct Patience {
  u32 rounds = 0;

  WV_DEVICE void rest() {
    pause(32u << (rounds < 6 ? rounds : 6));
    rounds += 1;
  }
  WV_DEVICE bool look_at_host() const { return rounds % 256 == 255; }
};

// The poll token: 0 free, 1 taken. Looks first, so that waiters do not fight over the line.
WV_DEVICE bool seize(QueueState* q) {
  return compare_exchange<order::acquire, scope::gpu>(&q->poll_token, 0, 1) == 0;
}
WV_DEVICE bool try_elect(QueueState* q) {
  return load<order::relaxed, scope::gpu>(&q->poll_token) == 0 && seize(q);
}
WV_DEVICE void resign(QueueState* q) {
  store<order::release, scope::gpu>(&q->poll_token, 0);
}

// Whether the newest reservation is one without a CQE, so that no CQE will ever tell about it.
// `unsignalled` is raised before such work is published; a reservation that is not yet so far
// makes this false, and true once it is.
WV_DEVICE bool tail_is_unsignalled(QueueState* q) {
  const u64 tail = load<order::relaxed, scope::gpu>(&q->unsignalled);
  return tail != 0 && tail == load<order::relaxed, scope::gpu>(&q->reserved);
}

struct Waited {
  Status status;
  // The wait stopped early: somebody must post a signalled WQE first.
  bool needs_tail;
};

// The elected poller's part. Returns with the token still held.
template <bool StopAtTail, bool ReturnCqes>
WV_DEVICE Waited poll_until(const Qp& qp, u64 upto, const Timer& timer, u64& done,
                            Expected expected) {
  QueueState* q = &state_of(qp)->sq;
  for (u32 turn = 0;; ++turn) {
    const Status status = drain_send<ReturnCqes>(qp, done, expected);
    if (!status.ok()) return {status, false};
    if (done >= upto) return {Status{}, false};
    if (turn % 16 == 15) {
      const Status error = error_of(state_of(qp));
      if (!error.ok()) return {error, false};
      if (host_aborts(qp)) return {Status::of(outcome::aborted), false};
    }
    // Not every time: the CQ may lie across PCIe, and looks at it should follow one another.
    if (turn % 8 == 1) {
      if (StopAtTail && tail_is_unsignalled(q)) return {Status{}, true};
      if (timer.expired()) return {Status::of(outcome::timeout), false};
    }
    pause(0);
  }
}

// Waits until `completed` of the send queue is at least `upto`.
template <bool StopAtTail, bool ReturnCqes>
WV_DEVICE Waited await_send(const Qp& qp, u64 upto, wait_for what, Deadline deadline,
                            Expected expected = {}) {
  PostState* state = state_of(qp);
  QueueState* q = &state->sq;
  const Timer timer(qp, deadline);
  Patience patience;
  Waited waited{};
  u64 done = 0;
  // Who has just posted alone does not expect to find it done: it goes for the token at once.
  bool elected = expected.known() && seize(q);
  for (;;) {
    if (!elected) {
      // Acquire, pairs with the release in drain_send.
      done = load<order::acquire, scope::gpu>(&q->completed);
      if (done >= upto) return waited;
      waited.status = error_of(state);
      if (!waited.status.ok()) return waited;
      elected = try_elect(q);
    }
    if (elected) {
      // The last poller may have moved it between our look and our election.
      done = load<order::relaxed, scope::gpu>(&q->completed);
      if (expected.known() || done < upto) {
        waited = poll_until<StopAtTail, ReturnCqes>(qp, upto, timer, done, expected);
      }
      resign(q);
      break;
    }
    if (patience.look_at_host() && host_aborts(qp)) {
      waited.status = Status::of(outcome::aborted);
      break;
    }
    if (timer.expired()) {
      waited.status = Status::of(outcome::timeout);
      break;
    }
    patience.rest();
  }
  const outcome kind = waited.status.kind();
  if (kind == outcome::timeout || kind == outcome::aborted) {
    record_fault(qp, waited.status, what, upto, done);
  }
  return waited;
}

}  // namespace impl
}  // namespace wv
