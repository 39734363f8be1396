// Operands of atomics.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {

// Native byte order. The old value of post_atomic goes to `local`: 8-byte ones as the host stores a u64,
// 4-byte ones big-endian. Other NICs than mlx5's have FetchAdd and CompareSwap alone.
struct FetchAdd {
  u64 add;
};
struct CompareSwap {
  u64 compare, swap;
};
// T is u32 or u64. A set bit of `boundary` stops the carry out of that bit.
template <class T>
struct MaskedFetchAdd {
  T add, boundary;
};
// Compares the bits of compare_mask; if equal, replaces those of swap_mask.
template <class T>
struct MaskedCompareSwap {
  T compare, compare_mask, swap, swap_mask;
};

}  // namespace wv
