// NVIDIA GPUs, sm_80 and newer, under nvcc and NVRTC. PTX memory model, spelled out.
#pragma once

#include "warpverbs/arch/types.h"

#define WV_ARCH_CUDA 1
#define WV_DEVICE __device__ __forceinline__
#define WV_NOINLINE __noinline__
#define WV_UNROLL _Pragma("unroll")
#define WV_ROLLED _Pragma("unroll 1")
#define WV_KERNEL(name) extern "C" __global__ void name
#define WV_BLOCK_AT_MOST(threads, name, parameters) \
  extern "C" __global__ void __launch_bounds__(threads) name parameters
#define WV_SHARED(type, name) __shared__ type name
#define WV_SITE (::wv::site{})

namespace wv {
struct site {};
using lane_mask = u32;

enum class order { relaxed, acquire, release, acq_rel, seq_cst };
// Observers of an access: the block, the device, or everybody including NIC and host.
enum class scope { block, gpu, system };

// 16 bytes moved by one instruction; each half is single-copy atomic, the whole is not.
struct alignas(16) vec16 {
  u64 lo, hi;
};

namespace cuda {
template <class T>
struct identity {
  using type = T;
};
// Keeps an argument out of deduction: only the pointer decides T.
template <class T>
using same = typename identity<T>::type;
}  // namespace cuda

// Calls F(".sem.scope", x) for the order O and scope S of the enclosing template.
#define WV_SCOPED(F, sem, x)              \
  if constexpr (S == scope::block) {      \
    F(sem ".cta", x);                     \
  } else if constexpr (S == scope::gpu) { \
    F(sem ".gpu", x);                     \
  } else {                                \
    F(sem ".sys", x);                     \
  }
#define WV_LOADS(F, x)                                                                       \
  static_assert(O == order::relaxed || O == order::acquire, "a load is relaxed or acquire"); \
  if constexpr (O == order::relaxed) {                                                       \
    WV_SCOPED(F, ".relaxed", x)                                                              \
  } else {                                                                                   \
    WV_SCOPED(F, ".acquire", x)                                                              \
  }
#define WV_STORES(F, x)                                                                       \
  static_assert(O == order::relaxed || O == order::release, "a store is relaxed or release"); \
  if constexpr (O == order::relaxed) {                                                        \
    WV_SCOPED(F, ".relaxed", x)                                                               \
  } else {                                                                                    \
    WV_SCOPED(F, ".release", x)                                                               \
  }
#define WV_UPDATES(F, x)                                                   \
  static_assert(O != order::seq_cst, "put a seq_cst fence beside it");     \
  if constexpr (O == order::relaxed) {                                     \
    WV_SCOPED(F, ".relaxed", x)                                            \
  } else if constexpr (O == order::acquire) {                              \
    WV_SCOPED(F, ".acquire", x)                                            \
  } else if constexpr (O == order::release) {                              \
    WV_SCOPED(F, ".release", x)                                            \
  } else {                                                                 \
    WV_SCOPED(F, ".acq_rel", x)                                            \
  }

#define WV_LD4(sem, type) asm volatile("ld" sem ".global." type " %0, [%1];" : "=r"(v) : "l"(p) : "memory")
#define WV_LD8(sem, type) asm volatile("ld" sem ".global." type " %0, [%1];" : "=l"(v) : "l"(p) : "memory")
template <order O, scope S, class T>
WV_DEVICE T load(const T* p) {
  static_assert(sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8, "1, 4 or 8 bytes");
  if constexpr (sizeof(T) == 8) {
    u64 v;
    WV_LOADS(WV_LD8, "u64")
    return static_cast<T>(v);
  } else if constexpr (sizeof(T) == 4) {
    u32 v;
    WV_LOADS(WV_LD4, "u32")
    return static_cast<T>(v);
  } else {
    u32 v;
    WV_LOADS(WV_LD4, "u8")
    return static_cast<T>(v);
  }
}
#undef WV_LD4
#undef WV_LD8

#define WV_ST4(sem, type) asm volatile("st" sem ".global." type " [%0], %1;" ::"l"(p), "r"(v) : "memory")
#define WV_ST8(sem, type) asm volatile("st" sem ".global." type " [%0], %1;" ::"l"(p), "l"(v) : "memory")
template <order O, scope S, class T>
WV_DEVICE void store(T* p, cuda::same<T> value) {
  static_assert(sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8, "1, 4 or 8 bytes");
  if constexpr (sizeof(T) == 8) {
    const u64 v = static_cast<u64>(value);
    WV_STORES(WV_ST8, "u64")
  } else if constexpr (sizeof(T) == 4) {
    const u32 v = static_cast<u32>(value);
    WV_STORES(WV_ST4, "u32")
  } else {
    const u32 v = static_cast<u32>(value);
    WV_STORES(WV_ST4, "u8")
  }
}
#undef WV_ST4
#undef WV_ST8

// Read-modify-write of 4 or 8 bytes; returns what *p was.
#define WV_ATOM4(sem, op) \
  asm volatile("atom" sem ".global." op " %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory")
#define WV_ATOM8(sem, op) \
  asm volatile("atom" sem ".global." op " %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory")
#define WV_ATOMIC(name, op4, op8)                                    \
  template <order O, scope S, class T>                               \
  WV_DEVICE T name(T* p, cuda::same<T> value) {                      \
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes"); \
    if constexpr (sizeof(T) == 8) {                                  \
      u64 old;                                                       \
      const u64 v = static_cast<u64>(value);                         \
      WV_UPDATES(WV_ATOM8, op8)                                      \
      return static_cast<T>(old);                                    \
    } else {                                                         \
      u32 old;                                                       \
      const u32 v = static_cast<u32>(value);                         \
      WV_UPDATES(WV_ATOM4, op4)                                      \
      return static_cast<T>(old);                                    \
    }                                                                \
  }
WV_ATOMIC(fetch_add, "add.u32", "add.u64")
WV_ATOMIC(fetch_or, "or.b32", "or.b64")
WV_ATOMIC(fetch_xor, "xor.b32", "xor.b64")
// Raises *p to at least `value`.
WV_ATOMIC(fetch_max, "max.u32", "max.u64")
WV_ATOMIC(exchange, "exch.b32", "exch.b64")
#undef WV_ATOMIC
#undef WV_ATOM4
#undef WV_ATOM8

#define WV_CAS4(sem, type)                                   \
  asm volatile("atom" sem ".global.cas.b32 %0, [%1], %2, %3;" \
               : "=r"(old) : "l"(p), "r"(e), "r"(d) : "memory")
#define WV_CAS8(sem, type)                                   \
  asm volatile("atom" sem ".global.cas.b64 %0, [%1], %2, %3;" \
               : "=l"(old) : "l"(p), "l"(e), "l"(d) : "memory")
// Stores `desired` if *p is `expected`; returns what *p was.
template <order O, scope S, class T>
WV_DEVICE T compare_exchange(T* p, cuda::same<T> expected, cuda::same<T> desired) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
  if constexpr (sizeof(T) == 8) {
    u64 old;
    const u64 e = static_cast<u64>(expected), d = static_cast<u64>(desired);
    WV_UPDATES(WV_CAS8, 8)
    return static_cast<T>(old);
  } else {
    u32 old;
    const u32 e = static_cast<u32>(expected), d = static_cast<u32>(desired);
    WV_UPDATES(WV_CAS4, 4)
    return static_cast<T>(old);
  }
}
#undef WV_CAS4
#undef WV_CAS8

#define WV_RED(sem, op) asm volatile("red" sem ".global." op " [%0], %1;" ::"l"(p), "l"(v) : "memory")
// fetch_xor, fetch_max and fetch_add without results.
template <order O, scope S>
WV_DEVICE void flip(u64* p, u64 v) {
  WV_STORES(WV_RED, "xor.b64")
}
template <order O, scope S>
WV_DEVICE void raise(u64* p, u64 v) {
  WV_STORES(WV_RED, "max.u64")
}
template <order O, scope S>
WV_DEVICE void increase(u64* p, u64 v) {
  WV_STORES(WV_RED, "add.u64")
}
#undef WV_RED

// A plain load of what nobody writes while the kernel runs, in global memory. Not `volatile`, and
// memory is not clobbered: it is loaded once and stays in a register, whatever fences come between.
template <class T>
WV_DEVICE T load_constant(const T* p) {
  if constexpr (sizeof(T) == 8) {
    u64 v;
    asm("ld.global.nc.u64 %0, [%1];" : "=l"(v) : "l"(p));
    return static_cast<T>(v);
  } else if constexpr (sizeof(T) == 4) {
    u32 v;
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return static_cast<T>(v);
  } else if constexpr (sizeof(T) == 2) {
    u32 v;
    asm("{ .reg .u16 h; ld.global.nc.u16 h, [%1]; cvt.u32.u16 %0, h; }" : "=r"(v) : "l"(p));
    return static_cast<T>(v);
  } else {
    static_assert(sizeof(T) == 1, "1, 2, 4 or 8 bytes");
    u32 v;
    asm("ld.global.nc.u8 %0, [%1];" : "=r"(v) : "l"(p));
    return static_cast<T>(v);
  }
}

// A plain 16-byte store: nobody may look before the next release has been acquired.
WV_DEVICE void write16(void* p, vec16 v) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi) : "memory");
}

