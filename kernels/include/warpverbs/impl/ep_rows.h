// Rows: how blocks share them, and copies and sums of them.
#pragma once

#include "warpverbs/bf16.h"
#include "warpverbs/impl/ep_plan.h"

namespace wv {
namespace impl {

// Rows that one row is copied to or made of, by a warp: one on each of its lanes, in their order, at
// address 0 where there is none.
struct RowEntry {
  u64 at;
  u32 weight;
};
struct RowList {
  RowEntry mine;
  lane_mask held;

  WV_DEVICE static RowList of(RowEntry mine) { return {mine, ballot(all_lanes(), mine.at != 0)}; }
  // Calls `one(address, lane)` on all lanes.
  template <class One>
  WV_DEVICE void each(One one) const {
    WV_ROLLED
    for (lane_mask left = held; left != 0; left &= left - 1) {
      const u32 lane = lowest_bit(left);
      one(at(lane), lane);
    }
  }
  WV_DEVICE u64 at(u32 lane) const { return shfl(all_lanes(), mine.at, lane); }
  WV_DEVICE f32 weight(u32 lane) const { return float_of(shfl(all_lanes(), mine.weight, lane)); }
};

// A row of `packs` packs of 16 bytes, of which 1 << `log_grain` are never parted.
struct RowCut {
  u32 packs, log_grain;
};
constexpr u32 log_scaled_packs = 3;
static_assert(pack_bytes << log_scaled_packs == ep_scaled, "packs of e4m3 that have one scale");
WV_DEVICE RowCut payload_cut(const Ep& ep) {
  const u32 log = fixed(ep.payload) == ep_payload::cast ? log_scaled_packs : 0;
  return {fixed(ep.payload_bytes) / pack_bytes, log};
}
WV_DEVICE RowCut result_cut(const Ep& ep) { return {fixed(ep.hidden) / 8, 0}; }

// [begin, end), what number `index` of `count` has of `all`. The last ones have one more if the numbers do not divide.
struct Range {
  u32 begin, end;

  WV_DEVICE static Range of(u32 all, u32 index, u32 count) {
    const u32 each = all / count, fewer = count - (all - each * count);
    const u32 begin = each * index + (index > fewer ? index - fewer : 0);
    return {begin, begin + each + (index >= fewer ? 1 : 0)};
  }
};

// A block's share of `rows` rows: units of one row, or of one of its `parts` if there are fewer rows
// than warps. A part has a pack for each lane or more. A block that is not one of the call has none.
struct Units {
  u32 parts, begin, end;
};
WV_DEVICE Units units_of(const EpCall& call, u32 rows) {
  if (call.share.index >= call.share.count) return {1, 0, 0};
  const u32 warps = call.share.count * warps_of_block();
  const u32 most = (payload_cut(call.ep).packs + warp_size - 1) / warp_size;
  u32 parts = 1;
  if (rows < warps && rows != 0 && fixed(call.ep.staged) == 0) parts = rows == 1 ? warps : warps / rows;
  if (parts > most) parts = most;
  const Range share = Range::of(rows * parts, call.share.index, call.share.count);
  return {parts, share.begin, share.end};
}

// The same call for some blocks alone: number `index` of `count`.
WV_DEVICE EpCall shared_by(const EpCall& call, u32 index, u32 count) {
  return {call.ep, {index, count}, call.timeout, call.epoch, call.generation, call.members};
}
// The call of the last blocks, as many as have something to do for `rows` tokens. The first one announces them
// meanwhile, if they are announced and there is another. Of blocks that send nothing `index` is no less than
// `count`.
WV_DEVICE EpCall senders_of(const EpCall& call, u32 rows) {
  // A block that sends alone waits for no other: its lanes may have some packs each.
  constexpr u32 some_packs = 4;
  const u32 warps = warps_of_block(), all = call.share.count;
  const u32 most = is_packed(call.ep) && all > 1 ? all - 1 : all;
  const bool staged = fixed(call.ep.staged) != 0;
  const u32 units = staged ? rows : rows * ((payload_cut(call.ep).packs + warp_size - 1) / warp_size);
  u32 count = most;
  if (units <= warps * (staged ? 1 : some_packs)) count = 1;
  else if (units < warps * most) count = (units + warps - 1) / warps;
  return shared_by(call, call.share.index - (all - count), count);
}
// The call of the blocks that take `rows` rows of a source. Few rows have a part of the blocks for themselves, so
// that rows of several sources are under way at a time; more are shared by all. It is the same in a dispatch and
// its combine: a block sends results of the rows for which it has waited. Of other blocks `index` is no less than
// `count`.
WV_DEVICE EpCall receivers_of(const EpCall& call, u32 source, u32 rows) {
  const u32 all = call.share.count, ranks = fixed(call.ep.ranks);
  const u32 begin = all * source / ranks, end = all * (source + 1) / ranks;
  if (rows <= 2 * (end - begin) * warps_of_block()) return shared_by(call, call.share.index - begin, end - begin);
  return shared_by(call, (call.share.index + source) % all, all);
}
// The packs of a part of a row.
struct Packs {
  u32 begin, end;
};
WV_DEVICE Packs packs_of(RowCut cut, u32 part, u32 parts) {
  if (parts == 1) return {0, cut.packs};
  const u32 grain = u32{1} << cut.log_grain;
  const Range pieces = Range::of((cut.packs + grain - 1) >> cut.log_grain, part, parts);
  const u32 end = pieces.end << cut.log_grain;
  return {pieces.begin << cut.log_grain, end < cut.packs ? end : cut.packs};
}
// Calls `each(unit)` for [begin, end), by a warp each.
template <class Each>
WV_DEVICE void each_unit(u32 begin, u32 end, Each each) {
  const u32 warps = warps_of_block();
  if (warp_index() >= warps) return;
  for (u32 unit = begin + warp_index(); unit < end; unit += warps) each(unit);
}
// The same. If rows leave by NICs, `done(begin, end)` by the
// whole block after each few, as many as are posted under one doorbell.
constexpr u32 tile_rows = 32;
template <class Each, class Done>
WV_DEVICE void by_warps(const Ep& ep, u32 begin, u32 end, Each each, Done done) {
  const bool staged = fixed(ep.staged) != 0;
  const u32 step = staged ? tile_rows : end - begin;
  for (u32 from = begin; from < end; from += step) {
    const u32 to = end - from < step ? end : from + step;
    each_unit(from, to, each);
    if (staged) done(from, to);
  }
}

// Some packs of a row on a lane, a warp's lanes apart. A lane that has no k-th one reads the row's last instead: a load
// under a condition would be waited for before the next one begins.
struct LanePacks {
  u32 first, end;

