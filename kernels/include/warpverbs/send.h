// Two-sided messages: send, send_imm, receive, poll_recv, wait_recv.
//
// Every send, and every put_imm, takes one posted receive of the peer. Completions of a receive
// queue come in the order of the receives, and each goes to exactly one caller of poll_recv or
// wait_recv. Room in the receive queue is made by consuming them.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/mlx5/opcode.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {

// One receive completion.
struct Received {
  u64 index;  // of the receive, as Posted.index of the call that posted it
  u32 bytes;
  u32 imm;     // native order; meaningful if has_imm(). After SEND_INVAL the rkey
  u32 opcode;  // an mlx5::cqe_opcode

  WV_HD constexpr bool has_imm() const {
    return opcode == static_cast<u32>(mlx5::cqe_opcode::resp_wr_imm) ||
           opcode == static_cast<u32>(mlx5::cqe_opcode::resp_send_imm);
  }
  u32 reserved;
};

// bytes: below 2^31.
template <class Coop, class Nic>
WV_DEVICE Posted send(const Coop& coop, const QpOf<Nic>& qp, Local local, u32 bytes, Flags = {},
                      Timeout = {});
template <class Coop, class Nic>
WV_DEVICE Posted send_imm(const Coop& coop, const QpOf<Nic>& qp, Local local, u32 bytes, u32 imm,
                          Flags = {}, Timeout = {});

// Offers a buffer for one message. Posted.index counts receives.
template <class Coop, class Nic>
WV_DEVICE Posted receive(const Coop& coop, const QpOf<Nic>& qp, Local local, u32 bytes,
                         Timeout = {});

// Takes the next completion if there is one: ok, or no_room if there is none or another thread is
// looking. An error completion fails the queue pair and gives its cause.
template <class Nic>
WV_DEVICE Status poll_recv(const QpOf<Nic>& qp, Received& out);

// The same, but waits. The message is visible to all members.
template <class Coop, class Nic>
WV_DEVICE Status wait_recv(const Coop& coop, const QpOf<Nic>& qp, Received& out, Timeout = {});

}  // namespace wv

#include "warpverbs/impl/send.h"