// A plain 16-byte load of bytes that nobody writes at the time.
WV_DEVICE vec16 read16(const void* p) {
  vec16 v;
  asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p) : "memory");
  return v;
}

// The same for 8 bytes.
WV_DEVICE u64 read8(const u64* p) {
  u64 v;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

#define WV_ST16(sem, type) \
  asm volatile("st" sem ".global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi) : "memory")
// Relaxed; p is 16-byte aligned.
template <scope S>
WV_DEVICE void store16(void* p, vec16 v) {
  WV_SCOPED(WV_ST16, ".relaxed", 16)
}
#undef WV_ST16

#define WV_LD16(sem, type)                               \
  asm volatile("ld" sem ".global.v2.u64 {%0, %1}, [%2];" \
               : "=l"(v.lo), "=l"(v.hi) : "l"(p) : "memory")
// Both halves with the order given; which half is read first is not said.
template <order O, scope S>
WV_DEVICE vec16 load16(const void* p) {
  vec16 v;
  WV_LOADS(WV_LD16, 16)
  return v;
}
template <scope S>
WV_DEVICE vec16 load16(const void* p) {
  return load16<order::relaxed, S>(p);
}
#undef WV_LD16

#define WV_FENCE(sem, x) asm volatile("fence" sem ";" ::: "memory")
// PTX has one fence for acquire, release and both; seq_cst is its own.
template <order O, scope S>
WV_DEVICE void fence() {
  static_assert(O != order::relaxed, "a relaxed fence does nothing");
  if constexpr (O == order::seq_cst) {
    WV_SCOPED(WV_FENCE, ".sc", 0)
  } else {
    WV_SCOPED(WV_FENCE, ".acq_rel", 0)
  }
}
#undef WV_FENCE

#undef WV_UPDATES
#undef WV_STORES
#undef WV_LOADS
#undef WV_SCOPED

// Nanoseconds from an arbitrary zero, the same on all multiprocessors.
WV_DEVICE u64 now_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// The finest clock there is, in a unit of its own: only differences on one thread mean anything.
WV_DEVICE u64 ticks() {
  u64 t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}

// The lane waits for another one; returns after about `ns`, or sooner.
WV_DEVICE void pause(u32 ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns) : "memory"); }
// Between two looks of a wait that is about to end: gives way where lanes would otherwise not run.
WV_DEVICE void give_way() {}

