// Byte order. Every field the NIC reads or writes is big-endian; posters are little-endian.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {
namespace mlx5 {

WV_HD constexpr u16 bswap16(u16 v) { return static_cast<u16>(v << 8 | v >> 8); }

// Written as shifts: it stays constexpr in every compiler, and each one turns it into its byte
// permute or bswap.
WV_HD constexpr u32 bswap32(u32 v) {
  return v << 24 | (v & 0xff00u) << 8 | (v >> 8 & 0xff00u) | v >> 24;
}

WV_HD constexpr u64 bswap64(u64 v) {
  return static_cast<u64>(bswap32(static_cast<u32>(v))) << 32 | bswap32(static_cast<u32>(v >> 32));
}

static_assert(bswap16(0x1122) == 0x2211, "bswap16");
static_assert(bswap32(0x11223344u) == 0x44332211u, "bswap32");
static_assert(bswap64(0x1122334455667788ull) == 0x8877665544332211ull, "bswap64");

}  // namespace mlx5
}  // namespace wv
