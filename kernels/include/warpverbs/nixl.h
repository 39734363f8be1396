// Transfers between registered memory of agents, by kernels. A kernel is given views, tables of
// memory that the host made: of its own agent's memory and of its peers'. Peers come and go with new
// views; a view may have holes, where a peer is absent. The calls are those of NIXL's device API,
// whose names are in docs/device-guide.md.
//
// A call goes by loads and stores where the peer's memory is mapped, else through the queue pair of
// its `channel`, modulo the number there is. All entries of one peer in a view are reached alike.
//
//   put          in the peer's memory when the transfer is done, or when a later counter is seen
//   get          here when the transfer is done; where the peer is direct, on return
//   atomic_add   a reader of the counter sees all earlier puts of this group to that peer on this channel
//   deferred     the doorbell is left to the next call on the channel that is not
//
// Statuses beside those of status.h: bad_address (no such entry, a range beyond it, a counter off its
// alignment, local memory that the NIC does not know), no_peer (a hole, or not reached by the route
// that was named), peer_lost (the host has given the awaited peer up).
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/heap.h"
#include "warpverbs/layout/views.h"
#include "warpverbs/put.h"
#include "warpverbs/signal.h"
#include "warpverbs/status.h"

namespace wv {

// A place: `offset` bytes into an entry.
struct LocalAt {
  const LocalView* view;
  u32 index;
  u64 offset;
};
struct RemoteAt {
  const RemoteView* view;
  u32 index;
  u64 offset;
};

// Work that a call started, or why it did not. Lives in registers, the same in the whole group.
struct [[nodiscard]] Transfer {
  Status status;
  u32 wqebbs;
  u64 index;
  const Qp* qp;  // null if it was done on return

  WV_DEVICE bool ok() const { return status.ok(); }
};

// How a call posts, beside what it moves.
struct How {
  u32 channel = 0;
  Flags flags = {};
  Timeout timeout = {};  // of waits for room; by default the view's
};
WV_DEVICE constexpr How on_channel(u32 channel, Flags flags = {}) { return How{channel, flags, {}}; }

// The source is part of this agent's memory, and free when the transfer is done.
template <class Route = route::any, class Coop>
WV_DEVICE Transfer put(const Coop& coop, const LocalAt& from, const RemoteAt& to, u64 bytes,
                       How = {});

template <class Route = route::any, class Coop>
WV_DEVICE Transfer get(const Coop& coop, const LocalAt& to, const RemoteAt& from, u64 bytes,
                       How = {});

// A counter is a Signal of heap.h, 16 bytes and aligned to them: kernels add to one half and NICs to
// the other, and its value is their sum.
template <class Route = route::any, class Coop>
WV_DEVICE Transfer atomic_add(const Coop& coop, u64 value, const RemoteAt& counter, How = {});

// put, then atomic_add, to the same peer. 0 bytes are the add alone.
template <class Route = route::any, class Coop>
WV_DEVICE Transfer put_signal(const Coop& coop, const LocalAt& from, const RemoteAt& to, u64 bytes,
                              const RemoteAt& counter, u64 value, How = {});

// The value of a counter of this agent's memory. Acquire.
WV_DEVICE Status read_signal(const LocalAt& counter, u64& value);

// Waits until `counter how value`, unsigned. `peer` is the number of the peer that will add to it, if
// it is only one: the wait then ends with peer_lost if the host gives that peer up.
template <class Coop>
WV_DEVICE Status wait_signal(const Coop& coop, const LocalAt& counter, compare how, u64 value,
                             Timeout = {}, u32 peer = no_rank);

// Where kernels here reach `at`, if that is by loads and stores and a T lies there; else null.
template <class T>
WV_DEVICE T* get_ptr(const RemoteAt& at);

// ok when the transfer and all earlier ones of its peer and channel are done, no_room while they are
// not, else why they will not be. Any member may ask by itself.
WV_DEVICE Status transfer_status(const Transfer& transfer);

// Waits for that.
template <class Coop>
WV_DEVICE Status wait(const Coop& coop, const Transfer& transfer, Timeout = {});

// ---- Lists: entry i of `local` goes to entry i of `remote`, all of one peer.

struct Request {
  const LocalView* local;
  const RemoteView* remote;
};

// One entry, or part of it.
template <class Route = route::any, class Coop>
WV_DEVICE Transfer post_single(const Coop& coop, const Request& request, u32 index,
                               u64 local_offset, u64 remote_offset, u64 bytes, How = {});

// `count` entries or parts of them, then `increment` to the counter at `signal_offset` of entry
// `signal_index` of the peer. Nothing is posted if one of them cannot be.
template <class Route = route::any, class Coop>
WV_DEVICE Transfer post_partial(const Coop& coop, const Request& request, u32 count,
                                const u32* indices, const u64* sizes, const u64* local_offsets,
                                const u64* remote_offsets, u32 signal_index, u64 increment,
                                u64 signal_offset, How = {});

// All entries of `local`, whole, then `increment` to the counter at the start of the entry of
// `remote` that follows theirs.
template <class Route = route::any, class Coop>
WV_DEVICE Transfer post_all(const Coop& coop, const Request& request, u64 increment, How = {});

// The counter alone.
template <class Route = route::any, class Coop>
WV_DEVICE Transfer post_signal(const Coop& coop, const Request& request, u32 signal_index,
                               u64 increment, u64 signal_offset, How = {});

}  // namespace wv

#include "warpverbs/impl/nixl.h"
