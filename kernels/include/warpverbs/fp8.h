// Numbers of 8 bits: e4m3 with no infinity and the largest number 448. crates/ep/src/reference/fp8.rs is
// the same in Rust.
#pragma once

#include "warpverbs/bf16.h"

namespace wv {

// The nearest one, the even one of two; 448 with its sign beyond that, and 0x7f of every NaN.
WV_DEVICE u32 to_e4m3(f32 value) {
  const u32 bits = bits_of(value), magnitude = bits & 0x7fffffff, exponent = magnitude >> 23;
  if (magnitude > 0x7f800000) return 0x7f;
  // Exponents from 2^-6 on have three digits behind the first, lower ones fewer, and below half of the
  // smallest number none.
  const u32 shared = exponent < 121 ? 121 : exponent;
  const u32 shift = shared - exponent < 5 ? 20 + shared - exponent : 25;
  const u32 digits = (bits & 0x7fffff) | 0x800000;
  const u32 half = (u32{1} << (shift - 1)) - 1 + (digits >> shift & 1);
  const u32 narrow = ((digits + half) >> shift) + ((shared - 121) << 3);
  return (bits >> 24 & 0x80) | (narrow < 0x7e ? narrow : 0x7e);
}

// Two of them, the first in the lower byte.
WV_DEVICE u32 to_e4m3(f32 first, f32 second) {
  if constexpr (narrows_e4m3) {
    const u32 both = narrow_e4m3(first, second);
    return (first == first ? both & 0xff : 0x7f) | (second == second ? both & 0xff00 : 0x7f00);
  }
  return to_e4m3(first) | to_e4m3(second) << 8;
}

}  // namespace wv
