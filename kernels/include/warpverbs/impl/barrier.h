// Bodies of barrier.h. Each word has one writer per route, and only grows: the n-th call of the
// writer makes it n. So a rank that is ahead is never taken for one that is late.
#pragma once

#include "warpverbs/barrier.h"

namespace wv {
namespace impl {

// State that one thread needs for its rank's call.
struct Arrival {
  const Heap& heap;
  const Team& team;
  TeamBlock* block;
  u32 me;  // in the team
  HeapDeadline deadline;
  u64 call;  // of this rank, from 1

  WV_DEVICE u32 rank_of(u32 member) const { return team.first + member * team.stride; }
  // Counts this call, which counts even if it fails.
  WV_DEVICE void count() {
    call = load<order::relaxed, scope::gpu>(&block->calls) + 1;
    store<order::relaxed, scope::gpu>(&block->calls, call);
  }
  // The member behind `member`.
  WV_DEVICE u32 next(u32 member) const { return member + 1 == team.size ? 0 : member + 1; }
};

// Index of a rank in the team; team.size or more if it is not a member.
WV_DEVICE u32 member_of(const Team& team, u32 rank) {
  const u32 distance = rank - team.first;
  // Without the division that nearly no team needs.
  if (team.stride == 1) return distance;
  if (team.stride == 0 || rank < team.first || distance % team.stride != 0) return ~u32{0};
  return distance / team.stride;
}

// Whether ranks and block are there.
WV_DEVICE Status check_team(const Heap& heap, const Team& team, u32 me) {
  if (me >= team.size ||
      u64{team.first} + u64{team.stride} * (team.size - 1) >= fixed(heap.world)) {
    return Status::of(outcome::no_peer);
  }
  if (!holds_range(heap, team.block, sizeof(TeamBlock)) || team.block % alignof(Signal) != 0) {
    return Status::of(outcome::bad_address);
  }
  return Status{};
}

// Adds 1 to `word` of a member; relaxed, on the direct route.
template <class Route, bool Each>
WV_DEVICE Status tell(const Arrival& arrival, u32 member, Signal* word) {
  const Way way = way_to<Route>(arrival.heap, arrival.rank_of(member));
  if (!way.status.ok()) return way.status;
  if (Route::may_be_direct && way.direct) {
    signal_word<order::relaxed>(&way.at(word)->direct, SignalAdd{1});
  } else if constexpr (Route::may_be_rdma) {
    return signal_by_rdma<Each>(arrival.heap, way.peer, nullptr, word, 0, word, SignalAdd{1},
                                unsignalled, Timeout{});
  }
  return Status{};
}

WV_DEVICE Status await_member(Arrival& arrival, u32 member, const Signal* word) {
  const HeapWait wait{wait_for::barrier, arrival.rank_of(member), word, arrival.call};
  return await_word(
      arrival.heap, wait, arrival.deadline, [&] { return read_signal(word); },
      [&](u64 calls) { return calls >= arrival.call; });
}

// Everybody tells everybody: one flight.
template <class Route, bool Each>
WV_DEVICE Status meet_flat(Arrival& arrival) {
  // Release, pairs with the acquire of await_member; covers the relaxed adds below.
  wv::fence<order::release, scope::system>();
  Status status;
  for (u32 i = arrival.next(arrival.me); i != arrival.me && status.ok(); i = arrival.next(i)) {
    status = tell<Route, Each>(arrival, i, &arrival.block->from[arrival.me]);
  }
  // While the adds are in flight: before the fence it would be waited for.
  arrival.count();
  for (u32 i = arrival.next(arrival.me); i != arrival.me && status.ok(); i = arrival.next(i)) {
    status = await_member(arrival, i, &arrival.block->from[i]);
  }
  return status;
}

// Dissemination: after round r a rank has heard of 2^(r + 1) ranks, itself included.
template <class Route, bool Each>
WV_DEVICE Status meet_in_rounds(Arrival& arrival) {
  const u32 size = arrival.team.size;
  arrival.count();
  Status status;
  for (u32 round = 0; round < team_rounds && size > 1u << round && status.ok(); ++round) {
    const u32 distance = 1u << round;
    Signal* word = &arrival.block->round[round];
    // Release, pairs with the acquire of await_member: passes on what earlier rounds acquired.
    wv::fence<order::release, scope::system>();
    const u32 to = static_cast<u32>((u64{arrival.me} + distance) % size);
    status = tell<Route, Each>(arrival, to, word);
    const u32 from = static_cast<u32>((u64{arrival.me} + size - distance) % size);
    if (status.ok()) status = await_member(arrival, from, word);
  }
  return status;
}

// Waits for everything that this rank has posted to the ranks of the team.
WV_DEVICE Status quiet_team(const Arrival& arrival, Timeout timeout) {
  // Then there are no queue pairs.
  if (fixed(arrival.heap.stride) != 0) return Status{};
  const Deadline deadline = deadline_of(arrival.heap, timeout);
  Status status;
  for (u32 i = 0; i < arrival.team.size && status.ok(); ++i) {
    status = quiet_queues(peer_of(arrival.heap, arrival.rank_of(i)), deadline);
  }
  return status;
}

template <class Route, bool Quiet, class Coop>
WV_DEVICE Status meet(const Coop& coop, const Heap& heap, const Team& team, Timeout timeout) {
  const u32 me = member_of(team, fixed(heap.rank));
  const Status bad = check_team(heap, team, me);
  if (!bad.ok()) return bad;
  return by_leader(coop, [&] {
    TeamBlock* block = at_offset<TeamBlock>(heap, team.block);
    Arrival arrival{heap, team, block, me, HeapDeadline::of(heap, timeout), 0};
    if constexpr (Quiet && Route::may_be_rdma) {
      const Status status = quiet_team(arrival, timeout);
      if (!status.ok()) {
        arrival.count();
        return status;
      }
    }
    return team.size <= flat_ranks ? meet_flat<Route, Coop::alone>(arrival)
                                   : meet_in_rounds<Route, Coop::alone>(arrival);
  });
}

}  // namespace impl

template <class Route, class Coop>
WV_DEVICE Status barrier(const Coop& coop, const Heap& heap, const Team& team, Timeout timeout) {
  return impl::meet<Route, true>(coop, heap, team, timeout);
}

template <class Route, class Coop>
WV_DEVICE Status sync(const Coop& coop, const Heap& heap, const Team& team, Timeout timeout) {
  return impl::meet<Route, false>(coop, heap, team, timeout);
}

}  // namespace wv
