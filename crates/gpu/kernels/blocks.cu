// Copies a list of blocks: each warp of the launch takes its share of the list's pieces.
#include "warpverbs/blocks.h"

using namespace wv;

WV_SAFE_KERNEL(copy_list)(const BlockList* list) {
  const u64 warps = (block_size() + warp_size - 1) / warp_size;
  copy_blocks(warp, *list, block_index() * warps + warp_index(), warps * grid_size());
}
