// Bodies of heap.h: from an own address to a peer's.
#pragma once

#include "warpverbs/heap.h"

namespace wv {
namespace impl {

// A field of Heap or Peer. Tables change only between launches.
template <class T>
WV_DEVICE T fixed(const T& field) {
  return load_constant(&field);
}

// Where `own` lies in the heap. Beyond heap.bytes for any address outside.
WV_DEVICE u64 offset_in(const Heap& heap, const void* own) {
  return reinterpret_cast<u64>(own) - fixed(heap.base);
}

// Whether [offset, offset + bytes) lies in the heap.
WV_DEVICE bool holds_range(const Heap& heap, u64 offset, u64 bytes) {
  const u64 all = fixed(heap.bytes);
  return offset <= all && bytes <= all - offset;
}

// The registered buffer that holds [own, own + bytes); null if none does. A call of its own: the heap
// is what nearly all calls are about.
WV_D WV_NOINLINE inline const Window* window_of(const Heap& heap, const void* own, u64 bytes) {
  const Window* windows = reinterpret_cast<const Window*>(fixed(heap.windows));
  for (u32 i = 0; i < fixed(heap.window_count); ++i) {
    const u64 offset = reinterpret_cast<u64>(own) - fixed(windows[i].base);
    const u64 all = fixed(windows[i].bytes);
    if (offset <= all && bytes <= all - offset) return windows + i;
  }
  return nullptr;
}

// Null if `pe` is not a rank of the heap.
WV_DEVICE const Peer* peer_of(const Heap& heap, u32 pe) {
  if (pe >= fixed(heap.world)) return nullptr;
  return reinterpret_cast<const Peer*>(fixed(heap.peers)) + pe;
}

}  // namespace impl

template <class T>
WV_DEVICE T* at_offset(const Heap& heap, u64 offset) {
  return reinterpret_cast<T*>(impl::fixed(heap.base) + offset);
}

WV_DEVICE bool in_heap(const Heap& heap, const void* own, u64 bytes) {
  return impl::holds_range(heap, impl::offset_in(heap, own), bytes);
}

template <class T>
WV_DEVICE T* ptr(const Heap& heap, T* own, u32 pe) {
  const Peer* peer = impl::peer_of(heap, pe);
  if (peer == nullptr || impl::fixed(peer->route) != reach::direct) return nullptr;
  if (!in_heap(heap, own, sizeof(T))) return nullptr;
  return reinterpret_cast<T*>(reinterpret_cast<u64>(own) + static_cast<u64>(impl::fixed(peer->delta)));
}

}  // namespace wv
