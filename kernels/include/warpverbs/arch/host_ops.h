// Common part of the two host builds of the device library, second part: memory operations,
// collectives and bits, over the functions of namespace `host` that simt.h or check.h has defined:
//   load store update compare_exchange fence read8 read16 write16   memory, with order and scope as parameters
//   clock pause place active gather block_sync hold release shared trap
#pragma once

#include "warpverbs/arch/host.h"

namespace wv {

// T is an integer of 1, 4 or 8 bytes; 4 or 8 for what reads and writes. Order and scope are never
// implied.
template <order O, scope S, host::word T>
  requires(host::loads(O))
inline T load(const T* p, WV_HERE) {
  return host::load<O, S>(p, where);
}

template <order O, scope S, host::word T>
  requires(host::stores(O))
inline void store(T* p, host::same<T> value, WV_HERE) {
  host::store<O, S>(p, value, where);
}

// Stores `desired` if *p is `expected`; returns what *p was.
template <order O, scope S, host::atomic_word T>
  requires(O != order::seq_cst)
inline T compare_exchange(T* p, host::same<T> expected, host::same<T> desired, WV_HERE) {
  return host::compare_exchange<O, S>(p, expected, desired, where);
}

// exchange: *p = value. fetch_*: *p = *p op value; fetch_max raises *p to at least `value`.
// All return what *p was.
#define WV_UPDATE(name, what)                                     \
  template <order O, scope S, host::atomic_word T>                \
    requires(O != order::seq_cst)                                 \
  inline T name(T* p, host::same<T> value, WV_HERE) {             \
    return host::update<host::rmw::what, O, S>(p, value, where);  \
  }
WV_UPDATE(exchange, exchange)
WV_UPDATE(fetch_add, add)
WV_UPDATE(fetch_or, bit_or)
WV_UPDATE(fetch_xor, bit_xor)
WV_UPDATE(fetch_max, max)
#undef WV_UPDATE

// fetch_xor, fetch_max and fetch_add without results.
template <order O, scope S>
inline void flip(u64* p, u64 mask, WV_HERE) {
  (void)fetch_xor<O, S>(p, mask, where);
}
template <order O, scope S>
inline void raise(u64* p, u64 value, WV_HERE) {
  (void)fetch_max<O, S>(p, value, where);
}
template <order O, scope S>
inline void increase(u64* p, u64 value, WV_HERE) {
  (void)fetch_add<O, S>(p, value, where);
}

// Both halves with the order given; which half is read first is not said, and others may write
// between them.
template <order O, scope S>
  requires(host::loads(O))
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
inline void write16(void* p, vec16 value, WV_HERE) { host::write16(p, value, where); }

// A plain 16-byte load of bytes that nobody writes at the time.
inline vec16 read16(const void* p, WV_HERE) { return host::read16(p, where); }
// The same for 8 bytes.
inline u64 read8(const u64* p, WV_HERE) { return host::read8(p, where); }

template <order O, scope S>
  requires(O != order::relaxed)
inline void fence(WV_HERE) {
  host::fence<O, S>(where);
}

// Nanoseconds from an arbitrary zero; never goes back within a launch.
inline u64 now_ns() { return host::clock(); }

// The finest clock there is, in a unit of its own: only differences on one thread mean anything.
inline u64 ticks() { return host::clock(); }

// The lane is waiting for somebody else; comes back after about `ns`, or sooner.
inline void pause(u32 ns, WV_HERE) { host::pause(ns, where); }
// Between two looks of a wait that is about to end: gives way where lanes would otherwise not run.
inline void give_way(WV_HERE) { host::pause(0, where); }

// Stores of one instruction to the same line are one transfer. Lanes of the host take turns.
constexpr bool lanes_fill_lines = false;
inline u32 lane_id() { return host::place().lane; }
inline u32 warp_index() { return host::place().warp; }
inline u32 thread_index() { return host::place().thread; }
inline u32 block_index() { return host::place().block; }
inline u32 block_size() { return host::place().block_dim; }
inline u32 grid_size() { return host::place().grid_dim; }

// Lanes of this warp that came here together, this one included: any set the scheduler likes.
inline lane_mask active_mask(site where) { return host::active(where); }

// Collectives: every lane of `mask` calls the same one with the same mask, and is in the mask.
template <host::word T>
inline T shfl(lane_mask mask, T value, u32 source_lane, WV_HERE) {
  return host::unbits<T>(
    host::gather(host::collective::shfl, mask, host::bits(value), source_lane, where));
}
inline lane_mask ballot(lane_mask mask, bool predicate, WV_HERE) {
  return static_cast<lane_mask>(host::gather(host::collective::ballot, mask, predicate, 0, where));
}
// Lanes of `mask` whose value equals this lane's.
template <host::word T>
inline lane_mask match_any(lane_mask mask, T value, WV_HERE) {
  return static_cast<lane_mask>(
    host::gather(host::collective::match_any, mask, host::bits(value), 0, where));
}
// Also orders memory among the lanes of `mask`.
inline void sync_warp(lane_mask mask, WV_HERE) { host::gather(host::collective::sync, mask, 0, 0, where); }
// Also orders memory among the lanes of the block.
inline void sync_block(WV_HERE) { host::block_sync(where); }
// sync_block, and whether it holds for any lane of the block.
inline bool any_in_block(bool holds, WV_HERE) {
  WV_SHARED(u32, found);
  if (thread_index() == 0) found = 0;
  sync_block(where);
  if (holds) found = 1;
  sync_block(where);
  const bool result = found != 0;
  // The next call must not overtake a slow reader of this one.
  sync_block(where);
  return result;
}

// Whether lanes that parted make no progress until the others come back to them.
inline bool lockstep() { return host::place().lockstep != 0; }

// While it lives, no lane of the warp but those of `mask` runs where lanes run in lockstep. For what must
// not be left half done while another lane of the warp spins.
class Unbroken {
 public:
  explicit Unbroken(lane_mask mask) : held_(lockstep()) {
    if (held_) host::hold(mask);
  }
  ~Unbroken() {
    if (held_) host::release();
  }
  Unbroken(const Unbroken&) = delete;
  Unbroken& operator=(const Unbroken&) = delete;

