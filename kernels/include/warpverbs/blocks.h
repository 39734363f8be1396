// Copies of a whole list of blocks by one launch. Mirrors crates/gpu/src/blocks.rs.
//
// Blocks are copied in no particular order. Where a target overlaps another target or a source, each
// of its bytes is one of those that the list names for it; nothing outside targets is written.
#pragma once

#include "warpverbs/coop.h"

namespace wv {

// Blocks of equal size, at equal distances on either side.
struct BlockRun {
  u64 to, from;                // addresses of the first block
  u64 to_stride, from_stride;  // bytes from the start of a block to that of the next
  u64 bytes;                   // of each block, not 0
  u64 first;                   // pieces of all runs before this one
};

// Each block is cut into pieces of 1 << log_piece bytes, the last of which may be shorter. Pieces are
// numbered through the list, so that they can be shared out evenly however large the blocks are.
struct BlockList {
  u64 runs;  // address of run_count BlockRun
  u64 run_count;
  u64 pieces;     // of all runs
  u32 log_piece;  // 4 or more: pieces keep the alignment of their block
  u32 reserved;
};

static_assert(sizeof(BlockRun) == 48, "BlockRun");
static_assert(sizeof(BlockList) == 32, "BlockList");

// The share of team `team`, one of `teams`: `coop` is one team, and all of its members call.
template <class Coop>
WV_DEVICE void copy_blocks(const Coop& coop, const BlockList& list, u64 team, u64 teams);

}  // namespace wv

#include "warpverbs/impl/blocks.h"
