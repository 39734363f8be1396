// Copies of a whole list of blocks by one launch.
//
// Blocks are cut into pieces, which are copied in no particular order. Where a target overlaps another
// target or a source, each of its bytes is one of those that the list names for it; nothing outside
// targets is written.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/layout/blocks.h"
#include "warpverbs/stop.h"

namespace wv {

// Copies pieces `first` to `first + count - 1` of a list of `mask + 1` BlockPieces, modulo its length,
// which is a power of two. All threads of the grid call. A warp takes `each` pieces at a time, at most
// one for each lane. Of a launch that is withdrawn by `stop` no further pieces are copied.
WV_DEVICE void copy_pieces(const vec16* list, u64 first, u64 count, u64 mask, u32 each, StopRecord* stop);

}  // namespace wv

#include "warpverbs/impl/blocks.h"
