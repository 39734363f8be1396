// Generated from crates/layout/src/status.rs.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {

// How a call ended.
enum class outcome : u8 {
  ok = 0,  // Well.
  timeout = 1,  // The call's time is up; PostState.fault says who waited for what.
  aborted = 2,  // The host raised the abort word, or another poster gave up on the queue.
  no_room = 3,  // try_ forms: the queue is full. poll forms: nothing has arrived.
  requester = 4,  // Error CQE of a send queue; see syndrome().
  responder = 5,  // Error CQE of a receive queue; see syndrome().
  too_long = 6,  // The caller's length is more than the queue takes; nothing was posted.
  bad_error = 7,  // The queue's error word is of a kind unknown to this library.
  stray_cqe = 8,  // The NIC reported a completion of work that is not in flight.
  bad_address = 9,  // Not in the heap for all its length, or not aligned for its word.
  no_peer = 10,  // No rank of the heap, or not reached in the way that was asked for.
  peer_lost = 11,  // The host has given the awaited rank up.
  mixed_routes = 12,  // An atomic on a heap that others reach by RDMA and this rank does not.
  // A token names an expert that there is not, or one twice; the choice was left out.
  bad_routing = 13,
  skew = 14,  // A peer's word belongs to a later call than the awaited one.
  unsupported = 15,  // The queue pair's NIC has no such atomic.
};

// How a call ended, and what the NIC said: of an error CQE alone, else 0.
struct [[nodiscard]] Status {
  u32 code = 0;

  static WV_HD constexpr Status of(outcome kind, u8 syndrome = 0, u8 vendor = 0, u8 wqe_opcode = 0) {
    u32 word = 0x0;
    word |= static_cast<u32>(kind) << 0;
    word |= static_cast<u32>(syndrome) << 8;
    word |= static_cast<u32>(vendor) << 16;
    word |= static_cast<u32>(wqe_opcode) << 24;
    return Status{word};
  }
  WV_HD constexpr bool ok() const { return code == 0; }
  // An `Outcome`.
  WV_HD constexpr outcome kind() const {
    return static_cast<outcome>(code >> 0 & 0xff);
  }
  // Syndrome byte of the CQE.
  WV_HD constexpr u8 syndrome() const {
    return static_cast<u8>(code >> 8 & 0xff);
  }
  // Vendor syndrome byte of the CQE; advisory.
  WV_HD constexpr u8 vendor() const {
    return static_cast<u8>(code >> 16 & 0xff);
  }
  // Opcode of the failed WQE.
  WV_HD constexpr u8 wqe_opcode() const {
    return static_cast<u8>(code >> 24 & 0xff);
  }
};

// The purpose of a wait; PostState.fault.what.
enum class wait_for : u32 {
  none = 0,  // Nothing.
  send_room = 1,  // Expected: `completed` of the send queue; actual: what it was.
  completion = 2,  // The same.
  receive_room = 3,  // Expected: `completed` of the receive queue; actual: what it was.
  receive = 4,  // Expected: index of the next receive completion; actual: the same.
  signal = 5,  // Expected: the operand; actual: the word's value.
  scratch = 6,  // Expected: 1 free scratch slot; actual: 0.
  barrier = 7,  // Expected: number of the call; actual: how often the awaited rank has come.
  mail = 8,  // Expected: sequence number of a message; actual: that of the line looked at.
  credit = 9,  // Expected: messages the peer has taken in all; actual: the same.
  // Expected: an EpWord; actual: the same. Of a rank's rows for this one, their number.
  ep_counts = 10,
  ep_rows = 11,  // The same: that a rank's rows have come.
  ep_results = 12,  // The same: that a rank has consumed rows and returned results.
  // Expected: epoch of a plan that another block of this launch makes; actual: that of the last.
  ep_plan = 13,
};

}  // namespace wv
