// Bodies of blocks.h.
#pragma once

#include "warpverbs/blocks.h"
#include "warpverbs/impl/copy.h"

namespace wv {
namespace impl {

constexpr u32 piece_address_bits = 56;

WV_DEVICE u64 piece_address(u64 word) { return word & ((u64{1} << piece_address_bits) - 1); }
WV_DEVICE u64 piece_length(u64 from, u64 to) {
  return (from >> piece_address_bits | to >> piece_address_bits << 8) + 1;
}

}  // namespace impl

// The list may lie in host memory: the lanes of a warp load `each` pieces together, so that few requests
// cross PCIe and their latency is paid once, and pass them on by shuffles. The copies of a warp follow
// each other.
WV_DEVICE void copy_pieces(const vec16* list, u64 first, u64 count, u64 mask, u32 each) {
  const u32 warps = (block_size() + warp_size - 1) / warp_size;
  const u32 share = each < warp.size() ? each : warp.size();
  const u64 step = u64{share} * warps * grid_size();
  const u32 lane = warp.thread_rank();
  for (u64 begin = (u64{block_index()} * warps + warp_index()) * share; begin < count; begin += step) {
    const u32 held = count - begin < share ? static_cast<u32>(count - begin) : share;
    vec16 own{};
    if (lane < held) own = read16(list + ((first + begin + lane) & mask));
    for (u32 k = 0; k < held; ++k) {
      const u64 from = shfl(whole_warp(), own.lo, k);
      const u64 to = shfl(whole_warp(), own.hi, k);
      // A piece of 4 KiB is 8 packs for each lane; more in flight would take the registers of 512
      // threads.
      impl::copy_with<8>(warp, reinterpret_cast<void*>(impl::piece_address(to)),
                         reinterpret_cast<const void*>(impl::piece_address(from)),
                         impl::piece_length(from, to));
    }
  }
}

}  // namespace wv
