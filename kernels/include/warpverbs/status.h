// How calls end (layout/status.h), and how long they may wait.
#pragma once

#include "warpverbs/arch/arch.h"
#include "warpverbs/layout/status.h"

namespace wv {

// Keeps the first bad status of many threads in `*first`, which is zero before the launch.
WV_DEVICE void keep_first(Status* first, Status result) {
  if (!result.ok()) (void)compare_exchange<order::relaxed, scope::gpu>(&first->code, 0, result.code);
}

// How long one call may wait in all. 0, the default, is the queue pair's own timeout_ns. No call
// waits without bound.
struct Timeout {
  u64 ns = 0;
};
WV_HD constexpr Timeout within_ns(u64 ns) { return Timeout{ns}; }
WV_HD constexpr Timeout within_us(u64 us) { return Timeout{us * 1000}; }

// Buffers. Addresses are the ones the NIC knows: those of the registered region.
struct Local {
  u64 addr;
  u32 lkey;
};
struct Remote {
  u64 addr;
  u32 rkey;
};

// How to post; combine with |. The default is: signalled, no fence. A type of its own, so that no
// immediate is taken for flags.
struct Flags {
  u32 bits = 0;

  WV_HD constexpr bool has(Flags other) const { return (bits & other.bits) != 0; }
};
WV_HD constexpr Flags operator|(Flags a, Flags b) { return Flags{a.bits | b.bits}; }

// No CQE of its own. The library still asks for one at every quarter of the ring, and `quiet` and
// `wait` add one when they need it.
WV_D constexpr Flags unsignalled{1};
// The NIC starts this work after every earlier READ and atomic of this queue pair has completed.
WV_D constexpr Flags fenced{2};
// The receiver's CQE raises its completion event.
WV_D constexpr Flags solicited{4};
// Return no_room where the call would wait for room. Nothing is reserved then.
WV_D constexpr Flags no_wait{8};
// Do not ring the doorbell yet: the work may stay unrung until any thread posts to the queue pair
// without this flag or waits for completion. It is not lost, and a quarter of the ring at most is
// held back.
WV_D constexpr Flags deferred{16};

// Posted work: WQEBBs [index, index + wqebbs) of the send queue, unless status says why not.
struct [[nodiscard]] Posted {
  Status status;
  u32 wqebbs;
  u64 index;

  WV_HD constexpr bool ok() const { return status.ok(); }
  WV_HD constexpr u64 end() const { return index + wqebbs; }
};

}  // namespace wv
