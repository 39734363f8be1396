// Bodies of blocks.h.
#pragma once

#include "warpverbs/blocks.h"
#include "warpverbs/impl/copy.h"

namespace wv {
namespace impl {

WV_DEVICE u64 piece_address(u64 word) { return word & ((u64{1} << piece_address_bits) - 1); }
WV_DEVICE u64 piece_length(u64 from, u64 to) {
  return (from >> piece_address_bits | to >> piece_address_bits << 8) + 1;
}

}  // namespace impl

// The list may lie in host memory: the lanes of a warp load `each` pieces together, so that few requests
// cross PCIe and their latency is paid once, and pass them on by shuffles. The copies of a warp follow
// each other.
WV_DEVICE void copy_pieces(const vec16* list, u64 first, u64 count, u64 mask, u32 each, StopRecord* stop) {
  const u32 warps = (block_size() + warp_size - 1) / warp_size;
  const u32 share = each < warp.size() ? each : warp.size();
  const u64 step = u64{share} * warps * grid_size();
  const u32 lane = warp.thread_rank();
  u64 begin = (u64{block_index()} * warps + warp_index()) * share;
  const auto held = [&] {
    return begin >= count ? 0 : count - begin < share ? static_cast<u32>(count - begin) : share;
  };
  const auto read = [&] { return lane < held() ? read16(list + ((first + begin + lane) & mask)) : vec16{}; };
  // The list stays as it is until the launch has run, so it is loaded beside the entry, not after it.
  vec16 own = read();
  if (!enter(stop)) return;
  while (begin < count) {
    const u32 pieces = held();
    for (u32 k = 0; k < pieces; ++k) {
      const u64 from = shfl(whole_warp(), own.lo, k);
      const u64 to = shfl(whole_warp(), own.hi, k);
      // A piece of 4 KiB is 8 packs for each lane; more in flight would take the registers of 512
      // threads.
      impl::copy_with<8>(warp, reinterpret_cast<void*>(impl::piece_address(to)),
                         reinterpret_cast<const void*>(impl::piece_address(from)),
                         impl::piece_length(from, to));
    }
    begin += step;
    if (begin >= count) break;
    const bool stopped = is_stopped(stop);
    own = read();
    if (ballot(all_lanes(), stopped) != 0) break;
  }
  leave(stop);
}

}  // namespace wv
