// Remote atomics on aligned words of 4 or 8 bytes. T is u32 or u64.
//
// The fetching forms return when the old value is here. Each uses one of the queue pair's 64
// scratch slots meanwhile and waits for one if all are taken. A slot whose operation timed out is
// never used again: the NIC may still write to it.
//
// On `thread` every lane does its own; on `warp` and `block` the group does one, and all members
// get its old value.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"
#include "warpverbs/verbs.h"

namespace wv {

template <class Coop, class T, class Nic>
WV_DEVICE Status fetch_add(const Coop& coop, const QpOf<Nic>& qp, Remote remote, T add, T& old,
                           Timeout = {});

// Stores `desired` if the word is `expected`.
template <class Coop, class T, class Nic>
WV_DEVICE Status compare_swap(const Coop& coop, const QpOf<Nic>& qp, Remote remote, T expected,
                              T desired, T& old, Timeout = {});

// Stores `desired` whatever the word is.
template <class Coop, class T, class Nic>
WV_DEVICE Status swap(const Coop& coop, const QpOf<Nic>& qp, Remote remote, T desired, T& old,
                      Timeout = {});

// The masked operands of verbs.h; T as in them.
template <class Coop, class Operands, class T, class Nic>
WV_DEVICE Status fetch_atomic(const Coop& coop, const QpOf<Nic>& qp, Remote remote,
                              Operands operands, T& old, Timeout = {});

// Without a result: posted and rung on return, done after wait or quiet (wait.h).
template <class Coop, class T, class Nic>
WV_DEVICE Posted add(const Coop& coop, const QpOf<Nic>& qp, Remote remote, T value, Flags = {},
                     Timeout = {});

}  // namespace wv

#include "warpverbs/impl/atomic.h"
