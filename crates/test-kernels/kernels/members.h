// For kernels whose launch says which ranks its blocks are, and who calls.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/heap.h"

// The heap of one block. A test runs several ranks as blocks of one launch, so that a seed interleaves
// them, or each rank as a launch of its own in its own process.
struct Member {
  const wv::Heap* heap;
};

// Calls `body` with the group that `group` names: 0 thread 0 of the block, 1 its first warp, 2 all of it.
template <class Body>
WV_DEVICE void by_members(wv::u32 group, Body body) {
  if (group == 2) body(wv::block);
  else if (group == 1 && wv::warp_index() == 0) body(wv::warp);
  else if (group == 0 && wv::thread_index() == 0) body(wv::thread);
}
