// Waiting: bounded by a deadline, with one poller per CQ and the others watching GPU memory.
#pragma once

#include "warpverbs/impl/drain.h"

namespace wv {
namespace impl {

// When a call gives up, on the device's clock. A call makes one, before its first wait, and every
// wait of the call goes by it.
struct Deadline {
  u64 end;

  WV_DEVICE bool passed() const { return now_ns() >= end; }
};
// `usual`: nanoseconds of a call that names no timeout.
WV_DEVICE Deadline deadline_within(Timeout timeout, u64 usual) {
  const u64 now = now_ns();
  const u64 end = now + (timeout.ns != 0 ? timeout.ns : usual);
  return Deadline{end >= now ? end : ~u64{0}};
}
template <class Nic>
WV_DEVICE Deadline deadline_of(const QpOf<Nic>& qp, Timeout timeout) {
  return deadline_within(timeout, qp.timeout_ns);
}
template <class Nic>
WV_DEVICE Deadline deadline_of(const QpOf<Nic>&, Deadline deadline) { return deadline; }

// Posting takes a Timeout, or the Deadline of a call that has begun to wait. Lanes post together if
// they may wait about as long.
WV_DEVICE u64 patience_of(Timeout timeout) { return timeout.ns; }
WV_DEVICE u64 patience_of(Deadline deadline) { return deadline.end >> 20; }

// Pauses of growing length between looks at GPU memory. The abort word lies in host memory and is
// looked at rarely.
struct Backoff {
  u32 rounds = 0;

