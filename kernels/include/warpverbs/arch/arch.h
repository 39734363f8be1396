// Picks the device. Everything above this folder uses only the names that cuda.h, hip.h, simt.h and
// check.h have in common, and never an intrinsic, a builtin or asm.
#pragma once

#include "warpverbs/arch/types.h"

#if defined(__CUDACC_RTC__) || (defined(__CUDACC__) && !defined(__HIP__))
#include "warpverbs/arch/cuda.h"
#elif defined(__HIP__)
#include "warpverbs/arch/hip.h"
#elif defined(WV_CHECK)
#include "warpverbs/arch/check.h"
#else
#include "warpverbs/arch/simt.h"
#endif

// A kernel that may be launched with any arguments: whatever the others are, it touches at most the
// first WV_COUNT(elements) behind each pointer, and one behind each pointer inside a structure. The
// launcher checks that there are as many. WV_KERNEL promises nothing, and its launch is unsafe.
#define WV_SAFE_KERNEL(name) WV_KERNEL(name)
// Sums and products of numbers, unsigned parameters, grid_threads, grid_blocks and block_threads.
#define WV_COUNT(elements)

namespace wv {

WV_DEVICE lane_mask lane_bit(u32 lane) { return lane_mask{1} << lane; }

// Every lane of the caller's warp, also when the block's size is not a multiple of it.
WV_DEVICE lane_mask whole_warp() {
  const u32 first = thread_index() - lane_id();
  const u32 lanes = block_size() - first;
  return lanes >= warp_size ? ~lane_mask{0} : lane_bit(lanes) - 1;
}

// The mask of collectives that every lane of the caller's warp calls: a constant on GPUs, where lanes
// that a block does not have count as ended ones, for which no collective waits.
WV_DEVICE lane_mask all_lanes() {
#if defined(WV_ARCH_CUDA) || defined(WV_ARCH_HIP)
  return ~lane_mask{0};
#else
  return whole_warp();
#endif
}

#if !defined(WV_NARROWS_E4M3)
// Whether the device casts to e4m3 by itself: then `narrow_e4m3` does.
constexpr bool narrows_e4m3 = false;
WV_DEVICE u32 narrow_e4m3(f32, f32) { return 0; }
#endif

#if !defined(WV_MEMORY_AT)
// Memory of the device, of the host or of a peer, at an address that was stored as a number.
template <class T>
WV_DEVICE T* memory_at(u64 address) {
  return reinterpret_cast<T*>(address);
}
#endif

#if !defined(WV_ARCH_SIMT)
// sync_block, at the start of a call that every thread of the block has to make. The SIMT device
// ends the launch if some of them do not.
WV_DEVICE void assemble_block() { sync_block(); }
#endif

// Flat number of the calling thread in the launch.
WV_DEVICE u64 global_thread() { return u64{block_index()} * block_size() + thread_index(); }

// For lanes in lockstep: calls `body(mask)` once, with the lanes that came here together and have the
// same two keys. Those of one pair of keys after those of another, so that whoever waits in `body` finds
// the others of its warp before it or behind it. All lanes stay until the last has had its turn: the loop
// ends for all of them at once, and nothing of `body` can be put off until after it.
template <class Body>
WV_DEVICE auto in_turns(u64 key, u64 second, site where, Body body) {
  decltype(body(lane_mask{})) result{};
  const lane_mask all = active_mask(where);
  const Unbroken section(all);
  for (lane_mask left = all; left != 0;) {
    const u32 first = lowest_bit(left);
    const u64 key_of_first = shfl(all, key, first);
    const u64 second_of_first = shfl(all, second, first);
    const bool same = key == key_of_first && second == second_of_first;
    const lane_mask group = ballot(all, same);
    if (same) result = body(group);
    left &= ~group;
  }
  return result;
}

// Calls `body(mask)` once, with the lanes that came here together and have the same two keys.
template <class Body>
WV_DEVICE auto with_group(u64 key, u64 second, site where, Body body) {
  if (lockstep()) return in_turns(key, second, where, body);
  lane_mask group = active_mask(where);
  if (group != lane_bit(lane_id())) group = match_any(match_any(group, key), second);
  return body(group);
}

template <class Body>
WV_DEVICE auto with_group(u64 key, site where, Body body) {
  return with_group(key, 0, where, body);
}

// A wait: calls `turn(polls)` until it returns true. Lanes that come together in lockstep end each turn
// together, so what one of them takes in a turn it must give back in it; for those of the same keys one
// is chosen each time, of which `polls` is true. Otherwise every lane is.
template <class Turn>
WV_DEVICE void repeat(u64 key, u64 second, site where, Turn turn) {
  if (!lockstep()) {
    while (!turn(true)) {
    }
    return;
  }
  in_turns(key, second, where, [&](lane_mask group) {
    for (lane_mask left = group; left != 0;) {
      // Work that was posted together is done in the order of lanes.
      const bool polls = lane_id() == highest_bit(left);
      bool again = false;
      if ((left & lane_bit(lane_id())) != 0) again = !turn(polls);
      left = ballot(group, again);
    }
    return true;
  });
}

}  // namespace wv
