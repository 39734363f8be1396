// Rows: how blocks share them, and copies and sums of them.
#pragma once

#include "warpverbs/bf16.h"
#include "warpverbs/impl/ep_plan.h"

namespace wv {
namespace impl {

// Rows that one row is copied to or made of, kept by a block.
struct RowList {
  u64 at[ep_top_k + 1];
  u32 weight[ep_top_k];
  u32 count;
};
WV_DEVICE RowList& row_list() {
  WV_SHARED(RowList, shared_rows);
  return shared_rows;
}

// Fills a block's list by its first warp: `one(i)` on a lane gives entry i of `count`, at address 0 if
// it is to be left out. Entries keep their order. `last` ends the list if it is not 0.
struct RowEntry {
  u64 at;
  u32 weight;
};
template <class One, class Last>
WV_DEVICE const RowList& list_rows(u32 count, One one, Last last) {
  RowList& list = row_list();
  // The last row's readers are done.
  sync_block();
  if (warp_index() == 0) {
    u32 found = 0;
    for (u32 first = 0; first < count; first += warp.size()) {
      const u32 i = first + lane_id();
      const RowEntry entry = i < count ? one(i) : RowEntry{0, 0};
      const lane_mask held = ballot(all_lanes(), entry.at != 0);
      if (entry.at != 0) {
        list.at[found + rank_in(held)] = entry.at;
        list.weight[found + rank_in(held)] = entry.weight;
      }
      found += popcount(held);
    }
    const u64 more = last();
    if (lane_id() == 0) {
      if (more != 0) list.at[found] = more;
      list.count = found + (more != 0 ? 1 : 0);
    }
  }
  sync_block();
  return list;
}

// A row of `packs` packs of 16 bytes, of which `grain` are never parted.
struct RowCut {
  u32 packs, grain;

  WV_DEVICE u32 pieces() const { return (packs + grain - 1) / grain; }
};
WV_DEVICE RowCut payload_cut(const Ep& ep) {
  const u32 grain = fixed(ep.payload) == ep_payload::cast ? ep_scaled / pack_bytes : 1;
  return {fixed(ep.payload_bytes) / pack_bytes, grain};
}
WV_DEVICE RowCut result_cut(const Ep& ep) { return {fixed(ep.hidden) / 8, 1}; }

// A block's share of `rows` rows: units of one row, or of one of its `parts` if there are fewer rows
// than blocks.
struct Units {
  u32 parts;
  u64 begin, end;
};
WV_DEVICE Units units_of(const EpCall& call, u64 rows, RowCut cut) {
  u64 parts = rows == 0 || fixed(call.ep.staged) != 0 ? 1 : call.share.count / rows;
  parts = parts == 0 ? 1 : least(parts, cut.pieces());
  const u64 all = rows * parts;
  return {static_cast<u32>(parts), all * call.share.index / call.share.count,
          all * (call.share.index + 1) / call.share.count};
}
// The packs of a part of a row.
struct Packs {
  u64 begin, end;
};
WV_DEVICE Packs packs_of(RowCut cut, u32 part, u32 parts) {
  const u64 pieces = cut.pieces();
  return {pieces * part / parts * cut.grain,
          least(pieces * (part + 1) / parts * cut.grain, u64{cut.packs})};
}

// Packs of one row to each of a list, `skip` bytes into it.
WV_DEVICE void spread(const RowList& list, u64 skip, const void* from, Packs packs) {
  const u8* source = static_cast<const u8*>(from) + packs.begin * pack_bytes;
  const u32 count = list.count;
  share_out<4>(block, packs.end - packs.begin, [&](auto together, u64 first, bool mine) {
    constexpr u32 n = decltype(together)::count;
    if (!mine) return true;
    vec16 held[n];
    WV_UNROLL
    for (u32 k = 0; k < n; ++k) held[k] = read16(source + (first + k * warp_size) * pack_bytes);
    WV_ROLLED
    for (u32 target = 0; target < count; ++target) {
      u8* to = at<u8>(list.at[target] + skip + packs.begin * pack_bytes);
      WV_UNROLL
      for (u32 k = 0; k < n; ++k) write16(to + (first + k * warp_size) * pack_bytes, held[k]);
    }
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
  const u32 count = list.count;
  for (u64 i = packs.begin + thread_index(); i < packs.end; i += block_size()) {
    Sums sums{};
    WV_ROLLED
    for (u32 row = 0; row < count; ++row) {
      add_pack(sums, float_of(list.weight[row]), read16(at<u8>(list.at[row]) + i * pack_bytes));
    }
    write16(static_cast<u8*>(to) + i * pack_bytes, pack_of(sums));
  }
}

// Whether a caller's rows are where 16 bytes may be moved at once.
WV_DEVICE bool is_aligned(const void* rows) { return reinterpret_cast<u64>(rows) % pack_bytes == 0; }

}  // namespace impl
}  // namespace wv
