// Copies of a whole list of blocks by one launch.
//
// Blocks are copied in no particular order. Where a target overlaps another target or a source, each
// of its bytes is one of those that the list names for it; nothing outside targets is written.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/layout/blocks.h"

namespace wv {

// The share of team `team`, one of `teams`: `coop` is one team, and all of its members call.
template <class Coop>
WV_DEVICE void copy_blocks(const Coop& coop, const BlockList& list, u64 team, u64 teams);

}  // namespace wv

#include "warpverbs/impl/blocks.h"
