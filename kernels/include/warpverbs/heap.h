// The symmetric heap as kernels see it: one rank's own memory, and a way to every other rank. Its
// layout is in layout/heap.h. Native byte order. All ranks lay their heaps out alike, so a
// place in the heap is told by its address in the own one, and a peer by its rank.
#pragma once

#include "warpverbs/arch/arch.h"
#include "warpverbs/layout/heap.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {

// Knowledge that the caller has of a peer. `any` asks the tables; with the others the call is
// smaller, and returns no_peer for a peer that is reached otherwise.
namespace route {
struct any {
  static constexpr bool may_be_direct = true, may_be_rdma = true;
};
struct direct {
  static constexpr bool may_be_direct = true, may_be_rdma = false;
};
struct rdma {
  static constexpr bool may_be_direct = false, may_be_rdma = true;
};
}  // namespace route

// Index behind Heap.alarms of the word that ends every wait for this rank alone; see alarm_of_heap.
WV_HD constexpr u32 alarm_of_peer(u32 rank) { return 1 + rank; }

static_assert(sizeof(Local) == 16 && sizeof(Remote) == 16, "tables of segments");

// Own address of what lies `offset` bytes into the heap, wherever that is.
template <class T>
WV_DEVICE T* at_offset(const Heap& heap, u64 offset);

// Whether [own, own + bytes) lies in the own heap.
WV_DEVICE bool in_heap(const Heap& heap, const void* own, u64 bytes);

// The address at which this rank reaches `own`, a place in its own heap, in the heap of rank `pe`.
// Null if that is not by loads and stores, if `pe` is not a rank of the heap, or if *own does not
// lie in the heap.
template <class T>
WV_DEVICE T* ptr(const Heap& heap, T* own, u32 pe);

}  // namespace wv

#include "warpverbs/impl/heap.h"
