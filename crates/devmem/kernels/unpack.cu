// Moves received bytes to their places: all moves of a batch in one launch.
#include "warpverbs/impl/copy.h"

using namespace wv;

// A descriptor, as crates/devmem/src/sys/ring.rs writes it:
//   lo  bits 55..0 the address to read, bits 63..56 the low byte of the length less 1
//   hi  bits 55..0 the address to write, bits 63..56 the high byte of the length less 1
constexpr u32 address_bits = 56;

WV_DEVICE u64 address_in(u64 word) { return word & ((u64{1} << address_bits) - 1); }
WV_DEVICE u64 length_in(u64 lo, u64 hi) {
  return (lo >> address_bits | hi >> address_bits << 8) + 1;
}

// Descriptors `first` to `first + count - 1` of a ring of `mask + 1`. The ring is in host memory: the
// lanes of a warp load `each` descriptors together, so that few requests cross PCIe and their latency
// is paid once, and pass them on by shuffles. The copies of a warp follow each other.
WV_KERNEL(unpack)(const vec16* ring, u64 first, u64 count, u64 mask, u32 each) {
  const u32 warps = (block_size() + warp_size - 1) / warp_size;
  const u32 share = each < warp.size() ? each : warp.size();
  const u64 step = u64{share} * warps * grid_size();
  const u32 lane = warp.thread_rank();
  for (u64 begin = (u64{block_index()} * warps + warp_index()) * share; begin < count; begin += step) {
    const u32 held = count - begin < share ? static_cast<u32>(count - begin) : share;
    vec16 own{};
    if (lane < held) own = read16(ring + ((first + begin + lane) & mask));
    for (u32 k = 0; k < held; ++k) {
      const u64 lo = shfl(whole_warp(), own.lo, k);
      const u64 hi = shfl(whole_warp(), own.hi, k);
      // A fragment of 4 KiB is 8 packs for each lane; more in flight would take the registers of 512
      // threads.
      impl::copy_with<8>(warp, reinterpret_cast<void*>(address_in(hi)),
                         reinterpret_cast<const void*>(address_in(lo)), length_in(lo, hi));
    }
  }
}