 private:
  bool held_;
};

// Adds to a word of shared memory that other lanes of the block add to as well. Lanes take turns: the sum
// needs no atomic.
inline void add_shared(u32* word, u32 more) { *word += more; }

// Ends the whole launch with an error that names the place.
[[noreturn]] inline void trap(WV_HERE) { host::trap(where); }
#undef WV_HERE

inline u32 popcount(u32 x) { return static_cast<u32>(__builtin_popcount(x)); }
inline u32 popcount(u64 x) { return static_cast<u32>(__builtin_popcountll(x)); }
// Number of lanes of `mask` before the caller.
inline u32 rank_in(lane_mask mask) {
  return popcount(mask & ((lane_mask{1} << lane_id()) - 1));
}
// Index of the lowest set bit; x is not 0.
inline u32 lowest_bit(u32 x) { return static_cast<u32>(__builtin_ctz(x)); }
inline u32 lowest_bit(u64 x) { return static_cast<u32>(__builtin_ctzll(x)); }
// Index of the highest set bit; x is not 0.
inline u32 highest_bit(u32 x) { return 31u - static_cast<u32>(__builtin_clz(x)); }
inline u32 highest_bit(u64 x) { return 63u - static_cast<u32>(__builtin_clzll(x)); }
// a * b + c, rounded once, to the nearest and even.
inline f32 multiply_add(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
// a / b, rounded once, to the nearest and even.
inline f32 divide(f32 a, f32 b) { return a / b; }
inline u16 swap_bytes(u16 x) { return __builtin_bswap16(x); }
inline u32 swap_bytes(u32 x) { return __builtin_bswap32(x); }
inline u64 swap_bytes(u64 x) { return __builtin_bswap64(x); }

}  // namespace wv
