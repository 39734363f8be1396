// The model checker's build (crates/modelcheck): the same names as cuda.h, for kernels compiled by
// the host's C++20 compiler, in which no memory operation touches memory. Each is handed to the
// checker with its address, size, order, scope and place in the source, and the checker answers
// with a value that the memory model permits. Addresses are the checker's and are never followed.
#pragma once

#include "warpverbs/arch/host.h"

#define WV_ARCH_CHECK 1

extern "C" {
// One memory operation; layout as in crates/modelcheck/src/fiber.rs.
struct wv_check_operation {
  wv::u64 addr;
  // Stored, or the operand; `desired` of a compare-and-swap.
  wv::u64 value;
  wv::u64 expected;
  wv::u32 kind;
  wv::u32 size;
  wv::u32 order;
  wv::u32 scope;
  const char* file;
  wv::u32 line;
};
// The value that the location held, for operations that read.
wv::u64 wv_check_operate(const wv_check_operation* operation);
const wv::host::lane_place* wv_check_place();
wv::u64 wv_check_clock();
void wv_check_pause();
wv::u32 wv_check_active(const char* file, wv::u32 line);
void wv_check_hold(wv::u32 mask);
void wv_check_release();
wv::u64 wv_check_collective(wv::u32 mask, wv::u32 op, wv::u64 value, wv::u32 arg, const char* file, wv::u32 line);
void wv_check_block_sync(const char* file, wv::u32 line);
void wv_check_note(wv::u32 index, wv::u64 value);
[[noreturn]] void wv_check_fail(const char* what, const char* file, wv::u32 line);
}

namespace wv {
namespace host {
enum class kind : u32 { load, store, compare_exchange, fence, read, write, update };

template <class T>
inline u64 operate(kind what, const T* p, u64 value, u64 expected, order o, scope s, site where) {
  const wv_check_operation operation{reinterpret_cast<u64>(p), value, expected,
                                     static_cast<u32>(what), static_cast<u32>(sizeof(T)),
                                     static_cast<u32>(o), static_cast<u32>(s),
                                     where.file, where.line};
  return wv_check_operate(&operation);
}

template <order O, scope S, word T>
inline T load(const T* p, site where) {
  return unbits<T>(operate(kind::load, p, 0, 0, O, S, where));
}

template <order O, scope S, word T>
inline void store(T* p, T value, site where) {
  operate(kind::store, p, bits(value), 0, O, S, where);
}

template <order O, scope S, atomic_word T>
inline T compare_exchange(T* p, T expected, T desired, site where) {
  return unbits<T>(
    operate(kind::compare_exchange, p, bits(desired), bits(expected), O, S, where));
}

// The operation is told by its distance from kind::update.
template <rmw What, order O, scope S, atomic_word T>
inline T update(T* p, T value, site where) {
  const auto what = static_cast<kind>(static_cast<u32>(kind::update) + static_cast<u32>(What));
  return unbits<T>(operate(what, p, bits(value), 0, O, S, where));
}

// A plain access: the checker fails the run unless every conflicting one is ordered before it.
inline void write(u64* p, u64 value, site where) {
  operate(kind::write, p, value, 0, order::relaxed, scope::block, where);
}
inline u64 read8(const u64* p, site where) {
  return operate(kind::read, p, 0, 0, order::relaxed, scope::block, where);
}
inline void write16(void* p, vec16 value, site where) {
  u64* half = static_cast<u64*>(p);
  write(half, value.lo, where);
  write(half + 1, value.hi, where);
}

inline vec16 read16(const void* p, site where) {
  const u64* half = static_cast<const u64*>(p);
  const u64 lo = read8(half, where);
  return {lo, read8(half + 1, where)};
}

template <order O, scope S>
inline void fence(site where) {
  operate(kind::fence, static_cast<const u8*>(nullptr), 0, 0, O, S, where);
}

inline u64 clock() { return wv_check_clock(); }
inline void pause(u32, site) { wv_check_pause(); }
inline const lane_place& place() { return *wv_check_place(); }
inline u32 active(site where) { return wv_check_active(where.file, where.line); }
inline u64 gather(collective what, u32 mask, u64 value, u32 arg, site where) {
  return wv_check_collective(mask, static_cast<u32>(what), value, arg, where.file, where.line);
}
inline void hold(u32 mask) { wv_check_hold(mask); }
inline void release() { wv_check_release(); }
inline void block_sync(site where) { wv_check_block_sync(where.file, where.line); }
// Memory of the block. Small structures are assigned and read whole, and count as one plain word of the
// checker's; the rest is not checked.
constexpr u64 shared_word = 0x111000;  // Of each block, as in crates/modelcheck/src/world.rs.
constexpr u32 shared_blocks = 4;
inline u64* word_of_block() { return reinterpret_cast<u64*>(shared_word) + place().block; }
template <class T>
struct shared_object {
  T value;
  site where;
  void operator=(const T& v) {
    write(word_of_block(), 0, where);
    value = v;
  }
  operator T() const {
    (void)read8(word_of_block(), where);
    return value;
  }
};
template <class T>
auto& shared(const void*, WV_HERE) {
  if constexpr (__is_class(T) && sizeof(T) <= 64) {
    static thread_local shared_object<T> memory[shared_blocks];
    shared_object<T>& here = memory[place().block];
    here.where = where;
    return here;
  } else {
    static thread_local T memory[shared_blocks];
    return memory[place().block];
  }
}
[[noreturn]] inline void trap(site where) { wv_check_fail("trap", where.file, where.line); }
}  // namespace host

// For the checker's own kernels.
namespace check {
inline void write(u64 addr, u64 value, WV_HERE) {
  host::write(reinterpret_cast<u64*>(addr), value, where);
}
inline u64 read(u64 addr, WV_HERE) { return host::read8(reinterpret_cast<u64*>(addr), where); }
inline void require(bool holds, const char* what, WV_HERE) {
  if (!holds) wv_check_fail(what, where.file, where.line);
}
// Leaves a value for the scenario's last check.
inline void note(u32 index, u64 value) { wv_check_note(index, value); }
}  // namespace check
}  // namespace wv

#include "warpverbs/arch/host_ops.h"
#include "warpverbs/arch/no_bulk.h"

namespace wv {
inline u8* dynamic_shared(u32) { return nullptr; }
}  // namespace wv
