// The symmetric heap as kernels see it: one rank's own memory, and a way to every other rank.
// Mirrors crates/shmem/src/layout.rs. Native byte order. All ranks lay their heaps out alike, so a
// place in the heap is told by its address in the own one, and a peer by its rank.
#pragma once

#include "warpverbs/arch/arch.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {

// How a rank's heap is reached. Fixed by the host before kernels run.
enum class reach : u8 {
  none = 0,    // not at all: calls return no_peer
  direct = 1,  // by loads and stores: one's own heap, or one mapped here
  rdma = 2,    // through queue pairs
};

// What the caller of a template knows of a peer. `any` asks the tables; with the others the call is
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

// One rank's heap as this rank reaches it.
struct Peer {
  i64 delta;     // direct: what takes an address of the own heap to the peer's
  u64 qps;       // qp_count addresses of Qp, 0 if none
  u64 segments;  // Remote of each segment's first byte, 0 if none
  reach route;
  u8 shared_atomics;  // 1: some rank reaches this heap by RDMA, so all do their atomics so
  u16 qp_count;
  u32 signals_by_rdma;  // 1: direct, but a registered buffer is reached by RDMA: signals follow both
};

// A buffer of the user's that all ranks have registered, each its own.
struct Window {
  u64 base;  // first byte of the own one
  u64 bytes;
  Local near;  // its first byte for work requests; address 0 without RDMA
  u64 peers;   // WindowPeer of each rank
  u64 reserved;
};

// A rank's buffer as this rank reaches it.
struct WindowPeer {
  u64 delta;   // direct: what takes an address of the own buffer to the peer's
  Remote far;  // RDMA: its first byte
  reach route;
  u8 reserved[7];
};

// Never written after it was handed out, and always where the host put it: calls read it as
// constants of global memory, so a copy elsewhere is of no use.
struct Heap {
  Heap(const Heap&) = delete;

  u64 base;      // first byte of the own heap
  u64 bytes;     // its size
  u64 peers;     // Peer of each rank, this one included
  u64 segments;  // Local of each of the own segments' first byte; 0 without RDMA
  u64 state;     // HeapState
  u64 alarms;    // u32 for the heap, then one for each rank; see alarm_of_peer
  u64 timeout_ns;
  u32 rank;
  u32 world;
  u8 log_segment;  // log2 of the bytes of segment 0; each later one ends at twice its start
  u8 segment_count;
  u8 reserved[6];
  u64 stride;  // not 0: all ranks are direct, and each lies so many bytes behind the one before
  u64 windows;  // Window of each registered buffer
  u32 window_count;
  u32 no_more;
  u64 more[4];
};

// The first wait on the heap that failed, for the host.
struct HeapFault {
  u32 claim;  // 0 free, 1 being written, 2 complete
  u32 status;
  u32 what;    // wait_for
  u32 peer;    // rank that was waited for, no_rank if any
  u64 offset;  // of the word in the heap
  u64 expected;
  u64 actual;
  u64 thread;  // block * threads per block + thread
};

struct HeapState {
  HeapFault fault;
  u64 pad[10];
};

// In HeapFault.peer and for calls that wait: no rank in particular.
constexpr u32 no_rank = ~u32{0};

// Words behind Heap.alarms that the host raises from 0. The first ends every wait on the heap, that
// of a rank every wait for this rank alone.
constexpr u32 alarm_of_heap = 0;
WV_HD constexpr u32 alarm_of_peer(u32 rank) { return 1 + rank; }

// A signal of the heap: a word for the adds of kernels and a word for those of NICs, whose atomics
// know nothing of each other. What counts is their sum.
struct alignas(16) Signal {
  u64 direct;
  u64 remote;
};

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

static_assert(sizeof(Peer) == 32, "Peer");
WV_AT(Peer, qps, 8);
WV_AT(Peer, segments, 16);
WV_AT(Peer, route, 24);
WV_AT(Peer, shared_atomics, 25);
WV_AT(Peer, qp_count, 26);
WV_AT(Peer, signals_by_rdma, 28);
static_assert(sizeof(Heap) == 128, "Heap");
WV_AT(Heap, peers, 16);
WV_AT(Heap, segments, 24);
WV_AT(Heap, state, 32);
WV_AT(Heap, alarms, 40);
WV_AT(Heap, timeout_ns, 48);
WV_AT(Heap, rank, 56);
WV_AT(Heap, world, 60);
WV_AT(Heap, log_segment, 64);
WV_AT(Heap, segment_count, 65);
WV_AT(Heap, stride, 72);
WV_AT(Heap, windows, 80);
WV_AT(Heap, window_count, 88);
static_assert(sizeof(Window) == 48, "Window");
WV_AT(Window, near, 16);
WV_AT(Window, peers, 32);
static_assert(sizeof(WindowPeer) == 32, "WindowPeer");
WV_AT(WindowPeer, far, 8);
WV_AT(WindowPeer, route, 24);
static_assert(sizeof(HeapFault) == 48, "HeapFault");
WV_AT(HeapFault, offset, 16);
WV_AT(HeapFault, thread, 40);
static_assert(sizeof(HeapState) == 128, "HeapState");
static_assert(sizeof(Signal) == 16, "Signal");
static_assert(sizeof(Local) == 16 && sizeof(Remote) == 16, "tables of segments");

#undef WV_AT

// Own address of what lies `offset` bytes into the heap, wherever that is.
template <class T>
WV_DEVICE T* at_offset(const Heap& heap, u64 offset);

// Whether [own, own + bytes) lies in the own heap.
WV_DEVICE bool in_heap(const Heap& heap, const void* own, u64 bytes);

// The address at which this rank reaches `own`, a place in its own heap, in the heap of rank `pe`.
// Null if that is not by loads and stores, if `pe` is no rank, or if *own does not lie in the heap.
template <class T>
WV_DEVICE T* ptr(const Heap& heap, T* own, u32 pe);

}  // namespace wv

#include "warpverbs/impl/heap.h"
