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

#if !defined(WV_ARCH_SIMT)
// sync_block, at the start of a call that every thread of the block has to make. The SIMT device
// ends the launch if some of them do not.
WV_DEVICE void assemble_block() { sync_block(); }
#endif

// Flat number of the calling thread in the launch.
WV_DEVICE u64 global_thread() { return u64{block_index()} * block_size() + thread_index(); }

// Calls `body(mask)` once, with the lanes that came here together and have the same two keys. On a
// device whose lanes run in lockstep the groups take turns: a group that waits for another group
// of its own warp must find it finished.
template <class Body>
WV_DEVICE auto with_group(u64 key, u64 second, site where, Body body) {
#if defined(WV_ARCH_LOCKSTEP)
  lane_mask left = active_mask(where);
  for (;;) {
    const u32 first = lowest_bit(left);
    const u64 key_of_first = shfl(left, key, first);
    const u64 second_of_first = shfl(left, second, first);
    const bool same = key == key_of_first && second == second_of_first;
    const lane_mask group = ballot(left, same);
    if (same) return body(group);
    left &= ~group;
  }
#else
  lane_mask group = active_mask(where);
  if (group != lane_bit(lane_id())) group = match_any(match_any(group, key), second);
  return body(group);
#endif
}

template <class Body>
WV_DEVICE auto with_group(u64 key, site where, Body body) {
  return with_group(key, 0, where, body);
}

}  // namespace wv
