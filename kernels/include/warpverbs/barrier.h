// Barriers of ranks, on a symmetric heap.
//
// One group of each rank of the team calls, the same number of times. Calls of one team follow one
// another: a rank's call is synchronised with its last one, whoever made it. A call that failed
// counts as one: a rank that comes late finds the others' arrival.
#pragma once

#include "warpverbs/layout/team.h"
#include "warpverbs/shm.h"

namespace wv {

// Ranks first, first + stride, …; `size` of them. The block, a TeamBlock, lies at `block` in
// every heap, and is zero before the first call.
struct Team {
  u64 block;
  u32 first;
  u32 stride;
  u32 size;
  u32 reserved;
};

static_assert(sizeof(Team) == 24, "Team");

// Returns once every rank of the team has called, and whatever the ranks' blocks have put before,
// as far as those blocks are synchronised with the callers, is visible to the group. On failure
// HeapState.fault says which rank has not come.
template <class Route = route::any, class Coop>
WV_DEVICE Status barrier(const Coop& coop, const Heap& heap, const Team& team, Timeout = {});

// The same without waiting for RDMA: orders direct puts, and of puts by RDMA those of the calling
// groups to the ranks of teams of up to flat_ranks.
template <class Route = route::any, class Coop>
WV_DEVICE Status sync(const Coop& coop, const Heap& heap, const Team& team, Timeout = {});

}  // namespace wv

#include "warpverbs/impl/barrier.h"