  WV_DEVICE void pause_once() { pause_behind(0); }
  // `ahead`: how many WQEBBs must complete before the caller's turn. A pause lasts at most twice what
  // is asked for, and no queue completes a WQEBB in two nanoseconds, so that turn is not missed.
  // Waiters far behind must stay away: thousands that look at one word hold up its writer, the poller.
  WV_DEVICE void pause_behind(u64 ahead) {
    constexpr u32 longest = 1u << 14;
    const u32 usual = 32u << (rounds < 4 ? rounds : 4);
    pause(ahead <= usual ? usual : ahead < longest ? static_cast<u32>(ahead) : longest);
    rounds += 1;
  }
  WV_DEVICE bool look_at_host() const { return rounds % 256 == 255; }
};

// One turn of a wait that is not for the send CQ: pauses, or says why the wait must end.
template <class Nic>
WV_DEVICE Status pause_or_give_up(const QpOf<Nic>& qp, Backoff& backoff, Deadline deadline,
                                  wait_for what, u64 expected, u64 actual) {
  const bool late = deadline.passed();
  if (late || (backoff.look_at_host() && host_aborts(at<u32>(qp.abort)))) {
    const Status status = Status::of(late ? outcome::timeout : outcome::aborted);
    record_fault(state_of(qp), qp.qpn, status, what, expected, actual);
    return status;
  }
  backoff.pause_once();
  return Status{};
}

WV_DEVICE PollWord load_poll_word(QueueState* q) {
  // Acquire, pairs with the poller's release: see drain.h.
  return PollWord{load<order::acquire, scope::gpu>(&q->poll)};
}

// Takes the poll lock if it is free; `done` is then `completed`, and nobody else changes it.
// Acquire, pairs with the last poller's unlock: `cq_ci`, and what that poller saw of the CQ.
WV_DEVICE bool try_lock(QueueState* q, u64& done) {
  const PollWord was{fetch_or<order::acquire, scope::gpu>(&q->poll, u64{1})};
  if (was.locked()) return false;
  done = was.completed();
  return true;
}
// Publishes `done` as `completed`; the first keeps the lock, the second gives it back.
WV_DEVICE void raise_completed(QueueState* q, u64 done) {
  store<order::release, scope::gpu>(&q->poll, PollWord::of(done, true).raw);
}
WV_DEVICE void unlock(QueueState* q, u64 done) {
  store<order::release, scope::gpu>(&q->poll, PollWord::of(done, false).raw);
}

// Calls `body(done)`, which may raise `done`, if no other thread polls the queue: one that does is at
// work, and nobody waits for it. `body` does not wait either.
template <class Body>
WV_DEVICE bool if_unlocked(QueueState* q, Body body) {
  const Unbroken section(lane_bit(lane_id()));
  u64 done = 0;
  const bool locked = try_lock(q, done);
  if (locked) {
    body(done);
    unlock(q, done);
  }
  return locked;
}

// Whether the newest reservation is one without a CQE, so that no CQE will ever report it.
// `unsignalled` is raised before such work is published. A poster that has reserved and not raised
// it yet makes this false now and true later.
template <class Nic>
WV_DEVICE bool tail_is_unsignalled(const QpOf<Nic>& qp) {
  const QueueState* q = &state_of(qp)->sq;
  const u64 tail = load<order::relaxed, scope::gpu>(&q->unsignalled);
  return tail != 0 && Nic::Counter::is_at(load<order::relaxed, scope::gpu>(&q->reserved), tail);
}

// The next index of the send queue.
template <class Nic>
WV_DEVICE u64 next_index(const QpOf<Nic>& qp) {
  QueueState* q = &state_of(qp)->sq;
  const u64 word = load<order::relaxed, scope::gpu>(&q->reserved);
  if constexpr (!Nic::Counter::counts_packets) return word;
  else return Nic::Counter::index_of(word, load_poll_word(q).completed());
}

struct Waited {
  Status status;
  // The wait stopped early: a signalled WQE must be posted first.
  bool needs_tail;
};

// The poller's part. Returns with the lock still held.
template <bool StopAtTail, bool ReturnCqes, class Nic>
WV_DEVICE Waited poll_until(const QpOf<Nic>& qp, u64 upto, Deadline deadline, u64& done,
                            Expected expected) {
  PostState* state = state_of(qp);
  QueueState* q = &state->sq;
  for (u32 turn = 0;; ++turn) {
    const u64 before = done;
    const Status status = drain_send<ReturnCqes>(qp, done, expected);
    if (!status.ok()) return {status, false};
    if (done >= upto) return {Status{}, false};
    if (done != before) raise_completed(q, done);
    if (turn % 16 == 15) {
      const Status error = error_of(state);
      if (!error.ok()) return {error, false};
      if (host_aborts(at<u32>(qp.abort))) return {Status::of(outcome::aborted), false};
    }
    // Not every time: the CQ may lie across PCIe, and looks at it should follow one another.
    if (turn % 8 == 1) {
      if (StopAtTail && tail_is_unsignalled(qp)) return {Status{}, true};
      if (deadline.passed()) return {Status::of(outcome::timeout), false};
    }
    pause(0);
  }
}

// Waits until `completed` of the send queue is at least `upto`.
template <bool StopAtTail, bool ReturnCqes, class Nic>
WV_DEVICE Waited await_send(const QpOf<Nic>& qp, u64 upto, wait_for what, Deadline deadline,
                            Expected expected = {}) {
  PostState* state = state_of(qp);
  QueueState* q = &state->sq;
  Backoff backoff;
  Waited waited{};
  u64 done = 0;
  bool told = false;
  // Work that was posted alone a moment ago is hardly done yet: its waiter tries for the lock at
  // once, unless a lane that does not get it would wait for one that does.
  bool locked = !lockstep() && expected.known() && try_lock(q, done);
  repeat(qp.state, patience_of(deadline), WV_SITE, [&](bool polls) {
    if (!locked) {
      const PollWord now = load_poll_word(q);
      done = now.completed();
      told = done >= upto;
      if (told) return true;
      waited.status = error_of(state);
      told = !waited.status.ok();
      if (told) return true;
      locked = polls && !now.locked() && try_lock(q, done);
    }
    if (locked) {
      // Somebody may have raised `completed` between our look and our lock.
      if (done < upto) {
        waited = poll_until<StopAtTail, ReturnCqes>(qp, upto, deadline, done, expected);
      }
      unlock(q, done);
      return true;
    }
    if (backoff.look_at_host() && host_aborts(at<u32>(qp.abort))) {
      waited.status = Status::of(outcome::aborted);
      return true;
    }
    if (deadline.passed()) {
      waited.status = Status::of(outcome::timeout);
      return true;
    }
    backoff.pause_behind(upto - done);
    return false;
  });
  if (told) return waited;
  const outcome kind = waited.status.kind();
  if (kind == outcome::timeout || kind == outcome::aborted) {
    record_fault(state, qp.qpn, waited.status, what, upto, done);
  }
  return waited;
}

}  // namespace impl
}  // namespace wv
