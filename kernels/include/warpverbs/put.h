// One-sided writes: put, put_each, put_inline, put_value, put_imm, put_signal.
//
// A put is posted and rung when the call returns, not done: the source must stay as it is until
// wait or quiet (wait.h). put_inline and put_value copy their bytes, which are free at once. Done
// means that the bytes are in remote memory. Puts of one queue pair are placed in order.
//
// All wait for room in the send queue, up to the deadline, however many threads post.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {

// Effects of put_signal and signal on the u64 at the signal's address, 8-byte aligned.
struct SignalAdd {
  u64 value;
};
struct SignalSet {
  u64 value;
};

// bytes: below 2^31.
template <class Coop, class Nic>
WV_DEVICE Posted put(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote, u32 bytes,
                     Flags = {}, Timeout = {});

// Every member of `coop` posts its own transfer, all of them under one reservation per warp, with
// one doorbell and at most one CQE: the way to many small messages. All members must call. If one
// member's length is too long, its whole warp gets too_long and posts nothing.
template <class Coop, class Nic>
WV_DEVICE Posted put_each(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote,
                          u32 bytes, Flags = {}, Timeout = {});

// Copies from any memory the posting thread can read. bytes: at most 4 * qp.inline_words.
template <class Coop, class Nic>
WV_DEVICE Posted put_inline(const Coop& coop, const QpOf<Nic>& qp, const void* source,
                            Remote remote, u32 bytes, Flags = {}, Timeout = {});

// T is an integer of 1, 2, 4 or 8 bytes.
template <class Coop, class T, class Nic>
WV_DEVICE Posted put_value(const Coop& coop, const QpOf<Nic>& qp, T value, Remote remote,
                           Flags = {}, Timeout = {});

// Also takes a receive of the peer, which completes with `imm` once the bytes are there.
template <class Coop, class Nic>
WV_DEVICE Posted put_imm(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote,
                         u32 bytes, u32 imm, Flags = {}, Timeout = {});

// The signal is given after these bytes, and all earlier puts of this queue pair, are in place.
template <class Coop, class Signal, class Nic>
WV_DEVICE Posted put_signal(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote,
                            u32 bytes, Remote signal_at, Signal signal, Flags = {}, Timeout = {});

}  // namespace wv

#include "warpverbs/impl/put.h"
