// Step 4 of the posting protocol: publish by combining. The same for send and receive queues.
//
// Why one gpu-scope release is enough, whoever rings (PTX memory model; C++ likewise):
//   every lane's plain stores to its WQEs
//     → sync_warp(group), which orders memory among its lanes
//     → the leader's release (gpu) of the ready bits
//     → the combiner's acquire (gpu) of those bits
//     → the combiner's release (system) of the doorbell
//     → the NIC's acquire of the doorbell, then its reads of the WQEs.
// Each arrow is causality order and that order is transitive. Posters and combiner are on one GPU,
// so gpu scope is morally strong between them; only the last pair needs system scope.
//
// Why nobody's work stays unrung: a poster flips its bits, then adds to the token (acq_rel). Its
// addition is either part of the value the combiner last saw, and the acquire of that value shows
// it the bits on its next pass; or it makes the combiner's compare-and-swap to 0 fail, and there is
// a next pass. No sequentially consistent fence is needed. offer_token says why that also holds
// when one combiner hands over to another.
//
// Lap parity: a slot's ready bit starts at 0 and is flipped once a lap, so on an even lap 1 means
// ready and on an odd lap 0. Nobody clears a bit. A bit of two laps ago cannot be taken for ready:
// `published` went past its flip of the last lap, and its reader hands on what it saw.
#pragma once

#include "warpverbs/impl/queue.h"

namespace wv {
namespace impl {

// The lanes that publish together, and the caller's place among them.
struct Group {
  lane_mask mask;
  u32 count;
  u32 rank;
  u32 leader;

  explicit WV_DEVICE Group(lane_mask lanes)
      : mask(lanes), count(popcount(lanes)), rank(rank_in(lanes)), leader(lowest_bit(lanes)) {}
  WV_DEVICE lane_mask lanes() const { return mask; }
  WV_DEVICE bool leads() const { return rank == 0; }
  template <class T>
  WV_DEVICE T from_leader(T value) const {
    return count == 1 ? value : shfl(mask, value, leader);
  }
  WV_DEVICE bool any(bool mine) const { return count == 1 ? mine : ballot(mask, mine) != 0; }
  WV_DEVICE void sync() const {
    if (count != 1) sync_warp(mask);
  }
};

// A lane by itself: the same without collectives, each of which would be code that never runs.
struct Alone {
  static constexpr u32 count = 1;
  static constexpr u32 rank = 0;

