// Copies a list of pieces: each warp of the launch takes its share.
#include "warpverbs/blocks.h"

using namespace wv;

WV_KERNEL(copy_list)(const vec16* list, u64 first, u64 count, u64 mask, u32 each, StopRecord* stop) {
  copy_pieces(list, first, count, mask, each, stop);
}