constexpr u32 warp_size = 32;
// Stores of one instruction to the same line are one transfer.
constexpr bool lanes_fill_lines = true;
// Blocks and grids of any shape, numbered x first, as the hardware fills warps.
WV_DEVICE u32 thread_index() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
WV_DEVICE u32 block_index() {
  return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}
WV_DEVICE u32 block_size() { return blockDim.x * blockDim.y * blockDim.z; }
WV_DEVICE u32 grid_size() { return gridDim.x * gridDim.y * gridDim.z; }
WV_DEVICE u32 lane_id() {
  u32 lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
WV_DEVICE u32 warp_index() { return thread_index() / warp_size; }

// Lanes of this warp that came here together, this one included.
WV_DEVICE u32 active_mask(site) { return __activemask(); }

// Collectives: every lane of `mask` calls the same one with the same mask, and is in the mask.
template <class T>
WV_DEVICE T shfl(u32 mask, T value, u32 source_lane) {
  return __shfl_sync(mask, value, static_cast<int>(source_lane));
}
WV_DEVICE u32 ballot(u32 mask, bool predicate) { return __ballot_sync(mask, predicate); }
// Lanes of `mask` whose value equals this lane's.
template <class T>
WV_DEVICE u32 match_any(u32 mask, T value) {
  return __match_any_sync(mask, value);
}
// Also orders memory among the lanes of `mask`.
WV_DEVICE void sync_warp(u32 mask) { __syncwarp(mask); }
// Also orders memory among the lanes of the block.
WV_DEVICE void sync_block() { __syncthreads(); }
// sync_block, and whether it holds for any lane of the block.
WV_DEVICE bool any_in_block(bool holds) { return __syncthreads_or(holds) != 0; }

// Lanes that parted go on independently, so nothing of theirs has to stay unbroken.
WV_DEVICE constexpr bool lockstep() { return false; }
struct Unbroken {
  explicit WV_DEVICE Unbroken(lane_mask) {}
};

// Adds to a word of shared memory that other lanes of the block add to as well.
WV_DEVICE void add_shared(u32* word, u32 more) { (void)atomicAdd(word, more); }

// Ends the whole launch with an error.
WV_DEVICE void trap() { asm volatile("trap;"); }

WV_DEVICE u32 popcount(u32 x) { return static_cast<u32>(__popc(x)); }
WV_DEVICE u32 popcount(u64 x) { return static_cast<u32>(__popcll(x)); }
// Number of lanes of `mask` before the caller.
WV_DEVICE u32 rank_in(u32 mask) {
  u32 before;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
  return popcount(mask & before);
}
// Index of the lowest set bit; x is not 0.
WV_DEVICE u32 lowest_bit(u32 x) { return static_cast<u32>(__ffs(static_cast<int>(x))) - 1; }
WV_DEVICE u32 lowest_bit(u64 x) { return static_cast<u32>(__ffsll(static_cast<long long>(x))) - 1; }
// Index of the highest set bit; x is not 0.
WV_DEVICE u32 highest_bit(u32 x) { return 31u - static_cast<u32>(__clz(static_cast<int>(x))); }
WV_DEVICE u32 highest_bit(u64 x) { return 63u - static_cast<u32>(__clzll(static_cast<long long>(x))); }

// a * b + c, rounded once, to the nearest and even; small numbers are not flushed to zero.
WV_DEVICE f32 multiply_add(f32 a, f32 b, f32 c) {
  f32 sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}
// a / b, rounded once, to the nearest and even.
WV_DEVICE f32 divide(f32 a, f32 b) {
  f32 quotient;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define WV_NARROWS_E4M3
constexpr bool narrows_e4m3 = true;
// The nearest e4m3 of two numbers, the even one of two, 448 beyond that; the first in the lower byte.
WV_DEVICE u32 narrow_e4m3(f32 first, f32 second) {
  u16 both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
  return both;
}
#endif

}  // namespace wv

#include "warpverbs/arch/cuda_bulk.h"
