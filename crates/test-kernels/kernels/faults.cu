// Kernels that do what no kernel may: the SIMT device must name it. Never run on a GPU.
#include "warpverbs/arch/arch.h"

using namespace wv;

// Lane 3 ends while the others wait for it in a collective.
WV_SAFE_KERNEL(leave_collective)() {
  if (lane_id() == 3) return;
  sync_warp(whole_warp());
}

// A collective over lanes that the block does not have.
WV_SAFE_KERNEL(name_missing_lanes)(u32* out WV_COUNT(32)) { out[lane_id()] = ballot(~lane_mask{0}, true); }

// Lanes 0 and 1 wait for each other in different collectives.
WV_SAFE_KERNEL(cross_masks)(u32* out WV_COUNT(1)) {
  if (lane_id() == 0) out[0] = ballot(3, true);
  if (lane_id() == 1) sync_warp(3);
}

WV_SAFE_KERNEL(call_from_outside)() {
  if (lane_id() == 5) sync_warp(3);
}

WV_SAFE_KERNEL(shuffle_from_nobody)(u32* out WV_COUNT(2)) {
  if (lane_id() < 2) out[lane_id()] = shfl(3, lane_id(), 7);
}

// Three lanes, each waiting for the next: no two of them contradict each other.
WV_SAFE_KERNEL(wait_in_circle)() {
  if (lane_id() == 0) sync_warp(0b011);
  if (lane_id() == 1) sync_warp(0b110);
  if (lane_id() == 2) sync_warp(0b101);
}

// Half a warp in the block's barrier, half in a collective of the whole warp.
WV_SAFE_KERNEL(mix_barriers)() {
  if (lane_id() < 16) {
    sync_block();
  } else {
    sync_warp(whole_warp());
  }
}

WV_SAFE_KERNEL(give_up)() {
  if (global_thread() == 70) trap();
}

WV_SAFE_KERNEL(share_too_much)(u64* out WV_COUNT(1)) {
  using Cells = u64[5000];
  WV_SHARED(Cells, cells);
  *out = cells[0];
}

// Three ways never to end: 0 spins politely, 1 on memory alone, 2 on the clock alone.
WV_SAFE_KERNEL(never_end)(u64* flag WV_COUNT(1), u32 way) {
  for (;;) {
    if (way == 0) {
      if (load<order::acquire, scope::gpu>(flag) == 1) return;
      pause(100);
    } else if (way == 1) {
      if (load<order::acquire, scope::gpu>(flag) == 1) return;
    } else if (now_ns() == 0) {
      return;
    }
  }
}

namespace {
WV_D WV_NOINLINE u64 sink(u64 depth, u64* out) {
  u64 frame[32];
  for (u64& cell : frame) cell = load<order::relaxed, scope::gpu>(out) + depth;
  return (depth == 0 ? 0 : sink(depth - 1, out)) + frame[depth % 32];
}
}  // namespace

// Frames of more than 256 bytes, `depth` deep.
WV_SAFE_KERNEL(recurse)(u64* out WV_COUNT(2), u64 depth) { out[1] = sink(depth, out); }
