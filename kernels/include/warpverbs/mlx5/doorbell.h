// Values of doorbell records and doorbells, byte-swapped and ready to store.
#pragma once

#include "warpverbs/mlx5/bswap.h"
#include "warpverbs/mlx5/layout.h"

namespace wv {
namespace mlx5 {

// Index of the doorbell records within the QP's record.
constexpr u32 dbr_rcv = WV_OFFSETOF(QpDbr, rcv) / 4;
constexpr u32 dbr_snd = WV_OFFSETOF(QpDbr, snd) / 4;

// SND (be32 at +4) and RCV (be32 at +0) counters of the QP's record: index of the next free WQEBB,
// or number of posted receives; both modulo 2^16.
WV_HD constexpr u32 dbr_value(u64 next) { return bswap32(static_cast<u32>(next & 0xffff)); }

// SET_CI (be32 at +0) of the CQ's record.
WV_HD constexpr u32 cq_set_ci(u64 ci) { return bswap32(static_cast<u32>(ci & 0xffffff)); }

// SQ doorbell that names the next free WQEBB: {next << 8, qpn << 8}.
WV_HD constexpr u64 doorbell_next(u64 next, u32 qpn) {
  return static_cast<u64>(bswap32(qpn << 8)) << 32 |
         bswap32(static_cast<u32>(next & 0xffff) << 8);
}

// SQ doorbell that repeats the first 8 bytes of the last WQE (`ctrl_word0`, `ctrl_word1`).
WV_HD constexpr u64 doorbell_last(u32 ctrl_word0, u32 ctrl_word1) {
  return static_cast<u64>(ctrl_word1) << 32 | ctrl_word0;
}

}  // namespace mlx5
}  // namespace wv
