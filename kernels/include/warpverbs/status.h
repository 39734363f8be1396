// How calls end, and how long they may wait.
#pragma once

#include "warpverbs/arch/arch.h"

namespace wv {

enum class outcome : u8 {
  ok = 0,
  timeout = 1,    // the call's time is up; PostState.fault says who waited for what
  aborted = 2,    // the host raised the abort word, or another poster gave up on the queue
  no_room = 3,    // try_ forms: the queue is full. poll forms: nothing has arrived
  requester = 4,  // error CQE of a send queue; see syndrome()
  responder = 5,  // error CQE of a receive queue; see syndrome()
  too_long = 6,   // the caller's length is more than the queue takes; nothing was posted
  bad_error = 7,  // the queue's error word is of a kind unknown to this library
  stray_cqe = 8,  // the NIC reported a completion of work that is not in flight
  bad_address = 9,    // not in the heap for all its length, or not aligned for its word
  no_peer = 10,       // no rank of the heap, or not reached in the way that was asked for
  peer_lost = 11,     // the host has given the awaited rank up
  mixed_routes = 12,  // an atomic on a heap that others reach by RDMA and this rank does not
};

// One word: outcome in bits 7..0, CQE syndrome 15..8, vendor syndrome 23..16, WQE opcode 31..24.
// The last three are 0 unless the outcome is requester or responder.
struct [[nodiscard]] Status {
  u32 code = 0;

  static WV_HD constexpr Status of(outcome o, u8 syndrome = 0, u8 vendor = 0, u8 wqe_opcode = 0) {
    return Status{static_cast<u32>(o) | u32{syndrome} << 8 | u32{vendor} << 16 |
                  u32{wqe_opcode} << 24};
  }
  WV_HD constexpr bool ok() const { return code == 0; }
  WV_HD constexpr outcome kind() const { return static_cast<outcome>(code & 0xff); }
  WV_HD constexpr u8 syndrome() const { return static_cast<u8>(code >> 8); }
  WV_HD constexpr u8 vendor() const { return static_cast<u8>(code >> 16); }
  WV_HD constexpr u8 wqe_opcode() const { return static_cast<u8>(code >> 24); }
};

// Keeps the first bad status of many threads in `*first`, which is zero before the launch.
WV_DEVICE void keep_first(Status* first, Status result) {
  if (!result.ok()) (void)compare_exchange<order::relaxed, scope::gpu>(&first->code, 0, result.code);
}

// The purpose of a wait; PostState.fault.what.
enum class wait_for : u32 {
  none = 0,
  send_room = 1,   // expected: `completed` of the send queue; actual: what it was
  completion = 2,  // the same
  receive_room = 3,   // expected: `completed` of the receive queue; actual: what it was
  receive = 4,     // expected: index of the next receive completion; actual: the same
  signal = 5,      // expected: the operand; actual: the word's value
  scratch = 6,     // expected: 1 free scratch slot; actual: 0
  barrier = 7,     // expected: number of the call; actual: how often the awaited rank has come
  mail = 8,        // expected: sequence number of a message; actual: that of the line looked at
  credit = 9,      // expected: messages the peer has taken in all; actual: the same
};

// How long one call may wait in all. 0, the default, is the queue pair's own timeout_ns. No call
// waits without bound.
struct Timeout {
  u64 ns = 0;
};
WV_HD constexpr Timeout within_ns(u64 ns) { return Timeout{ns}; }
WV_HD constexpr Timeout within_us(u64 us) { return Timeout{us * 1000}; }

// Buffers. Addresses are the ones the NIC knows: those of the registered region.
struct Local {
  u64 addr;
  u32 lkey;
};
struct Remote {
  u64 addr;
  u32 rkey;
};

// How to post; combine with |. The default is: signalled, no fence. A type of its own, so that no
// immediate is taken for flags.
struct Flags {
  u32 bits = 0;

  WV_HD constexpr bool has(Flags other) const { return (bits & other.bits) != 0; }
};
WV_HD constexpr Flags operator|(Flags a, Flags b) { return Flags{a.bits | b.bits}; }

// No CQE of its own. The library still asks for one at every quarter of the ring, and `quiet` and
// `wait` add one when they need it.
WV_D constexpr Flags unsignalled{1};
// The NIC starts this work after every earlier READ and atomic of this queue pair has completed.
WV_D constexpr Flags fenced{2};
// The receiver's CQE raises its completion event.
WV_D constexpr Flags solicited{4};
// Return no_room where the call would wait for room. Nothing is reserved then.
WV_D constexpr Flags no_wait{8};
// Do not ring the doorbell yet: the work may stay unrung until any thread posts to the queue pair
// without this flag or waits for completion. It is not lost, and a quarter of the ring at most is
// held back.
WV_D constexpr Flags deferred{16};

// Posted work: WQEBBs [index, index + wqebbs) of the send queue, unless status says why not.
struct [[nodiscard]] Posted {
  Status status;
  u32 wqebbs;
  u64 index;

  WV_HD constexpr bool ok() const { return status.ok(); }
  WV_HD constexpr u64 end() const { return index + wqebbs; }
};

}  // namespace wv
