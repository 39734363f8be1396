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

// A row of `packs` packs of 16 bytes, of which `grain` are never parted.
struct RowCut {
  u32 packs, grain;
};
WV_DEVICE RowCut payload_cut(const Ep& ep) {
  const u32 grain = fixed(ep.payload) == ep_payload::cast ? ep_scaled / pack_bytes : 1;
  return {fixed(ep.payload_bytes) / pack_bytes, grain};
}
WV_DEVICE RowCut result_cut(const Ep& ep) { return {fixed(ep.hidden) / 8, 1}; }

// A block's share of `rows` rows: units of one row, or of one of its `parts` if there are fewer rows
// than warps. A part has a pack for each lane.
struct Units {
  u32 parts, begin, end;
};
WV_DEVICE Units units_of(const EpCall& call, u32 rows) {
  const u32 packs = payload_cut(call.ep).packs;
  const u32 warps = call.share.count * warps_of_block();
  u32 parts = rows == 0 || fixed(call.ep.staged) != 0 ? 1 : warps / rows;
  const u32 most = (packs + warp_size - 1) / warp_size;
  parts = parts == 0 ? 1 : parts < most ? parts : most;
  const u64 all = u64{rows} * parts;
  return {parts, static_cast<u32>(all * call.share.index / call.share.count),
          static_cast<u32>(all * (call.share.index + 1) / call.share.count)};
}

// The same call for some blocks alone: number `index` of `count`.
WV_DEVICE EpCall shared_by(const EpCall& call, u32 index, u32 count) {
  return {call.ep, {index, count}, call.timeout, call.epoch, call.generation, call.members};
}
// The call of the last blocks, as many as have something to do for `rows` tokens. The first one announces them
// meanwhile, if they are announced and there is another. Of blocks that send nothing `index` is no less than
// `count`.
WV_DEVICE EpCall senders_of(const EpCall& call, u32 rows) {
  const u32 warps = warps_of_block(), all = call.share.count;
  const bool staged = fixed(call.ep.staged) != 0;
  const u64 units = staged ? rows : u64{rows} * ((payload_cut(call.ep).packs + warp_size - 1) / warp_size);
  const u64 some = warps == 0 ? 1 : (units + warps - 1) / warps;
  const u64 most = is_packed(call.ep) && all > 1 ? all - 1 : all;
  const u32 count = some == 0 ? 1 : static_cast<u32>(least(some, most));
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
  u64 begin, end;
};
WV_DEVICE Packs packs_of(RowCut cut, u32 part, u32 parts) {
  const u64 pieces = (cut.packs + cut.grain - 1) / cut.grain;
  return {pieces * part / parts * cut.grain,
          least(pieces * (part + 1) / parts * cut.grain, u64{cut.packs})};
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

// Packs of one row to each of a list, `skip` bytes into it.
WV_DEVICE void spread(const RowList& list, u64 skip, const void* from, Packs packs) {
  const u8* source = static_cast<const u8*>(from) + packs.begin * pack_bytes;
  const u64 begin = skip + packs.begin * pack_bytes;
  share_out<8>(warp, packs.end - packs.begin, [&](auto together, u64 first, bool mine) {
    constexpr u32 n = decltype(together)::count;
    vec16 held[n];
    WV_UNROLL
    for (u32 k = 0; k < n; ++k) {
      held[k] = mine ? read16(source + (first + k * warp_size) * pack_bytes) : vec16{0, 0};
    }
    list.each([&](u64 row, u32) {
      u8* to = at<u8>(row + begin);
      WV_UNROLL
      for (u32 k = 0; k < n; ++k) {
        if (mine) write16(to + (first + k * warp_size) * pack_bytes, held[k]);
      }
    });
    return true;
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

// The weighted sum of the list's rows, in its order, to `to`.
WV_DEVICE void sum_rows(const RowList& list, void* to, Packs packs) {
  share_out<4>(warp, packs.end - packs.begin, [&](auto together, u64 first, bool mine) {
    constexpr u32 n = decltype(together)::count;
    const u64 begin = (packs.begin + first) * pack_bytes;
    Sums sums[n]{};
    // Loads of two rows are under way at a time.
    WV_ROLLED
    for (lane_mask left = list.held; left != 0;) {
      const u32 one = lowest_bit(left);
      left &= left - 1;
      const bool both = left != 0;
      const u32 two = both ? lowest_bit(left) : one;
      left &= left - 1;
      const u64 rows[2] = {list.at(one) + begin, list.at(two) + begin};
      vec16 held[2][n];
      WV_UNROLL
      for (u32 row = 0; row < 2; ++row) {
        WV_UNROLL
        for (u32 k = 0; k < n; ++k) {
          const bool reads = mine && (row == 0 || both);
          held[row][k] = reads ? read16(wv::impl::at<u8>(rows[row]) + k * warp_size * pack_bytes) : vec16{0, 0};
        }
      }
      const f32 weights[2] = {list.weight(one), list.weight(two)};
      WV_UNROLL
      for (u32 k = 0; k < n; ++k) add_pack(sums[k], weights[0], held[0][k]);
      if (!both) break;
      WV_UNROLL
      for (u32 k = 0; k < n; ++k) add_pack(sums[k], weights[1], held[1][k]);
    }
    WV_UNROLL
    for (u32 k = 0; k < n; ++k) {
      if (mine) write16(static_cast<u8*>(to) + begin + k * warp_size * pack_bytes, pack_of(sums[k]));
    }
    return true;
  });
}

// Whether a caller's rows are where 16 bytes may be moved at once.
WV_DEVICE bool is_aligned(const void* rows) { return reinterpret_cast<u64>(rows) % pack_bytes == 0; }

}  // namespace impl
}  // namespace wv
