// Generated from crates/layout/src/blocks.rs.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

// Blocks of equal size, at equal distances on either side.
struct BlockRun {
  u64 to;  // Address of the first block's target.
  u64 from;  // Address of the first block.
  u64 to_stride;  // Bytes from the start of a target to that of the next.
  u64 from_stride;  // Bytes from the start of a block to that of the next.
  u64 bytes;  // Size of each block, not 0.
  u64 first;  // Pieces of all runs before this one.
};
static_assert(sizeof(BlockRun) == 48 && alignof(BlockRun) == 8, "BlockRun");
WV_AT(BlockRun, to, 0);
WV_AT(BlockRun, from, 8);
WV_AT(BlockRun, to_stride, 16);
WV_AT(BlockRun, from_stride, 24);
WV_AT(BlockRun, bytes, 32);
WV_AT(BlockRun, first, 40);

// Each block is cut into pieces of `1 << log_piece` bytes, the last of which may be shorter. Pieces
// are numbered through the list, so that they can be shared out evenly however large the blocks are.
struct BlockList {
  u64 runs;  // Address of `run_count` times `BlockRun`.
  u64 run_count;  // Runs.
  u64 pieces;  // Pieces of all runs.
  u32 log_piece;  // 4 or more: pieces keep the alignment of their block.
  u32 reserved;  // Zero.
};
static_assert(sizeof(BlockList) == 32 && alignof(BlockList) == 8, "BlockList");
WV_AT(BlockList, runs, 0);
WV_AT(BlockList, run_count, 8);
WV_AT(BlockList, pieces, 16);
WV_AT(BlockList, log_piece, 24);
WV_AT(BlockList, reserved, 28);

#undef WV_AT

}  // namespace wv
