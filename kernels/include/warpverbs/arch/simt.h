// Host SIMT: the same names as cuda.h, for kernels compiled by the host's C++20 compiler.
// A lane is a coroutine of the launch's thread; every memory operation is a possible switch point.
#pragma once

#include "warpverbs/arch/host.h"

#define WV_ARCH_SIMT 1

extern "C" {
// State that a lane and the scheduler share; layout as in crates/gpu/src/simt/abi.rs.
struct wv_simt_lane {
  wv::host::lane_place place;
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
wv::u64 wv_simt_active(const char* file, wv::u32 line);
wv::u64 wv_simt_collective(wv::u64 mask, wv::u32 op, wv::u64 value, wv::u32 arg, const char* file, wv::u32 line);
void wv_simt_block_sync(const char* file, wv::u32 line);
// Until the release, lanes of `mask` alone have turns in the caller's warp.
void wv_simt_hold(wv::u64 mask);
void wv_simt_release();
void* wv_simt_shared(wv::u64 size, wv::u64 align, const void* key);
[[noreturn]] void wv_simt_trap(const char* file, wv::u32 line);
}

namespace wv {
namespace host {
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

enum class op : u32 { none, load, store, update, fence };

inline void point(op what, const volatile void* addr, site where) {
  wv_simt_lane* self = wv_simt_current.self;
  self->op = static_cast<u32>(what);
  self->addr = addr;
  self->file = where.file;
  self->line = where.line;
  if (--wv_simt_current.countdown == 0) wv_simt_switch();
}

template <order O, scope S, word T>
inline T load(const T* p, site where) {
  point(op::load, p, where);
  T value;
  __atomic_load(const_cast<T*>(p), &value, atomic_order(O));
  return value;
}

template <order O, scope S, word T>
inline void store(T* p, T value, site where) {
  point(op::store, p, where);
  __atomic_store(p, &value, atomic_order(O));
}

template <order O, scope S, atomic_word T>
inline T compare_exchange(T* p, T expected, T desired, site where) {
  point(op::update, p, where);
  __atomic_compare_exchange_n(p, &expected, desired, false, atomic_order(O),
                              atomic_order(on_failure(O)));
  return expected;
}

template <rmw What, order O, scope S, atomic_word T>
inline T update(T* p, T value, site where) {
  constexpr int memory_order = atomic_order(O);
  point(op::update, p, where);
  if constexpr (What == rmw::exchange) return __atomic_exchange_n(p, value, memory_order);
  if constexpr (What == rmw::add) return __atomic_fetch_add(p, value, memory_order);
  if constexpr (What == rmw::bit_and) return __atomic_fetch_and(p, value, memory_order);
  if constexpr (What == rmw::bit_or) return __atomic_fetch_or(p, value, memory_order);
  if constexpr (What == rmw::bit_xor) return __atomic_fetch_xor(p, value, memory_order);
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, old < value ? value : old, true, memory_order,
                                      atomic_order(on_failure(O)))) {
  }
  return old;
}

inline void write16(void* p, vec16 value, site where) {
  u64* half = static_cast<u64*>(p);
  store<order::relaxed, scope::system>(half, value.lo, where);
  store<order::relaxed, scope::system>(half + 1, value.hi, where);
}

inline u64 read8(const u64* p, site where) {
  return load<order::relaxed, scope::system>(p, where);
}
inline vec16 read16(const void* p, site where) {
  const u64* half = static_cast<const u64*>(p);
  const u64 lo = read8(half, where);
  return {lo, read8(half + 1, where)};
}

template <order O, scope S>
inline void fence(site where) {
  point(op::fence, nullptr, where);
  __atomic_thread_fence(atomic_order(O));
}

inline u64 clock() { return wv_simt_now_ns(); }
inline void pause(u32 ns, site where) { wv_simt_pause(ns, where.file, where.line); }
inline const lane_place& place() { return wv_simt_current.self->place; }
inline lane_mask active(site where) {
  return static_cast<lane_mask>(wv_simt_active(where.file, where.line));
}
inline u64 gather(collective what, lane_mask mask, u64 value, u32 arg, site where) {
  return wv_simt_collective(mask, static_cast<u32>(what), value, arg, where.file, where.line);
}
inline void block_sync(site where) { wv_simt_block_sync(where.file, where.line); }
inline void hold(lane_mask mask) { wv_simt_hold(mask); }
inline void release() { wv_simt_release(); }
template <class T>
T& shared(const void* key) {
  return *static_cast<T*>(wv_simt_shared(sizeof(T), alignof(T), key));
}
[[noreturn]] inline void trap(site where) { wv_simt_trap(where.file, where.line); }
}  // namespace host
}  // namespace wv

#include "warpverbs/arch/host_ops.h"

namespace wv {
// The content of fresh shared memory; crates/gpu/src/simt/block.rs.
constexpr u32 shared_fill = 0xcdcdcdcd;

// sync_block, at the start of a call that every thread of the block has to make; traps if some of
// them do not.
inline void assemble_block(site where = site::here()) {
  // How many have come, in all calls so far. Lanes take turns: the sum needs no atomic.
  WV_SHARED(u32, arrivals);
  arrivals += 1;
  sync_block(where);
  if ((arrivals - shared_fill) % block_size() != 0) trap(where);
  // The next call must not overtake a slow reader of this one.
  sync_block(where);
}
}  // namespace wv

#include "warpverbs/arch/simt_bulk.h"
