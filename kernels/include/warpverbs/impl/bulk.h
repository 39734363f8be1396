// Copies by one thread through shared memory that the caller lends: a ring of tiles, half of which
// are being loaded while the others are being stored.
#pragma once

#include "warpverbs/impl/copy.h"

namespace wv {
namespace impl {

constexpr u32 tiles = 8;
// In front of the tiles: a word for each, by which its loads are awaited.
constexpr u32 tile_words = 128;

// Bytes of a tile; 0 if too little is lent.
WV_DEVICE u32 tile_of(const Lent& lent) {
  if (lent.memory == nullptr || lent.bytes < tile_words) return 0;
  return (lent.bytes - tile_words) / tiles / pack_bytes * pack_bytes;
}

// All of it, in multiples of 16 bytes.
WV_DEVICE void copy_through(const Lent& lent, u32 tile, u8* to, const u8* from, u64 bytes) {
  u64* landed = reinterpret_cast<u64*>(lent.memory);
  u8* shared = lent.memory + tile_words;
  const u64 count = (bytes + tile - 1) / tile;
  const auto length = [&](u64 k) {
    const u64 left = bytes - k * tile;
    return left < tile ? static_cast<u32>(left) : tile;
  };
  const auto fetch = [&](u64 k) {
    const u32 stage = static_cast<u32>(k % tiles);
    bulk_load(shared + u64{stage} * tile, from + k * tile, length(k), landed + stage);
  };
  for (u32 i = 0; i < tiles; ++i) bulk_open(landed + i);
  bulk_fence();
  constexpr u32 ahead = tiles / 2;
  for (u64 k = 0; k < ahead && k < count; ++k) fetch(k);
  for (u64 k = 0; k < count; ++k) {
    const u32 stage = static_cast<u32>(k % tiles);
    bulk_await(landed + stage, static_cast<u32>(k / tiles % 2));
    bulk_store(to + k * tile, shared + u64{stage} * tile, length(k));
    if (k + ahead >= count) continue;
    // The tile that is loaded next was stored from `ahead` stores ago.
    bulk_read<tiles - ahead - 1>();
    fetch(k + ahead);
  }
  bulk_drain();
  for (u32 i = 0; i < tiles; ++i) bulk_close(landed + i);
}

// All of it, by the calling thread. Ordinary loads and stores copy the ends, what is not aligned
// alike on both sides, and everything where there are no bulk copies or nothing is lent.
WV_DEVICE void copy_lent(const Lent& lent, void* to_any, const void* from_any, u64 bytes) {
  u8* to = static_cast<u8*>(to_any);
  const u8* from = static_cast<const u8*>(from_any);
  if constexpr (bulk_copies) {
    const u32 tile = tile_of(lent);
    const u64 head = -reinterpret_cast<u64>(to) % pack_bytes;
    const u64 apart = reinterpret_cast<u64>(to) - reinterpret_cast<u64>(from);
    if (tile != 0 && apart % pack_bytes == 0 && bytes >= head + pack_bytes) {
      const u64 body = (bytes - head) / pack_bytes * pack_bytes;
      copy_edge(thread, to, from, head);
      copy_through(lent, tile, to + head, from + head, body);
      copy_edge(thread, to + head + body, from + head + body, bytes - head - body);
      return;
    }
  }
  copy(thread, to, from, bytes);
}

}  // namespace impl

template <class Route>
WV_DEVICE Status put_through(const Lent& lent, const Heap& heap, void* to, const void* from,
                             u64 bytes, u32 pe, Flags flags, Timeout timeout) {
  const impl::Way way = impl::way_to_range<Route>(heap, to, bytes, 1, pe);
  if (way.status.ok() && Route::may_be_direct && way.direct) {
    impl::copy_lent(lent, way.at(to), from, bytes);
    return Status{};
  }
  return put<Route>(thread, heap, to, from, bytes, pe, flags, timeout);
}

}  // namespace wv
