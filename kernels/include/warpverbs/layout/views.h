// Generated from crates/layout/src/views.rs.
#pragma once

#include "warpverbs/layout/heap.h"

namespace wv {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

// A piece of this agent's memory.
struct LocalEntry {
  u64 addr;  // Where kernels reach it.
  u64 bytes;  // Its size.
  Local nic;  // Its first byte; address 0 if the NIC does not know it.
};
static_assert(sizeof(LocalEntry) == 32 && alignof(LocalEntry) == 8, "LocalEntry");
WV_AT(LocalEntry, addr, 0);
WV_AT(LocalEntry, bytes, 8);
WV_AT(LocalEntry, nic, 16);

// A piece of a peer's memory; all zero is a hole.
struct RemoteEntry {
  u64 addr;  // Direct: where kernels here reach it.
  u64 bytes;  // Its size.
  Remote nic;  // Its first byte.
  // Address of `qp_count` addresses of queue pairs, one for each channel; 0 if there are none.
  u64 qps;
  reach route;  // How it is reached; none is a hole.
  u8 reserved;  // Zero.
  u16 qp_count;  // Channels.
  u32 peer;  // Number of the peer; see alarm_of_peer.
};
static_assert(sizeof(RemoteEntry) == 48 && alignof(RemoteEntry) == 8, "RemoteEntry");
WV_AT(RemoteEntry, addr, 0);
WV_AT(RemoteEntry, bytes, 8);
WV_AT(RemoteEntry, nic, 16);
WV_AT(RemoteEntry, qps, 32);
WV_AT(RemoteEntry, route, 40);
WV_AT(RemoteEntry, reserved, 41);
WV_AT(RemoteEntry, qp_count, 42);
WV_AT(RemoteEntry, peer, 44);

// Memory of this agent.
struct LocalView {
  u64 entries;  // Address of `count` times `LocalEntry`.
  u32 count;  // Entries.
  u32 peers;  // Peers that may be waited for.
  u64 state;  // Address of the `HeapState` for the first wait that failed.
  u64 alarms;  // Address of a u32 for all waits, then one for each peer.
  u64 timeout_ns;  // The deadline, in nanoseconds, of every wait that is not given its own.
};
static_assert(sizeof(LocalView) == 40 && alignof(LocalView) == 8, "LocalView");
WV_AT(LocalView, entries, 0);
WV_AT(LocalView, count, 8);
WV_AT(LocalView, peers, 12);
WV_AT(LocalView, state, 16);
WV_AT(LocalView, alarms, 24);
WV_AT(LocalView, timeout_ns, 32);

// Memory of peers.
struct RemoteView {
  u64 entries;  // Address of `count` times `RemoteEntry`.
  u32 count;  // Entries.
  u32 reserved;  // Zero.
  u64 timeout_ns;  // The deadline, in nanoseconds, of every wait that is not given its own.
};
static_assert(sizeof(RemoteView) == 24 && alignof(RemoteView) == 8, "RemoteView");
WV_AT(RemoteView, entries, 0);
WV_AT(RemoteView, count, 8);
WV_AT(RemoteView, reserved, 12);
WV_AT(RemoteView, timeout_ns, 16);

#undef WV_AT

}  // namespace wv
