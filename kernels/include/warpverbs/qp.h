// The exported QP: where everything lies that a kernel needs to post by itself. Its layout is in
// layout/qp.h. Native byte order; addresses are the poster's own.
#pragma once

#include "warpverbs/layout/qp.h"

namespace wv {

// In Qp::send_tag: the send counter of the doorbell record is stored with a release of system scope,
// because a device behind PCIe may read it without having received a doorbell. Doorbells and control
// segments shift the bits above the 24 of the QP number out.
constexpr u32 fenced_record = 1u << 31;

// `completed` of a queue and the lock of its poller, in one word: one release both raises the one
// and gives back the other. Bit 0: somebody polls the CQ; above it: everything below is done.
struct PollWord {
  u64 raw;

  static WV_HD constexpr PollWord of(u64 completed, bool locked) {
    return PollWord{completed << 1 | (locked ? 1u : 0u)};
  }
  WV_HD constexpr bool locked() const { return (raw & 1) != 0; }
  WV_HD constexpr u64 completed() const { return raw >> 1; }
};

constexpr u32 scratch_slots = 64;

// The first error of a queue pair, packed so that one compare-and-swap claims it: bit 63 set,
// wqe_counter in bits 47..32, Status::code of what every call returns from then on in bits 31..0.
struct ErrorWord {
  u64 raw;

  static WV_HD constexpr ErrorWord pack(u32 status, u16 counter) {
    return ErrorWord{1ull << 63 | static_cast<u64>(counter) << 32 | status};
  }
  WV_HD constexpr u32 status() const { return static_cast<u32>(raw); }
};

}  // namespace wv
