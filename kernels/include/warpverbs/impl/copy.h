// Copies by the lanes of a group: 16-byte stores wherever 16 bytes are to be stored, whatever the
// alignments. A lane loads several elements before it stores the first, so that the latency of one
// load is paid for all of them.
#pragma once

#include "warpverbs/coop.h"

namespace wv {
namespace impl {

constexpr u32 pack_bytes = 16;

// 8 bytes from `shift` bits, less than 64, into `low` on.
WV_DEVICE u64 funnel(u64 low, u64 high, u32 shift) {
  // Two shifts: one of 64 is undefined.
  return low >> shift | high << 1 << (63 - shift);
}
// 16 bytes from byte `offset`, less than 16, of `first` on.
WV_DEVICE vec16 funnel(vec16 first, vec16 second, u32 offset) {
  const bool upper = offset >= 8;
  const u32 shift = offset % 8 * 8;
  const u64 a = upper ? first.hi : first.lo;
  const u64 b = upper ? second.lo : first.hi;
  const u64 c = upper ? second.hi : second.lo;
  return {funnel(a, b, shift), funnel(b, c, shift)};
}

// Packs to a 16-byte aligned place from one that is aligned as well.
struct AlignedPacks {
  using Element = vec16;
  u8* to;
  const u8* from;

  WV_DEVICE vec16 read(u64 i) const { return read16(from + i * pack_bytes); }
  WV_DEVICE void write(u64 i, vec16 pack) const { write16(to + i * pack_bytes, pack); }
};

// From a place `offset` bytes, 1 to 15, behind the aligned address `from`. Whole aligned packs are
// loaded: bytes beside the source in its first and last 16 are read and not used.
struct ShiftedPacks {
  using Element = vec16;
  u8* to;
  const u8* from;
  u32 offset;

  WV_DEVICE vec16 read(u64 i) const {
    const u8* at = from + i * pack_bytes;
    return funnel(read16(at), read16(at + pack_bytes), offset);
  }
  WV_DEVICE void write(u64 i, vec16 pack) const { write16(to + i * pack_bytes, pack); }
};

template <class T>
struct Run {
  using Element = T;
  T* to;
  const T* from;

  WV_DEVICE T read(u64 i) const { return load<order::relaxed, scope::system>(from + i); }
  WV_DEVICE void write(u64 i, T word) const { store<order::relaxed, scope::system>(to + i, word); }
};

// How many elements a member has in its registers at a time.
template <u32 Count>
struct Together {
  static constexpr u32 count = Count;
};

// Calls `body(Together<n>, first, true)` for a warp's elements out of [from, count), of which
// `warps` warps take their shares: n of a lane's, Lanes apart, as long as it returns true. They lie
// side by side, so that their addresses differ by constants. n is Most or a fourth of it; no bound
// is checked for each. Returns where the rest begins.
template <u32 Most, u32 Lanes, class Body>
WV_DEVICE u64 in_rows(u32 warp, u32 warps, u32 lane, u64 from, u64 count, Body body) {
  constexpr u32 row = Most * Lanes;
  const u64 round = u64{warps} * row;
  WV_ROLLED
  for (; from + round <= count; from += round) {
    if (!body(Together<Most>{}, from + warp * row + lane, true)) return count;
  }
  if constexpr (Most > 4) return in_rows<Most / 4, Lanes>(warp, warps, lane, from, count, body);
  else return from;
}

// The same for all of [0, count), by all members of a group. All lanes of a warp come to the same
// calls; where there are fewer elements than members, the last argument says who has one.
template <u32 Most, class Coop, class Body>
WV_DEVICE void share_out(const Coop& coop, u64 count, Body body) {
  const u32 rank = coop.thread_rank(), size = coop.size();
  u64 done = 0;
  if constexpr (Coop::alone) {
    done = in_rows<Most, 1>(0, 1, 0, 0, count, body);
  } else if (of_warps<Coop> ? block_size() % warp_size == 0 : size % warp_size == 0) {
    const u32 warp = rank / warp_size, lane = rank % warp_size;
    done = in_rows<Most, warp_size>(warp, size / warp_size, lane, 0, count, body);
  }
  WV_ROLLED
  for (; done < count; done += size) {
    if (!body(Together<1>{}, done + rank, done + rank < count)) return;
  }
}

// Elements [0, count), InFlight of a member's loaded before the first is stored.
template <u32 InFlight, class Coop, class Elements>
WV_DEVICE void copy_elements(const Coop& coop, const Elements& elements, u64 count) {
  constexpr u32 apart = Coop::alone ? 1 : warp_size;
  share_out<InFlight>(coop, count, [&](auto together, u64 first, bool mine) {
    constexpr u32 n = decltype(together)::count;
    if (!mine) return true;
    typename Elements::Element held[n];
    WV_UNROLL
    for (u32 k = 0; k < n; ++k) held[k] = elements.read(first + k * apart);
    WV_UNROLL
    for (u32 k = 0; k < n; ++k) elements.write(first + k * apart, held[k]);
    return true;
  });
}

// Fewer than 16 bytes, at any alignment.
template <class Coop>
WV_DEVICE void copy_edge(const Coop& coop, u8* to, const u8* from, u64 bytes) {
  copy_elements<Coop::alone ? 8 : 1>(coop, Run<u8>{to, from}, bytes);
}

// One word, if that is all and both sides are aligned for it.
template <class T, class Coop>
WV_DEVICE bool copy_word(const Coop& coop, u8* to, const u8* from, u64 bytes) {
  const u64 bits = reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from);
  if (bytes != sizeof(T) || bits % sizeof(T) != 0) return false;
  const Run<T> word{reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from)};
  if (coop.thread_rank() == 0) word.write(0, word.read(0));
  return true;
}

// All of it, by all members, each of which loads InFlight packs before it stores the first; nobody's
// part is ordered before another's. The ranges are disjoint.
template <u32 InFlight, class Coop>
WV_DEVICE void copy_with(const Coop& coop, void* to_any, const void* from_any, u64 bytes) {
  u8* to = static_cast<u8*>(to_any);
  const u8* from = static_cast<const u8*>(from_any);
  const u64 places = reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from);
  if ((places | bytes) % pack_bytes == 0) {
    copy_elements<InFlight>(coop, AlignedPacks{to, from}, bytes / pack_bytes);
    return;
  }
  if (copy_word<u64>(coop, to, from, bytes) || copy_word<u32>(coop, to, from, bytes)) return;
  const u64 gap = -reinterpret_cast<u64>(to) % pack_bytes;
  const u64 head = gap < bytes ? gap : bytes;
  copy_edge(coop, to, from, head);
  to += head;
  from += head;
  const u64 packs = (bytes - head) / pack_bytes;
  const u32 offset = static_cast<u32>(reinterpret_cast<u64>(from) % pack_bytes);
  if (offset == 0) {
    copy_elements<InFlight>(coop, AlignedPacks{to, from}, packs);
  } else {
    // Two loads each.
    copy_elements<InFlight / 2>(coop, ShiftedPacks{to, from - offset, offset}, packs);
  }
  const u64 done = packs * pack_bytes;
  copy_edge(coop, to + done, from + done, bytes - head - done);
}

template <class Coop>
WV_DEVICE void copy(const Coop& coop, void* to, const void* from, u64 bytes) {
  // A warp alone has little in flight else. More spill where a kernel has copies for several groups.
  constexpr u32 in_flight = Coop::max_size == warp_size ? 16 : 8;
  copy_with<in_flight>(coop, to, from, bytes);
}

}  // namespace impl
}  // namespace wv