  WV_DEVICE lane_mask lanes() const { return lane_bit(lane_id()); }
  WV_DEVICE bool leads() const { return true; }
  template <class T>
  WV_DEVICE T from_leader(T value) const {
    return value;
  }
  WV_DEVICE bool any(bool mine) const { return mine; }
  WV_DEVICE void sync() const {}
};

// Of lanes that look at one chunk each, in the order of their ranks: where the ready run ends, and
// whether all of them found their chunk full.
struct ReadyRun {
  u64 end;
  bool full;
};
WV_DEVICE ReadyRun first_end(const Group& group, ReadyRun mine) {
  if (group.count == 1) return mine;
  const lane_mask stop = ballot(group.mask, !mine.full);
  const u32 lane = stop == 0 ? highest_bit(group.mask) : lowest_bit(stop);
  return {shfl(group.mask, mine.end, lane), stop == 0};
}
WV_DEVICE ReadyRun first_end(const Alone&, ReadyRun mine) { return mine; }

// Flips the ready bits of [base, base + n), the last word first: readers go upwards and must not
// find the head of a WQE ready while its rest is not.
template <order O, class Queue>
WV_DEVICE void mark_ready(const Queue& q, u64 base, u64 n) {
  u64 end = base + n;
  do {
    const u64 last = (end - 1) & (q.depth() - 1);
    const u32 bit = static_cast<u32>(last & 63);
    const u64 room = u64{bit} + 1, wanted = end - base;
    const u32 run = static_cast<u32>(wanted < room ? wanted : room);
    const u64 bits = ~u64{0} >> (64 - run) << (bit + 1 - run);
    flip<O, scope::gpu>(q.ready + last / 64, bits);
    end -= run;
  } while (end != base);
}

WV_DEVICE u32 trailing_ones(u64 x) { return x == ~u64{0} ? 64 : lowest_bit(~x); }

// The chunk of the ready bitmap that contains `from`, or the `ahead`-th one after it: where its
// ready run that begins at max(from, its start) ends.
template <class Queue>
WV_DEVICE ReadyRun ready_run(const Queue& q, u64 from, u32 ahead) {
  const u32 log_chunk = q.log_depth < 7 ? q.log_depth : 7;
  const u64 start = ((from >> log_chunk) + ahead) << log_chunk;
  // A slot's bit means something only once its flip of the lap before has been seen. That is known
  // below `from`, so one look covers no more than the ring.
  if (ahead >= q.depth() >> log_chunk) return {start, false};
  const u64 slot = start & (q.depth() - 1);
  // Acquire, pairs with mark_ready.
  vec16 bits;
  if (log_chunk == 7) {
    bits = load16<order::acquire, scope::gpu>(q.ready + slot / 64);
  } else {
    bits = {load<order::acquire, scope::gpu>(q.ready + slot / 64), 0};
  }
  const u64 odd_lap = u64{0} - (start >> q.log_depth & 1);
  u64 lo = bits.lo ^ odd_lap;
  u64 hi = bits.hi ^ odd_lap;
  if (ahead == 0) {
    const u32 skip = static_cast<u32>(from - start);
    lo |= skip >= 64 ? ~u64{0} : (u64{1} << skip) - 1;
    if (skip > 64) hi |= (u64{1} << (skip - 64)) - 1;
  }
  u32 run = trailing_ones(lo);
  if (run == 64) run += trailing_ones(hi);
  const u32 chunk = 1u << log_chunk;
  const bool full = run >= chunk;
  return {start + (full ? chunk : run), full};
}

// The first index at or after `from` that is not ready. All lanes of the group look at once, one
// 16-byte load each.
template <class Queue, class Lanes>
WV_DEVICE u64 ready_until(const Queue& q, const Lanes& group, u64 from) {
  u64 at = from;
  for (;;) {
    const ReadyRun run = first_end(group, ready_run(q, at, group.rank));
    // Words are read in no particular order. Where the run ends with a word, the next one may have
    // been read before its bits were flipped, and a WQE that spans both would be cut: look again.
    // One look does not go beyond the ring, whose end may come before that of a word.
    const u64 word = q.depth() < 64 ? q.depth() : 64;
    const bool cut = !run.full && (run.end & (word - 1)) == 0 && run.end != at;
    at = run.end;
    if (!run.full && !cut) return at;
    group.sync();
  }
}

// The ring token is 0 while nobody holds it, `token_offered`, or the number of times that its holder
// was asked to ring.

// For a combiner that others never let go. A poster that asks while the token is offered finds
// `token_offered` and takes over; false then. True: nobody came, and the caller holds the token
// still. Exactly one of the two changes the word, so there is one holder; and its acquire shows it
// all the bits whose posters had asked before the offer, so their work is rung.
WV_DEVICE bool offer_token(u32* token) {
  (void)exchange<order::acq_rel, scope::gpu>(token, token_offered);
  pause(100);
  return compare_exchange<order::acq_rel, scope::gpu>(token, token_offered, 1u) == token_offered;
}

// The combiner, who holds the ring token: rings for everything that is ready until no other thread
// has asked again. `seen` is the token's value when the caller took it.
template <class Queue, class Lanes>
WV_DEVICE void combine(const Queue& q, const Lanes& group, u32 seen) {
  QueueState* c = q.counters();
  // Only combiners write `published`, and the token orders one after another.
  u64 from = 0;
  if (group.leads()) from = load<order::relaxed, scope::gpu>(&c->published);
  from = group.from_leader(from);
  u32 passes = 0;
  u32 asked_again = 0;
  do {
    // The leader's acquire of the token before the other lanes' looks at the bits.
    group.sync();
    const u64 to = ready_until(q, group, from);
    // The lanes' acquires of the bits before the leader's release of the doorbell.
    group.sync();
    if (group.leads()) {
      if (to != from) q.announce(to);
      const u32 now = compare_exchange<order::acq_rel, scope::gpu>(&c->ring_token, seen, 0u);
      asked_again = now != seen;
      seen = now;
      passes += 1;
      if (asked_again && passes % most_passes == 0) {
        asked_again = offer_token(&c->ring_token);
        seen = 1;
      }
    }
    asked_again = group.from_leader(asked_again);
    from = to;
  } while (asked_again);
}

// How the poster of [base, base + n) stands to the ring token.
enum class token_is : u8 {
  not_held,
  held,   // taken before the WQEs were written, by a lane that posts alone
  alone,  // held; and everything before `base` had been rung, and nothing behind it was reserved
};

// Makes [base, base + n), written by the lanes of `group`, known to the NIC. On return the caller
// or the combiner has rung for it, or the combiner still will.
template <class Queue, class Lanes>
WV_DEVICE void publish(const Queue& q, const Lanes& group, u64 base, u64 n,
                       token_is token = token_is::not_held) {
  u32* word = &q.counters()->ring_token;
  u32 was = 0;
  u32 must_ring = 1;
  // Every lane's WQE before the leader's release.
  group.sync();
  if (group.leads()) {
    if (token == token_is::not_held) {
      // Release: the WQEs, and a higher word of bits, before a word of bits. Pairs with ready_run.
      mark_ready<order::release>(q, base, n);
      was = fetch_add<order::acq_rel, scope::gpu>(word, 1u);
      must_ring = was == 0 || was == token_offered;
    } else {
      // Its own work is all there is to ring for, and no bit need be read before the doorbell.
      if (token == token_is::alone) q.announce(base + n);
      // Read by this lane and by later combiners only, so the token carries them.
      mark_ready<order::relaxed>(q, base, n);
      if (token == token_is::alone) {
        must_ring = compare_exchange<order::acq_rel, scope::gpu>(word, 1u, 0u) != 1;
      }
    }
  }
  if (group.from_leader(must_ring)) combine(q, group, group.from_leader(was) + 1);
}

// Makes [base, base + n) ready and leaves the ringing to the next poster or waiter. A holder that
// takes the token after the look at it here acquires that look, so it sees the bits. An earlier one
// may have stopped in front of them with work of its own behind: then the token is held still, or
// its holder's release of it shows that more is reserved, and this poster rings like any other.
template <class Queue, class Lanes>
WV_DEVICE void publish_deferred(const Queue& q, const Lanes& group, u64 base, u64 n) {
  u32* word = &q.counters()->ring_token;
  u32 was = 0;
  u32 must_ring = 0;
  group.sync();
  if (group.leads()) {
    mark_ready<order::release>(q, base, n);
    was = fetch_add<order::acq_rel, scope::gpu>(word, 0u);
    const u64 reserved = load<order::relaxed, scope::gpu>(&q.counters()->reserved);
    if (was != 0 || !Queue::Counter::is_at(reserved, base + n)) {
      was = fetch_add<order::acq_rel, scope::gpu>(word, 1u);  // bits were released by the look
      must_ring = was == 0 || was == token_offered;
    }
  }
  if (group.from_leader(must_ring)) combine(q, group, group.from_leader(was) + 1);
}

}  // namespace impl
}  // namespace wv
