// Common part of the two host builds of the device library, simt.h and check.h, first part:
// the names that their memory operations are made of. The second part is host_ops.h.
#pragma once

#include "warpverbs/arch/types.h"

// An inline function of the device library.
#define WV_DEVICE inline
#define WV_NOINLINE [[gnu::noinline]]
// Before a loop of few turns, which a GPU should do at once.
#define WV_UNROLL
// Before a loop that a GPU should leave as it is: a poll, or a path that is not critical.
#define WV_ROLLED
// A function of the device library that is rarely called: kept out of its callers' code.
#define WV_COLD [[gnu::noinline, gnu::cold]] inline
// WV_KERNEL(name)(const wv::Qp* qp, wv::u32 count) { … }
#define WV_KERNEL(name) static void name
// WV_BLOCK_AT_MOST(512, name, (const wv::Qp*, wv::u32)); in front of a kernel: its blocks have no more
// threads, and each as many registers as that leaves.
#define WV_BLOCK_AT_MOST(threads, name, parameters) static_assert(true)
// WV_SHARED(type, name): uninitialised memory of the block; `type` may be an alias of an array.
#define WV_SHARED(type, name)               \
  static const char wv_shared_key_##name{}; \
  auto& name = ::wv::host::shared<type>(&wv_shared_key_##name)
// A place in the source, for active_mask and for reports.
#define WV_SITE (::wv::site{__FILE__, __LINE__})
// The last parameter of memory operations and collectives is the caller's place, never given by
// hand.
#define WV_HERE site where = site::here()

namespace wv {
struct site {
  const char* file;
  u32 line;
  // As a default argument: the place of the call that leaves it out.
  static constexpr site here(const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) {
    return {file, line};
  }
};

// Lanes of a warp: 32, or 64 as on AMD's data-centre GPUs.
#if !defined(WV_SIMT_LANES)
#define WV_SIMT_LANES 32
#endif
constexpr u32 warp_size = WV_SIMT_LANES;
static_assert(warp_size == 32 || warp_size == 64, "WV_SIMT_LANES is 32 or 64");
using lane_mask = lanes_of<warp_size>::mask;

enum class order : u32 { relaxed, acquire, release, acq_rel, seq_cst };
// Observers of an access: the block, the device, or everybody including NIC and host.
enum class scope : u32 { block, gpu, system };

// A plain load of a value that nobody writes while the kernel runs.
template <class T>
inline T load_constant(const T* p) {
  return *p;
}

// 16 bytes moved by one instruction on a GPU; each half is single-copy atomic, the whole is not.
struct alignas(16) vec16 {
  u64 lo, hi;
};

namespace host {
// A lane's place in its launch.
struct lane_place {
  u32 lane, warp, thread, block, block_dim, grid_dim;
  // Not 0: lanes of the warp run in lockstep.
  u32 lockstep;
};

enum class collective : u32 { sync, shfl, ballot, match_any };
// Operations that read and write; what each stores is `old op value`.
enum class rmw : u32 { exchange, add, bit_and, bit_or, bit_xor, max };

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
// A failed compare-and-swap stores nothing, so release has no part in it.
constexpr order on_failure(order o) {
  return o == order::release ? order::relaxed : o == order::acq_rel ? order::acquire : o;
}

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
}  // namespace host
}  // namespace wv
