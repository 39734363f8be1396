// Generated from crates/layout/src/heap.rs.
#pragma once

#include "warpverbs/status.h"

namespace wv {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

// How memory of another rank or agent is reached. Fixed by the host before kernels run.
enum class reach : u8 {
  none = 0,  // Not at all: calls return no_peer.
  direct = 1,  // By loads and stores: one's own memory, or memory that is mapped here.
  rdma = 2,  // Through queue pairs.
};

// One rank's heap as another rank reaches it.
struct Peer {
  // Direct: what takes an address of the own heap to the peer's, modulo 2^64. 0 for oneself.
  i64 delta;
  u64 qps;  // Address of `qp_count` addresses of queue pairs, 0 if there are none.
  // Address of the first byte of each of the peer's segments, `Remote`, 0 if there are none.
  u64 segments;
  reach route;  // A `Reach`.
  // 1: some rank reaches this heap by RDMA, so all do their fetching atomics on it by RDMA.
  u8 shared_atomics;
  u16 qp_count;  // Queue pairs to this rank.
  // 1: reached by loads and stores, but some registered buffer of this rank by RDMA, so that
  // signals must follow the puts of both.
  u32 signals_by_rdma;
};
static_assert(sizeof(Peer) == 32 && alignof(Peer) == 8, "Peer");
WV_AT(Peer, delta, 0);
WV_AT(Peer, qps, 8);
WV_AT(Peer, segments, 16);
WV_AT(Peer, route, 24);
WV_AT(Peer, shared_atomics, 25);
WV_AT(Peer, qp_count, 26);
WV_AT(Peer, signals_by_rdma, 28);

// A buffer of the user's that all ranks have registered, each its own.
struct Window {
  u64 base;  // Address of the own buffer's first byte.
  u64 bytes;  // Its length, the same on all ranks.
  Local near;  // Its first byte as the own NIC knows it; address 0 without RDMA.
  u64 peers;  // Address of a `WindowPeer` for each rank.
  u64 reserved;  // Zero.
};
static_assert(sizeof(Window) == 48 && alignof(Window) == 8, "Window");
WV_AT(Window, base, 0);
WV_AT(Window, bytes, 8);
WV_AT(Window, near, 16);
WV_AT(Window, peers, 32);
WV_AT(Window, reserved, 40);

// A rank's registered buffer as another rank reaches it.
struct WindowPeer {
  u64 delta;  // Direct: what takes an address of the own buffer to the peer's, modulo 2^64.
  Remote far;  // RDMA: its first byte as its NIC knows it.
  reach route;  // A `Reach`.
  u8 reserved[7];  // Zero.
};
static_assert(sizeof(WindowPeer) == 32 && alignof(WindowPeer) == 8, "WindowPeer");
WV_AT(WindowPeer, delta, 0);
WV_AT(WindowPeer, far, 8);
WV_AT(WindowPeer, route, 24);
WV_AT(WindowPeer, reserved, 25);

// A rank's heap. Never written after it was handed out, and always where the host put it: kernels
// read it as constants of global memory, so a copy elsewhere is not usable.
struct Heap {
  Heap(const Heap&) = delete;

  u64 base;  // Address of the own heap's first byte.
  u64 bytes;  // Size of the heap in bytes.
  u64 peers;  // Address of a `Peer` for each rank, this one included.
  u64 segments;  // Address of the first byte of each of the own segments, `Local`, 0 without RDMA.
  u64 state;  // Address of the `HeapState`.
  // Address of `1 + world` u32 in memory that the host writes: for the heap, then for each rank.
  u64 alarms;
  u64 timeout_ns;  // The deadline, in nanoseconds, of every wait that is not given its own.
  u32 rank;  // The own rank.
  u32 world;  // Number of ranks.
  // log2 of the bytes of segment 0. Segment `k > 0` is `[2^(log + k - 1), 2^(log + k))`.
  u8 log_segment;
  u8 segment_count;  // Number of segments, at most 64.
  u8 reserved[6];  // Zero.
  // If not 0: every rank is reached by loads and stores, by these alone, and lies this many bytes
  // (modulo 2^64) behind the one before it. Kernels then look up no `Peer`.
  u64 stride;
  u64 windows;  // Address of `window_count` times `Window`.
  u32 window_count;  // Registered buffers.
  u32 no_more;  // Zero.
  u64 more[4];  // Zero.
};
static_assert(sizeof(Heap) == 128 && alignof(Heap) == 8, "Heap");
WV_AT(Heap, base, 0);
WV_AT(Heap, bytes, 8);
WV_AT(Heap, peers, 16);
WV_AT(Heap, segments, 24);
WV_AT(Heap, state, 32);
WV_AT(Heap, alarms, 40);
WV_AT(Heap, timeout_ns, 48);
WV_AT(Heap, rank, 56);
WV_AT(Heap, world, 60);
WV_AT(Heap, log_segment, 64);
WV_AT(Heap, segment_count, 65);
WV_AT(Heap, reserved, 66);
WV_AT(Heap, stride, 72);
WV_AT(Heap, windows, 80);
WV_AT(Heap, window_count, 88);
WV_AT(Heap, no_more, 92);
WV_AT(Heap, more, 96);

// The first wait on a heap or a view that failed, for the host: the first writer claims it.
struct HeapFault {
  u32 claim;  // 0 free, 1 being written, 2 complete.
  u32 status;  // A `wv::Status` code (see `status.h`).
  u32 what;  // Purpose of the wait: a `wv::wait_for` code.
  u32 peer;  // Rank or peer that was waited for, `no_rank` if none in particular.
  u64 offset;  // Where in the heap the word lies; of a view its address.
  u64 expected;  // The value that was waited for.
  u64 actual;  // The value found when the wait gave up.
  u64 thread;  // Flat thread number of the waiter: block * threads per block + thread.
};
static_assert(sizeof(HeapFault) == 48 && alignof(HeapFault) == 8, "HeapFault");
WV_AT(HeapFault, claim, 0);
WV_AT(HeapFault, status, 4);
WV_AT(HeapFault, what, 8);
WV_AT(HeapFault, peer, 12);
WV_AT(HeapFault, offset, 16);
WV_AT(HeapFault, expected, 24);
WV_AT(HeapFault, actual, 32);
WV_AT(HeapFault, thread, 40);

// Record that kernels write about waits; zero-filled at creation.
struct HeapState {
  HeapFault fault;  // The first failed wait.
  u64 pad[10];  // Keeps the line to itself.
};
static_assert(sizeof(HeapState) == 128 && alignof(HeapState) == 8, "HeapState");
WV_AT(HeapState, fault, 0);
WV_AT(HeapState, pad, 48);

// A signal: a word for the adds of kernels and a word for those of NICs, whose atomics know nothing
// of each other. Its value is their sum.
struct alignas(16) Signal {
  u64 direct;  // Raised by kernels' loads and stores.
  u64 remote;  // Raised by NICs.
};
static_assert(sizeof(Signal) == 16 && alignof(Signal) == 16, "Signal");
WV_AT(Signal, direct, 0);
WV_AT(Signal, remote, 8);

// In HeapFault.peer and for calls that wait: no rank in particular.
constexpr u32 no_rank = 0xffffffff;
// Index behind Heap.alarms of the word that ends every wait on the heap once it is not 0. The
// word `1 + rank` ends every wait for this rank alone.
constexpr u32 alarm_of_heap = 0;

#undef WV_AT

}  // namespace wv
