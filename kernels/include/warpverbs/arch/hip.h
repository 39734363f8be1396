// AMD GPUs under clang. Needs no HIP header. Wavefronts run in lockstep; they have 64 lanes on GFX9 (CDNA) and
// 32 on others.
#pragma once

#include "warpverbs/arch/types.h"

#define WV_ARCH_HIP 1
#define WV_DEVICE __attribute__((device)) __attribute__((always_inline)) inline
#define WV_NOINLINE __attribute__((noinline))
#define WV_UNROLL _Pragma("unroll")
#define WV_ROLLED _Pragma("unroll 1")
#define WV_KERNEL(name) extern "C" __attribute__((global)) void name
#define WV_BLOCK_AT_MOST(threads, name, parameters) \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void name parameters
#define WV_SHARED(type, name) static __attribute__((shared)) type name
#define WV_SITE (::wv::site{})

namespace wv {
struct site {};

// Newer compilers do not define the size; it follows from the target unless an option changes it.
#if defined(__AMDGCN_WAVEFRONT_SIZE)
#define WV_HIP_LANES __AMDGCN_WAVEFRONT_SIZE
#elif !defined(__AMDGCN__) || defined(__GFX8__) || defined(__GFX9__)
#define WV_HIP_LANES 64
#else
#define WV_HIP_LANES 32
#endif
constexpr u32 warp_size = WV_HIP_LANES;
using lane_mask = lanes_of<warp_size>::mask;
#if defined(__AMDGCN__) && !defined(__GFX8__) && !defined(__GFX9__)
// There a permutation of 64 lanes stays within each half of them.
static_assert(warp_size == 32, "-mwavefrontsize64 is for GFX9 alone");
#endif

enum class order { relaxed, acquire, release, acq_rel, seq_cst };
// Observers of an access: the block, the device, or everybody including NIC and host.
enum class scope { block, gpu, system };

// 16 bytes moved by one instruction; each half is single-copy atomic, the whole is not.
struct alignas(16) vec16 {
  u64 lo, hi;
};

namespace hip {
WV_D constexpr int atomic_order(order o) {
  switch (o) {
    case order::relaxed: return __ATOMIC_RELAXED;
    case order::acquire: return __ATOMIC_ACQUIRE;
    case order::release: return __ATOMIC_RELEASE;
    case order::acq_rel: return __ATOMIC_ACQ_REL;
    case order::seq_cst: return __ATOMIC_SEQ_CST;
  }
  return __ATOMIC_SEQ_CST;
}
// A failed compare-and-swap stores nothing, so release has no part in it.
WV_D constexpr int failure_order(order o) {
  return o == order::release   ? __ATOMIC_RELAXED
         : o == order::acq_rel ? __ATOMIC_ACQUIRE
                               : atomic_order(o);
}
WV_D constexpr int memory_scope(scope s) {
  return s == scope::block ? __HIP_MEMORY_SCOPE_WORKGROUP
         : s == scope::gpu ? __HIP_MEMORY_SCOPE_AGENT
                           : __HIP_MEMORY_SCOPE_SYSTEM;
}
template <class T>
struct identity {
  using type = T;
};
// Keeps an argument out of deduction: only the pointer decides T.
template <class T>
using same = typename identity<T>::type;
}  // namespace hip

// The builtin wants literals.
#define WV_FENCE(o)                                      \
  if constexpr (S == scope::block) {                     \
    __builtin_amdgcn_fence(o, "workgroup");              \
  } else if constexpr (S == scope::gpu) {                \
    __builtin_amdgcn_fence(o, "agent");                  \
  } else {                                               \
    __builtin_amdgcn_fence(o, "");                       \
  }
namespace hip {
WV_D constexpr bool releases(order o) {
  return o == order::release || o == order::acq_rel || o == order::seq_cst;
}
// A release writes caches back before what it releases. LLVM before 22 (GFX12: before 21) drops the wait
// for that where the wavefront itself has no access under way, but others' may be among what is written.
template <order O, scope S>
WV_DEVICE void await_write_back() {
#if defined(__GFX9__)
  if constexpr (releases(O) && S != scope::block) asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#elif defined(__GFX12__)
  if constexpr (releases(O) && S != scope::block) asm volatile("s_wait_storecnt 0x0" ::: "memory");
#endif
}
}  // namespace hip

template <order O, scope S>
WV_DEVICE void fence() {
  static_assert(O != order::relaxed, "a relaxed fence does nothing");
  if constexpr (O == order::acquire) {
    WV_FENCE(__ATOMIC_ACQUIRE)
  } else if constexpr (O == order::release) {
    WV_FENCE(__ATOMIC_RELEASE)
  } else if constexpr (O == order::acq_rel) {
    WV_FENCE(__ATOMIC_ACQ_REL)
  } else {
    WV_FENCE(__ATOMIC_SEQ_CST)
  }
  hip::await_write_back<O, S>();
}
#undef WV_FENCE

namespace hip {
// The release of an operation comes before it as a fence, because of await_write_back; the rest of its
// order is what `behind` leaves.
template <order O, scope S>
WV_DEVICE void release_first() {
  if constexpr (releases(O) && S != scope::block) fence<order::release, S>();
}
WV_D constexpr order behind(order o, scope s) {
  return s == scope::block     ? o
         : o == order::release ? order::relaxed
         : o == order::acq_rel ? order::acquire
                               : o;
}
}  // namespace hip

// A pointer may be to memory of the block or the lane. Where it is to global memory for certain, the compiler
// is told so: `global_` instructions need no look at the address, and only one of the two counters to wait for.
namespace hip {
template <class T>
using global = __attribute__((address_space(1))) T*;
// Accesses that others than the block are to see.
template <scope S, class T>
WV_DEVICE auto place(T* p) {
  if constexpr (S == scope::block) return p;
  else return (global<T>)p;
}
}  // namespace hip

// As in arch.h.
#define WV_MEMORY_AT 1
template <class T>
WV_DEVICE T* memory_at(u64 address) {
  return (T*)(hip::global<T>)address;
}

// Bytes are volatile accesses, which go past the caches as relaxed ones do: clang 14 cannot select
// atomic accesses of 1 byte.
template <order O, scope S, class T>
WV_DEVICE T load(const T* p) {
  if constexpr (sizeof(T) == 1) {
    static_assert(O == order::relaxed, "bytes are relaxed");
    return *hip::place<S>(static_cast<const volatile T*>(p));
  } else {
    return __hip_atomic_load(hip::place<S>(const_cast<T*>(p)), hip::atomic_order(O), hip::memory_scope(S));
  }
}
template <order O, scope S, class T>
WV_DEVICE void store(T* p, hip::same<T> value) {
  if constexpr (sizeof(T) == 1) {
    static_assert(O == order::relaxed, "bytes are relaxed");
    *hip::place<S>(static_cast<volatile T*>(p)) = value;
  } else {
    hip::release_first<O, S>();
    __hip_atomic_store(hip::place<S>(p), value, hip::atomic_order(hip::behind(O, S)), hip::memory_scope(S));
  }
}

// Read-modify-write of 4 or 8 bytes; returns what *p was.
#define WV_ATOMIC(name, builtin)                                                             \
  template <order O, scope S, class T>                                                       \
  WV_DEVICE T name(T* p, hip::same<T> value) {                                               \
    hip::release_first<O, S>();                                                              \
    return builtin(hip::place<S>(p), value, hip::atomic_order(hip::behind(O, S)),            \
                   hip::memory_scope(S));                                                    \
  }
WV_ATOMIC(fetch_add, __hip_atomic_fetch_add)
WV_ATOMIC(fetch_or, __hip_atomic_fetch_or)
WV_ATOMIC(fetch_xor, __hip_atomic_fetch_xor)
// Raises *p to at least `value`.
WV_ATOMIC(fetch_max, __hip_atomic_fetch_max)
WV_ATOMIC(exchange, __hip_atomic_exchange)
#undef WV_ATOMIC

// Stores `desired` if *p is `expected`; returns what *p was.
template <order O, scope S, class T>
WV_DEVICE T compare_exchange(T* p, hip::same<T> expected, hip::same<T> desired) {
  hip::release_first<O, S>();
  constexpr order rest = hip::behind(O, S);
  __hip_atomic_compare_exchange_strong(hip::place<S>(p), &expected, desired, hip::atomic_order(rest),
                                       hip::failure_order(rest), hip::memory_scope(S));
  return expected;
}

// fetch_xor, fetch_max and fetch_add without results.
template <order O, scope S>
WV_DEVICE void flip(u64* p, u64 mask) {
  (void)fetch_xor<O, S>(p, mask);
}
template <order O, scope S>
WV_DEVICE void raise(u64* p, u64 value) {
  (void)fetch_max<O, S>(p, value);
}
template <order O, scope S>
WV_DEVICE void increase(u64* p, u64 value) {
  (void)fetch_add<O, S>(p, value);
}

// A plain load of what nobody writes while the kernel runs.
template <class T>
WV_DEVICE T load_constant(const T* p) {
  return *p;
}

// A plain 16-byte store: nobody may look before the next release has been acquired.
WV_DEVICE void write16(void* p, vec16 value) { *static_cast<vec16*>(p) = value; }

// A plain 16-byte load of bytes that nobody writes at the time.
WV_DEVICE vec16 read16(const void* p) { return *static_cast<const vec16*>(p); }
// The same for 8 bytes.
WV_DEVICE u64 read8(const u64* p) { return *p; }

// Relaxed; p is 16-byte aligned. There is no 16-byte atomic access: two of 8 bytes.
template <scope S>
WV_DEVICE void store16(void* p, vec16 value) {
  store<order::relaxed, S>(static_cast<u64*>(p), value.lo);
  store<order::relaxed, S>(static_cast<u64*>(p) + 1, value.hi);
}

// Both halves with the order given; which half is read first is not said.
template <order O, scope S>
WV_DEVICE vec16 load16(const void* p) {
  return {load<O, S>(static_cast<const u64*>(p)), load<O, S>(static_cast<const u64*>(p) + 1)};
}
template <scope S>
WV_DEVICE vec16 load16(const void* p) {
  return load16<order::relaxed, S>(p);
}

// Ticks of the constant clock in a millisecond: what the runtime reports as the device's wall clock rate in
// kHz, and passes when it compiles for one that differs from CDNA's.
#if !defined(WV_HIP_CLOCK_KHZ)
#define WV_HIP_CLOCK_KHZ 100000
#endif
namespace hip {
WV_D constexpr u64 ns_of_ticks(u64 ticks) {
  constexpr u64 khz = WV_HIP_CLOCK_KHZ, ns_of_ms = 1000000;
  if constexpr (ns_of_ms % khz == 0) return ticks * (ns_of_ms / khz);
  return ticks / khz * ns_of_ms + ticks % khz * ns_of_ms / khz;
}
static_assert(ns_of_ticks(WV_HIP_CLOCK_KHZ) == 1000000, "a millisecond");
}  // namespace hip

// Nanoseconds from an arbitrary zero, the same on all compute units.
WV_DEVICE u64 now_ns() {
#if __has_builtin(__builtin_readsteadycounter)
  return hip::ns_of_ticks(__builtin_readsteadycounter());
#else
  return hip::ns_of_ticks(__builtin_amdgcn_s_memrealtime());
#endif
}

// The finest clock there is, in a unit of its own: only differences on one thread mean anything.
WV_DEVICE u64 ticks() { return __builtin_readcyclecounter(); }

// The lane waits for another one; returns after about `ns`, or sooner.
WV_DEVICE void pause(u32 ns) {
  // s_sleep takes a constant, in units of 64 clocks, about 32 ns.
  for (u32 slept = 0; slept < ns; slept += 32) __builtin_amdgcn_s_sleep(1);
}
// Between two looks of a wait that is about to end: gives way where lanes would otherwise not run.
WV_DEVICE void give_way() {}

// Stores of one instruction to the same line are one transfer.
constexpr bool lanes_fill_lines = true;
// Blocks and grids of any shape, numbered x first, as the hardware fills wavefronts. Grids are
// whole numbers of blocks.
WV_DEVICE u32 thread_index() {
  const u32 x = __builtin_amdgcn_workgroup_size_x(), y = __builtin_amdgcn_workgroup_size_y();
  return __builtin_amdgcn_workitem_id_x() +
         x * (__builtin_amdgcn_workitem_id_y() + y * __builtin_amdgcn_workitem_id_z());
}
namespace hip {
WV_DEVICE u32 blocks_x() {
  return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
}
WV_DEVICE u32 blocks_y() {
  return __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y();
}
}  // namespace hip
WV_DEVICE u32 block_index() {
  return __builtin_amdgcn_workgroup_id_x() +
         hip::blocks_x() *
             (__builtin_amdgcn_workgroup_id_y() + hip::blocks_y() * __builtin_amdgcn_workgroup_id_z());
}
WV_DEVICE u32 block_size() {
  return __builtin_amdgcn_workgroup_size_x() * __builtin_amdgcn_workgroup_size_y() *
         __builtin_amdgcn_workgroup_size_z();
}
WV_DEVICE u32 grid_size() {
  return hip::blocks_x() * hip::blocks_y() *
         (__builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z());
}
// Number of lanes of `mask` before the caller.
WV_DEVICE u32 rank_in(lane_mask mask) {
  const u32 low = __builtin_amdgcn_mbcnt_lo(static_cast<u32>(mask), 0);
  if constexpr (warp_size == 32) return low;
  return __builtin_amdgcn_mbcnt_hi(static_cast<u32>(u64{mask} >> 32), low);
}
WV_DEVICE u32 lane_id() { return rank_in(~lane_mask{0}); }
WV_DEVICE u32 warp_index() { return thread_index() / warp_size; }

WV_DEVICE u32 popcount(u32 x) { return static_cast<u32>(__builtin_popcount(x)); }
WV_DEVICE u32 popcount(u64 x) { return static_cast<u32>(__builtin_popcountll(x)); }
// Index of the lowest set bit; x is not 0.
WV_DEVICE u32 lowest_bit(u32 x) { return static_cast<u32>(__builtin_ctz(x)); }
WV_DEVICE u32 lowest_bit(u64 x) { return static_cast<u32>(__builtin_ctzll(x)); }
// Index of the highest set bit; x is not 0.
WV_DEVICE u32 highest_bit(u32 x) { return 31u - static_cast<u32>(__builtin_clz(x)); }
WV_DEVICE u32 highest_bit(u64 x) { return 63u - static_cast<u32>(__builtin_clzll(x)); }

namespace hip {
// Lanes that came here together and of which it holds.
WV_DEVICE lane_mask lanes_where(bool holds) {
#if WV_HIP_LANES == 64 && __has_builtin(__builtin_amdgcn_ballot_w64)
  return __builtin_amdgcn_ballot_w64(holds);
#elif WV_HIP_LANES == 64
  // The compiler of HIP 5 only has a comparison that every lane makes; 33 is "not equal".
  return __builtin_amdgcn_uicmp(static_cast<u32>(holds), 0u, 33);
#else
  return __builtin_amdgcn_ballot_w32(holds);
#endif
}
}  // namespace hip

// Lanes of this wavefront that came here together, this one included.
WV_DEVICE lane_mask active_mask(site) { return hip::lanes_where(true); }

// Collectives: every lane of `mask` calls the same one with the same mask, and is in the mask.
WV_DEVICE u32 shfl(lane_mask, u32 value, u32 source_lane) {
  return static_cast<u32>(
      __builtin_amdgcn_ds_bpermute(static_cast<int>(source_lane * 4), static_cast<int>(value)));
}
WV_DEVICE u64 shfl(lane_mask mask, u64 value, u32 source_lane) {
  const u32 lo = shfl(mask, static_cast<u32>(value), source_lane);
  const u32 hi = shfl(mask, static_cast<u32>(value >> 32), source_lane);
  return static_cast<u64>(hi) << 32 | lo;
}
WV_DEVICE lane_mask ballot(lane_mask mask, bool predicate) {
  // Lanes that are not here count as false.
  return hip::lanes_where(predicate) & mask;
}
// Lanes of `mask` whose value equals this lane's. Lanes leave as their value is called.
template <class T>
WV_DEVICE lane_mask match_any(lane_mask mask, T value) {
  for (lane_mask left = mask;;) {
    const T chosen = shfl(left, value, lowest_bit(left));
    const lane_mask same = ballot(left, value == chosen);
    if (value == chosen) return same;
    left &= ~same;
  }
}
// Orders memory among the lanes of the wavefront, which runs in lockstep.
WV_DEVICE void sync_warp(lane_mask) {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
// Also orders memory among the lanes of the block.
WV_DEVICE void sync_block() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
  __builtin_amdgcn_s_barrier();
}

// sync_block, and whether it holds for any lane of the block.
WV_DEVICE bool any_in_block(bool holds) {
  WV_SHARED(u32, found);
  if (thread_index() == 0) found = 0;
  sync_block();
  if (holds) found = 1;
  sync_block();
  const bool result = found != 0;
  // The next call must not overtake a slow reader of this one.
  sync_block();
  return result;
}

// Lanes that parted make no progress until the others come back to them.
WV_DEVICE constexpr bool lockstep() { return true; }

// The lanes that began it together end it together. The compiler may not move what is inside behind the
// exit of a loop around it, which is where a lane would wait for those that still loop: it neither
// duplicates a convergent operation nor makes it depend on a further condition.
struct Unbroken {
  explicit WV_DEVICE Unbroken(lane_mask) {}
  WV_DEVICE ~Unbroken() { __builtin_amdgcn_wave_barrier(); }
};

// Adds to a word of shared memory that other lanes of the block add to as well.
WV_DEVICE void add_shared(u32* word, u32 more) {
  (void)__hip_atomic_fetch_add(word, more, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

// Ends the whole launch with an error.
WV_DEVICE void trap() { __builtin_trap(); }

// a * b + c, rounded once, to the nearest and even; small numbers are not flushed to zero.
WV_DEVICE f32 multiply_add(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
// a / b, rounded once, to the nearest and even.
WV_DEVICE f32 divide(f32 a, f32 b) { return a / b; }

}  // namespace wv

#include "warpverbs/arch/no_bulk.h"

namespace wv {
// Nothing is lent where there are no bulk copies.
WV_DEVICE u8* dynamic_shared(u32) { return nullptr; }
}  // namespace wv
