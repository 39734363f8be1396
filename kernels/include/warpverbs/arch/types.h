// Fixed-width names and the host/device markers. Needs no header: NVRTC has no <cstdint>.
#pragma once

// As attributes under clang: they mean the same in CUDA and HIP and need no vendor header.
#if defined(__clang__) && (defined(__CUDA__) || defined(__HIP__))
#define WV_HD __attribute__((host)) __attribute__((device))
#define WV_D __attribute__((device))
#elif defined(__CUDACC__)
#define WV_HD __host__ __device__
#define WV_D __device__
#else
#define WV_HD
#define WV_D
#endif

// NVRTC has neither <cstddef> nor __builtin_offsetof, but its front end's own intrinsic.
#if defined(__CUDACC_RTC__)
#define WV_OFFSETOF(type, field) __INTADDR__(&(((type*)0)->field))
#else
#define WV_OFFSETOF(type, field) __builtin_offsetof(type, field)
#endif

namespace wv {
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using f32 = float;

// A mask has one bit for each lane of a warp.
template <u32 Lanes>
struct lanes_of {
  using mask = u32;
};
template <>
struct lanes_of<64> {
  using mask = u64;
};

static_assert(sizeof(u8) == 1 && sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "widths");
}  // namespace wv
