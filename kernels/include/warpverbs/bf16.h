// Numbers of 16 bits, the upper half of an f32. crates/ep/src/reference/number.rs is the same in Rust.
#pragma once

#include "warpverbs/arch/arch.h"

namespace wv {

WV_DEVICE u32 bits_of(f32 value) { return __builtin_bit_cast(u32, value); }
WV_DEVICE f32 float_of(u32 bits) { return __builtin_bit_cast(f32, bits); }

// Of the lower 16 bits of `bits`.
WV_DEVICE f32 from_bf16(u32 bits) { return float_of(bits << 16); }

// The nearest one, the even one of two; every NaN is 0x7fff.
WV_DEVICE u32 to_bf16(f32 value) {
  const u32 bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

}  // namespace wv
