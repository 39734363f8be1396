// Groups that make a call together. Every function of the put stratum takes one of these first.
//
//   thread  Each calling lane for itself. Lanes of a warp that arrive together on one queue pair
//           share one reservation and one doorbell; nothing about that is visible but the speed.
//   warp    All lanes of the warp call, with the same arguments. ONE transfer is posted. Data that
//           the lanes wrote before the call are part of it. All get the same result.
//   block   The same for all threads of the block.
//
// Any type with these members will do. `sync`, `any` and `assemble` order memory among the members.
// `assemble` starts a call: it is `sync`, and ends a launch on the SIMT device that some members of
// a group do not make with the others.
#pragma once

#include "warpverbs/arch/arch.h"

namespace wv {

struct Thread {
  WV_DEVICE u32 thread_rank() const { return 0; }
  WV_DEVICE u32 size() const { return 1; }
  WV_DEVICE void sync() const {}
  WV_DEVICE void assemble() const {}
  // Rank 0's value, for everybody. T is a multiple of 4 bytes.
  template <class T>
  WV_DEVICE T broadcast(const T& value) const {
    return value;
  }
  // Whether it holds for any member, for everybody.
  WV_DEVICE bool any(bool holds) const { return holds; }
  // Whether members are to be gathered with other callers of their warp.
  static constexpr bool alone = true;
  static constexpr u32 max_size = 1;
};

struct Warp {
  WV_DEVICE u32 thread_rank() const { return lane_id(); }
  WV_DEVICE u32 size() const { return popcount(whole_warp()); }
  WV_DEVICE void sync() const { sync_warp(all_lanes()); }
  WV_DEVICE void assemble() const { sync(); }
  WV_DEVICE bool any(bool holds) const {
    sync_warp(all_lanes());
    return ballot(all_lanes(), holds) != 0;
  }
  template <class T>
  WV_DEVICE T broadcast(const T& value) const;
  static constexpr bool alone = false;
  static constexpr u32 max_size = warp_size;
};

struct Block {
  WV_DEVICE u32 thread_rank() const { return thread_index(); }
  WV_DEVICE u32 size() const { return block_size(); }
  WV_DEVICE void sync() const { sync_block(); }
  WV_DEVICE void assemble() const { assemble_block(); }
  WV_DEVICE bool any(bool holds) const { return any_in_block(holds); }
  template <class T>
  WV_DEVICE T broadcast(const T& value) const;
  static constexpr bool alone = false;
  static constexpr u32 max_size = 1024;
};

// Whether a group consists of all lanes of its warps, so that they may leave a loop together. `inline`, for clang makes
// a symbol of each specialization otherwise.
template <class Coop>
inline constexpr bool of_warps = false;
template <>
inline constexpr bool of_warps<Warp> = true;
template <>
inline constexpr bool of_warps<Block> = true;

// Behind what some members do for the others: where lanes run in lockstep, one that goes on and waits for
// an answer would keep another from what is to be answered.
template <class Coop>
WV_DEVICE void go_on_together(const Coop&) {
  if (of_warps<Coop> && lockstep()) sync_warp(all_lanes());
}

WV_D constexpr Thread thread{};
WV_D constexpr Warp warp{};
WV_D constexpr Block block{};

}  // namespace wv

#include "warpverbs/impl/coop.h"