  WV_DEVICE bool has(u32 k) const { return first + k * warp_size < end; }
  WV_DEVICE u64 offset(u32 k) const { return u64{has(k) ? first + k * warp_size : end - 1} * pack_bytes; }
};
// Calls `body(LanePacks)` on all lanes of a warp, for `Most` packs of each lane at a time.
template <u32 Most, class Body>
WV_DEVICE void by_packs(Packs packs, Body body) {
  WV_ROLLED
  for (u32 from = packs.begin; from < packs.end; from += Most * warp_size) {
    body(LanePacks{from + lane_id(), packs.end});
  }
}

// Packs of one row to each of a list, `skip` bytes into it.
WV_DEVICE void spread(const RowList& list, u64 skip, const void* from, Packs packs) {
  constexpr u32 n = 8;
  by_packs<n>(packs, [&](LanePacks mine) {
    vec16 held[n];
    WV_UNROLL
    for (u32 k = 0; k < n; ++k) held[k] = read16(static_cast<const u8*>(from) + mine.offset(k));
    list.each([&](u64 row, u32) {
      u8* to = at<u8>(row + skip + u64{mine.first} * pack_bytes);
      WV_UNROLL
      for (u32 k = 0; k < n; ++k) {
        if (mine.has(k)) write16(to + k * warp_size * pack_bytes, held[k]);
      }
    });
  });
}

// 8 sums in f32.
struct Sums {
  f32 of[8];
};
// sums + weight * pack, each rounded once.
WV_DEVICE void add_pack(Sums& sums, f32 weight, vec16 pack) {
  WV_UNROLL
  for (u32 i = 0; i < 8; ++i) {
    const u64 half = i < 4 ? pack.lo : pack.hi;
    const u32 bits = static_cast<u32>(half >> (i % 4 * 16));
    sums.of[i] = multiply_add(weight, from_bf16(bits), sums.of[i]);
  }
}
WV_DEVICE vec16 pack_of(const Sums& sums) {
  vec16 pack{0, 0};
  WV_UNROLL
  for (u32 i = 0; i < 8; ++i) {
    const u64 bits = u64{to_bf16(sums.of[i])} << (i % 4 * 16);
    if (i < 4) pack.lo |= bits;
    else pack.hi |= bits;
  }
  return pack;
}

// The next `Rows` of a list, which `left` still has, weighted and added: all of their loads are under way at a time.
template <u32 Rows, u32 Count>
WV_DEVICE void add_rows(const RowList& list, lane_mask& left, const u64 (&offsets)[Count], Sums (&sums)[Count]) {
  vec16 held[Rows][Count];
  f32 weights[Rows];
  WV_UNROLL
  for (u32 row = 0; row < Rows; ++row) {
    const u32 lane = lowest_bit(left);
    left &= left - 1;
    const u64 from = list.at(lane);
    weights[row] = list.weight(lane);
    WV_UNROLL
    for (u32 k = 0; k < Count; ++k) held[row][k] = read16(at<u8>(from + offsets[k]));
  }
  WV_UNROLL
  for (u32 row = 0; row < Rows; ++row) {
    WV_UNROLL
    for (u32 k = 0; k < Count; ++k) add_pack(sums[k], weights[row], held[row][k]);
  }
}

// The weighted sum of the list's rows, in its order, to `to`.
WV_DEVICE void sum_rows(const RowList& list, void* to, Packs packs) {
  constexpr u32 n = 4;
  by_packs<n>(packs, [&](LanePacks mine) {
    u64 offsets[n];
    WV_UNROLL
    for (u32 k = 0; k < n; ++k) offsets[k] = mine.offset(k);
    Sums sums[n]{};
    lane_mask left = list.held;
    WV_ROLLED
    while ((left & (left - 1)) != 0) add_rows<2>(list, left, offsets, sums);
    if (left != 0) add_rows<1>(list, left, offsets, sums);
    WV_UNROLL
    for (u32 k = 0; k < n; ++k) {
      if (mine.has(k)) write16(static_cast<u8*>(to) + offsets[k], pack_of(sums[k]));
    }
  });
}

// Whether a caller's rows are where 16 bytes may be moved at once.
WV_DEVICE bool is_aligned(const void* rows) { return reinterpret_cast<u64>(rows) % pack_bytes == 0; }

}  // namespace impl
}  // namespace wv
