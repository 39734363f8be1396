// Host SIMT: the same names as cuda.h, for kernels compiled by the host's C++20 compiler.
// A lane is a coroutine of the launch's thread; every memory operation is a possible switch point.
#pragma once

#include "warpverbs/arch/types.h"

#define WV_ARCH_SIMT 1
// An inline function of the device library.
#define WV_DEVICE inline
#define WV_NOINLINE [[gnu::noinline]]
// WV_KERNEL(name)(const wv::Qp* qp, wv::u32 count) { … }
#define WV_KERNEL(name) static void name
// WV_SHARED(type, name): uninitialised memory of the block; `type` may be an alias of an array.
#define WV_SHARED(type, name)               \
  static const char wv_shared_key_##name{}; \
  auto& name = ::wv::simt::shared<type>(&wv_shared_key_##name)
// A place in the source, for active_mask and for reports.
#define WV_SITE (::wv::site{__FILE__, __LINE__})

namespace wv {
struct site {
  const char* file;
  u32 line;
  // As a default argument: the place of the call that leaves it out.
  static constexpr site here(const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
    return {file, line};
  }
};
}  // namespace wv

extern "C" {
// What a lane and the scheduler share; layout as in crates/gpu/src/simt/abi.rs.
struct wv_simt_lane {
  wv::u32 lane, warp, thread, block, block_dim, grid_dim;
  // Of the last memory operation, for reports.
  wv::u32 line;
  wv::u32 op;
  const char* file;
  const volatile void* addr;
};
struct wv_simt_tls {
  // Operations left until the next switch.
  wv::u64 countdown;
  wv_simt_lane* self;
};
extern __thread wv_simt_tls wv_simt_current;

// The countdown has run out: the lane may be switched.
void wv_simt_switch();
// The lane waits; `file` and `line` say where, here and below.
void wv_simt_pause(wv::u64 ns, const char* file, wv::u32 line);
wv::u64 wv_simt_now_ns();
wv::u32 wv_simt_active(const char* file, wv::u32 line);
wv::u64 wv_simt_collective(wv::u32 mask, wv::u32 op, wv::u64 value, wv::u32 arg, const char* file, wv::u32 line);
void wv_simt_block_sync(const char* file, wv::u32 line);
void* wv_simt_shared(wv::u64 size, wv::u64 align, const void* key);
[[noreturn]] void wv_simt_trap(const char* file, wv::u32 line);
}

namespace wv {
using lane_mask = u32;

enum class order { relaxed, acquire, release, acq_rel, seq_cst };
// Who must see it: the block, the device, or everybody including NIC and host.
enum class scope { block, gpu, system };

// 16 bytes moved by one instruction on a GPU; each half is single-copy atomic, the whole is not.
struct alignas(16) vec16 {
  u64 lo, hi;
};

namespace simt {
constexpr int atomic_order(order o) {
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
constexpr int failure_order(order o) {
  return o == order::release ? __ATOMIC_RELAXED
     : o == order::acq_rel ? __ATOMIC_ACQUIRE : atomic_order(o);
}

enum class op : u32 { none, load, store, update, fence };
enum class collective : u32 { sync, shfl, ballot, match_any };

inline void point(op what, const volatile void* addr, site where) {
  wv_simt_lane* self = wv_simt_current.self;
  self->op = static_cast<u32>(what);
  self->addr = addr;
  self->file = where.file;
  self->line = where.line;
  if (--wv_simt_current.countdown == 0) wv_simt_switch();
}

template <class T>
T& shared(const void* key) {
  return *static_cast<T*>(wv_simt_shared(sizeof(T), alignof(T), key));
}

template <class T>
struct identity {
  using type = T;
};
// Keeps an argument out of deduction: only the pointer decides T.
template <class T>
using same = typename identity<T>::type;

template <class T>
concept word = __is_trivially_copyable(T) && (sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8);
template <class T>
concept atomic_word = word<T> && sizeof(T) >= 4;
// The same refusals as in cuda.h, where PTX has no other instructions.
constexpr bool loads(order o) { return o == order::relaxed || o == order::acquire; }
constexpr bool stores(order o) { return o == order::relaxed || o == order::release; }
}  // namespace simt

// The last parameter of the functions below is the caller's place, never given by hand.
#define WV_HERE site where = site::here()

// T is an integer of 1, 4 or 8 bytes; 4 or 8 for what reads and writes. Order and scope are never
// implied.
template <order O, scope S, simt::word T>
  requires(simt::loads(O))
inline T load(const T* p, WV_HERE) {
  simt::point(simt::op::load, p, where);
  T value;
  __atomic_load(const_cast<T*>(p), &value, simt::atomic_order(O));
  return value;
}

template <order O, scope S, simt::word T>
  requires(simt::stores(O))
inline void store(T* p, simt::same<T> value, WV_HERE) {
  simt::point(simt::op::store, p, where);
  __atomic_store(p, &value, simt::atomic_order(O));
}

template <order O, scope S, simt::atomic_word T>
  requires(O != order::seq_cst)
inline T exchange(T* p, simt::same<T> value, WV_HERE) {
  simt::point(simt::op::update, p, where);
  return __atomic_exchange_n(p, value, simt::atomic_order(O));
}

// Stores `desired` if *p is `expected`; returns what *p was.
template <order O, scope S, simt::atomic_word T>
  requires(O != order::seq_cst)
inline T compare_exchange(T* p, simt::same<T> expected, simt::same<T> desired, WV_HERE) {
  simt::point(simt::op::update, p, where);
  __atomic_compare_exchange_n(p, &expected, desired, false, simt::atomic_order(O),
                simt::failure_order(O));
  return expected;
}

// fetch_*: *p = *p op value; returns what *p was.
#define WV_FETCH(name, builtin)                      \
  template <order O, scope S, simt::atomic_word T>   \
    requires(O != order::seq_cst)                    \
  inline T name(T* p, simt::same<T> value, WV_HERE) { \
    simt::point(simt::op::update, p, where);         \
    return builtin(p, value, simt::atomic_order(O)); \
  }
WV_FETCH(fetch_add, __atomic_fetch_add)
WV_FETCH(fetch_and, __atomic_fetch_and)
WV_FETCH(fetch_or, __atomic_fetch_or)
WV_FETCH(fetch_xor, __atomic_fetch_xor)
#undef WV_FETCH

// Raises *p to at least `value`; returns what *p was.
template <order O, scope S, simt::atomic_word T>
  requires(O != order::seq_cst)
inline T fetch_max(T* p, simt::same<T> value, WV_HERE) {
  simt::point(simt::op::update, p, where);
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, old < value ? value : old, true,
                    simt::atomic_order(O), simt::failure_order(O))) {
  }
  return old;
}

// fetch_xor and fetch_max whose results nobody wants.
template <order O, scope S>
inline void flip(u64* p, u64 mask, WV_HERE) {
  (void)fetch_xor<O, S>(p, mask, where);
}
template <order O, scope S>
inline void raise(u64* p, u64 value, WV_HERE) {
  (void)fetch_max<O, S>(p, value, where);
}

// Both halves with the order given; which half is read first is not said, and others may write
// between them.
template <order O, scope S>
  requires(simt::loads(O))
inline vec16 load16(const void* p, WV_HERE) {
  const u64* half = static_cast<const u64*>(p);
  const u64 lo = load<O, S>(half, where);
  return {lo, load<O, S>(half + 1, where)};
}
template <scope S>
inline vec16 load16(const void* p, WV_HERE) {
  return load16<order::relaxed, S>(p, where);
}

// Relaxed; p is 16-byte aligned.
template <scope S>
inline void store16(void* p, vec16 value, WV_HERE) {
  u64* half = static_cast<u64*>(p);
  store<order::relaxed, S>(half, value.lo, where);
  store<order::relaxed, S>(half + 1, value.hi, where);
}

// A plain 16-byte store: nobody may look before the next release has been acquired.
inline void write16(void* p, vec16 value, WV_HERE) { store16<scope::system>(p, value, where); }

template <order O, scope S>
  requires(O != order::relaxed)
inline void fence(WV_HERE) {
  simt::point(simt::op::fence, nullptr, where);
  __atomic_thread_fence(simt::atomic_order(O));
}

// Nanoseconds from an arbitrary zero; never goes back within a launch.
inline u64 now_ns() { return wv_simt_now_ns(); }

// The finest clock there is, in a unit of its own: only differences on one thread mean anything.
inline u64 ticks() { return wv_simt_now_ns(); }

// The lane is waiting for somebody else; comes back after about `ns`, or sooner.
inline void pause(u32 ns, WV_HERE) { wv_simt_pause(ns, where.file, where.line); }

constexpr u32 warp_size = 32;
inline u32 lane_id() { return wv_simt_current.self->lane; }
inline u32 warp_index() { return wv_simt_current.self->warp; }
inline u32 thread_index() { return wv_simt_current.self->thread; }
inline u32 block_index() { return wv_simt_current.self->block; }
inline u32 block_size() { return wv_simt_current.self->block_dim; }
inline u32 grid_size() { return wv_simt_current.self->grid_dim; }

// Lanes of this warp that came here together, this one included: any set the scheduler likes.
inline u32 active_mask(site where) { return wv_simt_active(where.file, where.line); }

namespace simt {
template <word T>
inline u64 bits(T value) {
  u64 out = 0;
  __builtin_memcpy(&out, &value, sizeof(T));
  return out;
}
template <word T>
inline T unbits(u64 raw) {
  T out;
  __builtin_memcpy(&out, &raw, sizeof(T));
  return out;
}
inline u64 gather(collective what, u32 mask, u64 value, u32 arg, site where) {
  return wv_simt_collective(mask, static_cast<u32>(what), value, arg, where.file, where.line);
}
}  // namespace simt

// Collectives: every lane of `mask` calls the same one with the same mask, and is in the mask.
template <simt::word T>
inline T shfl(u32 mask, T value, u32 source_lane, WV_HERE) {
  return simt::unbits<T>(
    simt::gather(simt::collective::shfl, mask, simt::bits(value), source_lane, where));
}
inline u32 ballot(u32 mask, bool predicate, WV_HERE) {
  return static_cast<u32>(simt::gather(simt::collective::ballot, mask, predicate, 0, where));
}
// Lanes of `mask` whose value equals this lane's.
template <simt::word T>
inline u32 match_any(u32 mask, T value, WV_HERE) {
  return static_cast<u32>(
    simt::gather(simt::collective::match_any, mask, simt::bits(value), 0, where));
}
// Also orders memory among the lanes of `mask`.
inline void sync_warp(u32 mask, WV_HERE) { simt::gather(simt::collective::sync, mask, 0, 0, where); }
// Also orders memory among the lanes of the block.
inline void sync_block(WV_HERE) { wv_simt_block_sync(where.file, where.line); }

// Ends the whole launch with an error that names the place.
[[noreturn]] inline void trap(WV_HERE) { wv_simt_trap(where.file, where.line); }
#undef WV_HERE

inline u32 popcount(u32 x) { return static_cast<u32>(__builtin_popcount(x)); }
inline u32 popcount(u64 x) { return static_cast<u32>(__builtin_popcountll(x)); }
// Index of the lowest set bit; x is not 0.
inline u32 lowest_bit(u32 x) { return static_cast<u32>(__builtin_ctz(x)); }
inline u32 lowest_bit(u64 x) { return static_cast<u32>(__builtin_ctzll(x)); }
// Index of the highest set bit; x is not 0.
inline u32 highest_bit(u32 x) { return 31u - static_cast<u32>(__builtin_clz(x)); }
inline u32 highest_bit(u64 x) { return 63u - static_cast<u32>(__builtin_clzll(x)); }
inline u16 swap_bytes(u16 x) { return __builtin_bswap16(x); }
inline u32 swap_bytes(u32 x) { return __builtin_bswap32(x); }
inline u64 swap_bytes(u64 x) { return __builtin_bswap64(x); }

}  // namespace wv
