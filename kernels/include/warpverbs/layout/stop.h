// Generated from crates/layout/src/stop.rs.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

// By which the host withdraws a launch. All zero when it starts, and again when it has ended, unless
// it was withdrawn.
struct alignas(16) StopRecord {
  u64 running;  // Blocks that have entered and not left.
  u64 stopped;  // Not 0: no further block does anything.
};
static_assert(sizeof(StopRecord) == 16 && alignof(StopRecord) == 16, "StopRecord");
WV_AT(StopRecord, running, 0);
WV_AT(StopRecord, stopped, 8);

#undef WV_AT

}  // namespace wv
