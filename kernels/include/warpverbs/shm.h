// Calls on a symmetric heap (heap.h). The same call serves every rank, whether its memory is mapped
// here or reached by RDMA.
//
// Places in the heap are given by their address in the caller's own heap. Targets and sources of put
// and get may also lie in a buffer that the ranks have registered; signals and words of atomics lie in
// the heap. On `warp` and `block` all
// members call with the same arguments.
//
// A call of a block goes, by RDMA, through the queue pair that belongs to the block's number, so
// what is said below of a group's earlier puts holds for those of the whole block, as long as the
// members are synchronised.
//
//   put, put_value      in the peer's memory once `quiet` returns or a later signal is seen
//   get                 here once `quiet` returns; where the peer is direct, on return
//   signal, put_signal  a rank that sees the signal sees all earlier puts of this group to that peer
//   fence               puts after it are not seen before those before it
//   quiet               all earlier puts of this rank to that peer are in its memory
//
// Statuses beside those of status.h: bad_address, no_peer, peer_lost, mixed_routes.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/heap.h"
#include "warpverbs/put.h"
#include "warpverbs/signal.h"
#include "warpverbs/status.h"

namespace wv {

// The first template argument of calls is what the caller knows of the peer; heap.h.

// Copies `bytes` from `from` to `to` in the heap of rank `pe`; the source may be written again on
// return if the peer is direct, else after `quiet`. The source is any memory if the peer is
// direct, else it lies in the own heap. The ranges must not overlap.
template <class Route = route::any, class Coop>
WV_DEVICE Status put(const Coop& coop, const Heap& heap, void* to, const void* from, u64 bytes,
                     u32 pe, Flags = {}, Timeout = {});

// Copies `bytes` from `from` in the heap of rank `pe` to `to`, which is where a source of put may
// be.
template <class Route = route::any, class Coop>
WV_DEVICE Status get(const Coop& coop, const Heap& heap, void* to, const void* from, u64 bytes,
                     u32 pe, Flags = {}, Timeout = {});

// T is an integer of 1, 4 or 8 bytes, *to aligned for it.
template <class Route = route::any, class Coop, class T>
WV_DEVICE Status put_value(const Coop& coop, const Heap& heap, T* to, T value, u32 pe, Flags = {},
                           Timeout = {});

// `what` is SignalAdd or SignalSet. SignalSet sets the word of the route that it takes: use it only
// on signals that one route writes.
template <class Route = route::any, class Coop, class Op>
WV_DEVICE Status signal(const Coop& coop, const Heap& heap, Signal* at, Op what, u32 pe,
                        Flags = {}, Timeout = {});

// put, then signal. 0 bytes are a signal alone.
template <class Route = route::any, class Coop, class Op>
WV_DEVICE Status put_signal(const Coop& coop, const Heap& heap, void* to, const void* from,
                            u64 bytes, Signal* at, Op what, u32 pe, Flags = {}, Timeout = {});

// Where a signal of signal_each goes.
struct SignalTo {
  Signal* at;
  u32 pe;
};

// `count` signals behind one fence. `to(i)` is the SignalTo of signal i, called by any one member.
// The first status that is not ok, or ok.
template <class Route = route::any, class Coop, class To, class Op>
WV_DEVICE Status signal_each(const Coop& coop, const Heap& heap, u32 count, To to, Op what,
                             Flags = {}, Timeout = {});

// The value of a signal of the own heap. Acquire.
WV_DEVICE u64 read_signal(const Signal* at);

// Waits until `*at how value`, unsigned. `from` is the rank that will signal, if it is only one:
// the wait then ends with peer_lost if the host gives that rank up. On failure HeapState.fault is
// filled in: expected is `value`, actual what the signal was.
template <class Coop>
WV_DEVICE Status wait_signal(const Coop& coop, const Heap& heap, const Signal* at, compare how,
                             u64 value, Timeout = {}, u32 from = no_rank);

// Waits for `count` signals, of which at(i) is the place of signal i, called by any one member. The
// members share them out, so a warp waits for 32 in the time of one. All must come from rank `from`
// if it is given. A failed wait's status, aborted before peer_lost before others, or ok.
template <class Coop, class At>
WV_DEVICE Status wait_each(const Coop& coop, const Heap& heap, u32 count, At at, compare how,
                           u64 value, Timeout = {}, u32 from = no_rank);

// Atomics on aligned words of u32 or u64. `old` is what the word was. They are ordered behind all
// earlier puts of the group to that peer, and acquire. If any rank reaches the word's heap by RDMA,
// all must: mixed_routes if this rank cannot.
template <class Route = route::any, class Coop, class T>
WV_DEVICE Status fetch_add(const Coop& coop, const Heap& heap, T* at, T add, T& old, u32 pe,
                           Timeout = {});
// Stores `desired` if the word is `expected`.
template <class Route = route::any, class Coop, class T>
WV_DEVICE Status compare_exchange(const Coop& coop, const Heap& heap, T* at, T expected, T desired,
                                  T& old, u32 pe, Timeout = {});
// Stores `desired` whatever the word is.
template <class Route = route::any, class Coop, class T>
WV_DEVICE Status exchange(const Coop& coop, const Heap& heap, T* at, T desired, T& old, u32 pe,
                          Timeout = {});

// Order without completion, towards the put_values and signals that the group makes afterwards.
template <class Coop>
WV_DEVICE Status fence(const Coop& coop, const Heap& heap, u32 pe);

// Completion, of everything that this rank did before the call: for one peer, and for all. With
// route::direct, of loads and stores.
template <class Route = route::any, class Coop>
WV_DEVICE Status quiet(const Coop& coop, const Heap& heap, u32 pe, Timeout = {});
template <class Coop>
WV_DEVICE Status quiet(const Coop& coop, const Heap& heap, Timeout = {});

}  // namespace wv

#include "warpverbs/impl/shm.h"
