// Byte swaps and pieces of WQEs, usable in constant expressions.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {

WV_HD constexpr u16 bswap16(u16 v) { return static_cast<u16>(v << 8 | v >> 8); }

WV_HD constexpr u32 bswap32(u32 v) {
#if defined(__CUDA_ARCH__) && !defined(__clang__)
  // ptxas does not find the permute in the shifts; every other compiler does.
  if (!__builtin_is_constant_evaluated()) return __byte_perm(v, 0, 0x0123);
#endif
  return v << 24 | (v & 0xff00u) << 8 | (v >> 8 & 0xff00u) | v >> 24;
}

WV_HD constexpr u64 bswap64(u64 v) {
  return static_cast<u64>(bswap32(static_cast<u32>(v))) << 32 | bswap32(static_cast<u32>(v >> 32));
}

static_assert(bswap16(0x1122) == 0x2211, "bswap16");
static_assert(bswap32(0x11223344u) == 0x44332211u, "bswap32");
static_assert(bswap64(0x1122334455667788ull) == 0x8877665544332211ull, "bswap64");

// 16 bytes of a WQE in registers: w[i] holds bytes 4i..4i+3 in memory order.
struct alignas(16) Seg {
  u32 w[4];
};
static_assert(sizeof(Seg) == 16 && alignof(Seg) == 16, "one 16-byte store");

WV_HD constexpr u32 hi32(u64 v) { return static_cast<u32>(v >> 32); }
WV_HD constexpr u32 lo32(u64 v) { return static_cast<u32>(v); }

}  // namespace wv
