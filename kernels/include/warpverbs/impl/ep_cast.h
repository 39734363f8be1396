// Rows of bf16 that become e4m3 as they leave, with a scale for each group of 128 channels.
#pragma once

#include "warpverbs/fp8.h"
#include "warpverbs/impl/ep_rows.h"

namespace wv {
namespace impl {

// Threads that share a group: a pack of 16 e4m3 each.
constexpr u32 cast_team = 8;
static_assert(cast_team * pack_bytes == ep_scaled, "a pack for each member");

// The largest finite magnitude of 8 bf16, its bits.
WV_DEVICE u32 largest_of(vec16 pack) {
  u32 largest = 0;
  WV_UNROLL
  for (u32 i = 0; i < 8; ++i) {
    const u64 half = i < 4 ? pack.lo : pack.hi;
    const u32 magnitude = static_cast<u32>(half >> (i % 4 * 16)) & 0x7fff;
    if (magnitude < 0x7f80 && magnitude > largest) largest = magnitude;
  }
  return largest;
}

// 8 bf16, each times `factor`.
WV_DEVICE u64 narrow_pack(vec16 pack, f32 factor) {
  u64 bytes = 0;
  WV_UNROLL
  for (u32 i = 0; i < 8; i += 2) {
    const u32 two = static_cast<u32>((i < 4 ? pack.lo : pack.hi) >> (i % 4 * 16));
    // Minus zero leaves the product as it is.
    const f32 first = multiply_add(from_bf16(two & 0xffff), factor, -0.0f);
    const f32 second = multiply_add(from_bf16(two >> 16), factor, -0.0f);
    bytes |= u64{to_e4m3(first, second)} << (i * 8);
  }
  return bytes;
}

// A scale as a row has it, and what elements are multiplied with for it.
struct Scaled {
  u32 word;
  f32 factor;
};
WV_DEVICE Scaled scale_for(ep_scale scale, u32 largest) {
  constexpr f32 lowest = 1e-4f, of_largest = 1.0f / 448.0f;
  const f32 magnitude = from_bf16(largest) < lowest ? lowest : from_bf16(largest);
  const f32 worth = multiply_add(magnitude, of_largest, -0.0f);
  if (scale == ep_scale::f32) return {bits_of(worth), divide(448.0f, magnitude)};
  const u32 exponent = ((bits_of(worth) - 1) >> 23) + 1;
  return {scale == ep_scale::ue8m0 ? exponent : exponent << 23, float_of((254 - exponent) << 23)};
}

// The scale of a group to the scales of a row at `scales`, and zeros behind the last one.
WV_DEVICE void store_scale(const Ep& ep, u8* scales, u64 group, u32 word) {
  if (fixed(ep.scale) != ep_scale::ue8m0) {
    store<order::relaxed, scope::system>(reinterpret_cast<u32*>(scales) + group, word);
    return;
  }
  store<order::relaxed, scope::system>(scales + group, static_cast<u8>(word));
  const u64 groups = (fixed(ep.hidden) + ep_scaled - 1) / ep_scaled;
  if (group + 1 != groups) return;
  for (u64 i = groups; i < u64{fixed(ep.scale_words)} * 4; ++i) {
    store<order::relaxed, scope::system>(scales + i, u8{0});
  }
}

// e4m3 packs of a row of bf16 to each of a list, `skip` bytes into it, and their scales behind the row; by
// a warp.
WV_DEVICE void spread_cast(const Ep& ep, const RowList& list, u64 skip, const void* from,
                           Packs packs) {
  const u8* row = static_cast<const u8*>(from);
  const u32 teams = warp_size / cast_team, team = lane_id() / cast_team;
  const u32 member = lane_id() % cast_team;
  const u64 end = (packs.end + cast_team - 1) / cast_team;
  for (u64 first = packs.begin / cast_team; first < end; first += teams) {
    const u64 group = first + team, pack = group * cast_team + member;
    const bool mine = pack < packs.end;
    const vec16 none{0, 0};
    const vec16 low = mine ? read16(row + pack * 2 * pack_bytes) : none;
    const vec16 high = mine ? read16(row + (pack * 2 + 1) * pack_bytes) : none;
    u32 largest = largest_of(low);
    const u32 other = largest_of(high);
    if (other > largest) largest = other;
    WV_UNROLL
    for (u32 apart = 1; apart < cast_team; apart *= 2) {
      const u32 theirs = shfl(all_lanes(), largest, lane_id() ^ apart);
      if (theirs > largest) largest = theirs;
    }
    const Scaled scaled = scale_for(fixed(ep.scale), largest);
    const vec16 narrow{narrow_pack(low, scaled.factor), narrow_pack(high, scaled.factor)};
    list.each([&](u64 target, u32) {
      if (!mine) return;
      write16(at<u8>(target + skip + pack * pack_bytes), narrow);
      if (member != 0) return;
      store_scale(ep, at<u8>(target + skip + fixed(ep.payload_bytes)), group, scaled.word);
    });
  }
}

}  // namespace impl
}  // namespace wv
