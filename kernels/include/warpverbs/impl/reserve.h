// Steps 1 and 2 of the posting protocol: reserve, and wait for room.
//
// Signalling: a CQE retires everything before it, and room is made by CQEs alone. A WQE that ends
// on a quarter of the ring or spans one is always signalled, so two CQEs are
// never further apart than a quarter and a WQE; and one reservation takes at most half the ring.
// A waiter at `base` needs completed ≥ base + n − depth, which is then below the last CQE before
// `base`: it cannot starve.
#pragma once

#include "warpverbs/impl/publish.h"
#include "warpverbs/impl/wait.h"

namespace wv {
namespace impl {

template <class Nic>
WV_DEVICE bool must_signal(const SendQueue<Nic>& q, u64 index, u32 wqebbs) {
  const u32 log_quarter = q.log_depth - 2;
  return index >> log_quarter != (index + wqebbs) >> log_quarter;
}

struct Reserved {
  Status status;
  u64 base;
  token_is token;
  u32 packet;  // the first packet number, where posters count them
};

// A poster that gives up after it has reserved leaves a hole. Nothing behind it will be rung, so
// the queue is declared dead: everybody else returns `aborted` at once.
WV_DEVICE void abandon(PostState* state, u64 base) {
  (void)claim_error(state, Status::of(outcome::aborted), static_cast<u16>(base));
}

// Waits for room for [base, base + n), which is reserved already. Nobody may hold the token while it
// waits: the work that makes room may need a ring.
template <class Nic>
WV_DEVICE Status wait_for_room(const QpOf<Nic>& qp, u64 base, u32 n, bool holds_token,
                               Deadline deadline) {
  if (holds_token) combine(SendQueue<Nic>(qp), Alone{}, 1);
  const u64 room = (u64{1} << qp.log_sq) - Nic::unused;
  const Status status =
      await_send<false, true>(qp, base + n - room, wait_for::send_room, deadline).status;
  if (!status.ok()) abandon(state_of(qp), base);
  return status;
}

// Takes n indexes, with `packets` packets, if there is room now; nothing is taken otherwise. `refresh`
// may raise `completed`; it is called once.
template <class Queue, class Refresh>
WV_DEVICE Reserved try_reserve(const Queue& q, u32 n, u32 packets, Refresh refresh) {
  using Counter = typename Queue::Counter;
  QueueState* c = q.counters();
  Reserved r{};
  bool refreshed = false;
  u64 word = load<order::relaxed, scope::gpu>(&c->reserved);
  for (;;) {
    r.status = error_of(q.state);
    if (!r.status.ok()) return r;
    const u64 done = load_poll_word(c).completed();
    r.base = Counter::index_of(word, done);
    if (r.base + n > done + q.room()) {
      if (refreshed) {
        r.status = Status::of(outcome::no_room);
        return r;
      }
      refreshed = true;
      refresh();
      continue;
    }
    const u64 next = word + Counter::amount(n, packets);
    const u64 now = compare_exchange<order::relaxed, scope::gpu>(&c->reserved, word, next);
    if (now == word) {
      r.packet = Counter::packet_of(word, r.base);
      return r;
    }
    word = now;
  }
}

template <class Nic>
WV_DEVICE Reserved try_reserve_send(const QpOf<Nic>& qp, const SendQueue<Nic>& q, u32 n,
                                    u32 packets) {
  return try_reserve(q, n, packets, [&] {
    (void)if_unlocked(q.counters(), [&](u64& done) { (void)drain_send<true>(qp, done); });
  });
}

// Takes n WQEBBs, at most half the ring, and waits for room. `eager`: also tries for the ring token,
// for a poster that is probably alone. Two trips to the L2: the atomics are in flight together, and
// then the loads.
template <class Until, class Nic>
WV_DEVICE Reserved reserve(const QpOf<Nic>& qp, const SendQueue<Nic>& q, u32 n, u32 packets,
                           bool eager, Flags flags, Until until) {
  using Counter = typename Nic::Counter;
  if (flags.has(no_wait)) return try_reserve_send(qp, q, n, packets);
  QueueState* c = q.counters();
  Reserved r{};
  const u64 amount = Counter::amount(n, packets);
  const u64 word = fetch_add<order::relaxed, scope::gpu>(&c->reserved, amount);
  u64 published = 0;
  u64 reserved = 0;
  bool holds_token = false;
  if (eager) {
    // Acquire, pairs with the release of whoever held the token: that one's record, `published` and
    // doorbell before ours; and the reservations of those who gave it back.
    holds_token = compare_exchange<order::acquire, scope::gpu>(&c->ring_token, 0u, 1u) == 0;
    published = load<order::relaxed, scope::gpu>(&c->published);
    reserved = load<order::relaxed, scope::gpu>(&c->reserved);
  }
  r.status = error_of(q.state);
  // Acquire, pairs with the poller's release: the NIC's reads of these slots before our writes.
  const u64 done = load_poll_word(c).completed();
  r.base = Counter::index_of(word, done);
  r.packet = Counter::packet_of(word, r.base);
  // A poster behind us may have marked its work ready and found the token free before we took it: it
  // could not ring, because ours was missing, and left that to us. Its reservation is visible here.
  const bool alone = published == r.base && Counter::is_at(reserved, r.base + n);
  r.token = !holds_token ? token_is::not_held : alone ? token_is::alone : token_is::held;
  const bool room = r.base + n - done <= q.room();
  if (room && r.status.ok()) return r;
  const Status waited =
      wait_for_room(qp, r.base, n, holds_token, deadline_of(qp, until));
  if (r.status.ok()) r.status = waited;
  r.token = token_is::not_held;
  return r;
}

// Room in a receive queue is made by those who consume its completions, so a poster that waits
// takes nothing until there is room: giving up is harmless.
template <class Nic>
WV_DEVICE Reserved reserve_recv(const QpOf<Nic>& qp, const RecvQueue<Nic>& q, u32 n,
                                Deadline deadline) {
  Backoff backoff;
  for (;;) {
    Reserved r = try_reserve(q, n, 0, [] {});
    if (r.status.kind() != outcome::no_room) return r;
    const u64 done = load_poll_word(q.counters()).completed();
    r.status = pause_or_give_up(qp, backoff, deadline, wait_for::receive_room,
                                r.base + n - q.room(), done);
    if (!r.status.ok()) return r;
  }
}

}  // namespace impl
}  // namespace wv
