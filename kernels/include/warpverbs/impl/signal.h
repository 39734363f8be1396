// Bodies of signal.h.
#pragma once

#include "warpverbs/impl/complete.h"
#include "warpverbs/impl/put.h"
#include "warpverbs/signal.h"

namespace wv {
namespace impl {

WV_DEVICE bool holds(u64 actual, compare how, u64 value) {
  switch (how) {
    case compare::eq: return actual == value;
    case compare::ne: return actual != value;
    case compare::ge: return actual >= value;
    case compare::gt: return actual > value;
    case compare::le: return actual <= value;
    case compare::lt: return actual < value;
  }
  return false;
}

template <class Nic>
WV_DEVICE Status await_signal(const QpOf<Nic>& qp, const u64* word, compare how, u64 value,
                              Timeout timeout) {
  const Deadline deadline = deadline_of(qp, timeout);
  Backoff backoff;
  for (;;) {
    const u64 actual = read_signal(word);
    if (holds(actual, how, value)) return Status{};
    Status status = error_of(state_of(qp));
    if (!status.ok()) return status;
    status = pause_or_give_up(qp, backoff, deadline, wait_for::signal, value, actual);
    if (!status.ok()) return status;
  }
}

}  // namespace impl

template <class Coop, class Signal, class Nic>
WV_DEVICE Posted signal(const Coop& coop, const QpOf<Nic>& qp, Remote at, Signal what, Flags flags,
                        Timeout timeout) {
  return impl::post(coop, qp, impl::signal_op(qp, at, what), flags, timeout);
}

WV_DEVICE u64 read_signal(const u64* word) {
  // Acquire, pairs with the NIC's write of the signal, which follows its write of the payload.
  return load<order::acquire, scope::system>(word);
}

template <class Coop, class Nic>
WV_DEVICE Status wait_signal(const Coop& coop, const QpOf<Nic>& qp, const u64* word, compare how,
                             u64 value, Timeout timeout) {
  return impl::once(coop, [&] { return impl::await_signal(qp, word, how, value, timeout); });
}

}  // namespace wv
