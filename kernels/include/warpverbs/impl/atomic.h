// Bodies of atomic.h.
#pragma once

#include "warpverbs/atomic.h"
#include "warpverbs/impl/complete.h"
#include "warpverbs/impl/put.h"

namespace wv {
namespace impl {

constexpr u32 no_slot = scratch_slots;

// A free scratch slot, now the caller's, or no_slot.
WV_DEVICE u32 try_take_scratch(PostState* state) {
  u64 free = load<order::relaxed, scope::gpu>(&state->scratch_free);
  while (free != 0) {
    const u32 slot = lowest_bit(free);
    // Acquire, pairs with give_scratch: the last owner's read before our NIC's write.
    const u64 now = compare_exchange<order::acquire, scope::gpu>(&state->scratch_free, free,
                                                                 free & ~(u64{1} << slot));
    if (now == free) return slot;
    free = now;
  }
  return no_slot;
}
WV_DEVICE void give_scratch(PostState* state, u32 slot) {
  (void)fetch_or<order::release, scope::gpu>(&state->scratch_free, u64{1} << slot);
}

template <class T>
struct Operand;
template <>
struct Operand<u32> {
  static WV_DEVICE u32 read(u64 address) {
    // 4-byte results come back big-endian.
    return bswap32(load<order::relaxed, scope::system>(at<u32>(address)));
  }
  static WV_DEVICE auto add(u32 v) { return MaskedFetchAdd<u32>{v, 0}; }
  static WV_DEVICE auto compare_swap(u32 expected, u32 desired) {
    return MaskedCompareSwap<u32>{expected, ~u32{0}, desired, ~u32{0}};
  }
};
template <>
struct Operand<u64> {
  static WV_DEVICE u64 read(u64 address) {
    return load<order::relaxed, scope::system>(at<u64>(address));
  }
  static WV_DEVICE auto add(u64 v) { return FetchAdd{v}; }
  static WV_DEVICE auto compare_swap(u64 expected, u64 desired) {
    return CompareSwap{expected, desired};
  }
};

template <class T, class Post, class Nic>
WV_DEVICE Status fetch_through(const QpOf<Nic>& qp, u32 slot, T& old, Deadline deadline,
                               Post post) {
  const u64 address = qp.scratch + u64{slot} * 8;
  const Posted posted = post(Local{address, qp.scratch_lkey}, deadline);
  if (!posted.ok()) {
    // Nothing that the NIC knows of uses the slot.
    give_scratch(state_of(qp), slot);
    return posted.status;
  }
  const Status status = complete(qp, posted.end(), deadline);
  if (!status.ok()) return status;
  old = Operand<T>::read(address);
  give_scratch(state_of(qp), slot);
  return status;
}

// Takes a slot, and does everything within the turn that found one: where lanes run in lockstep,
// those that have a slot must not wait for those that have none.
template <class T, class Post, class Nic>
WV_DEVICE Status fetch(const QpOf<Nic>& qp, T& old, Timeout timeout, Post post) {
  PostState* state = state_of(qp);
  const Deadline deadline = deadline_of(qp, timeout);
  Backoff backoff;
  Status status;
  u32 slot = no_slot;
  repeat(qp.state, patience_of(deadline), WV_SITE, [&](bool) {
    slot = try_take_scratch(state);
    if (slot != no_slot) {
      if (lockstep()) status = fetch_through(qp, slot, old, deadline, post);
      return true;
    }
    status = error_of(state);
    if (!status.ok()) return true;
    status = pause_or_give_up(qp, backoff, deadline, wait_for::scratch, 1, 0);
    return !status.ok();
  });
  if (lockstep() || slot == no_slot) return status;
  return fetch_through(qp, slot, old, deadline, post);
}

template <class T>
struct Fetched {
  Status status;
  T old;
};

}  // namespace impl

template <class Coop, class Operands, class T, class Nic>
WV_DEVICE Status fetch_atomic(const Coop& coop, const QpOf<Nic>& qp, Remote remote,
                              Operands operands, T& old, Timeout timeout) {
  if constexpr (!impl::has_atomic<Nic, Operands>) {
    return Status::of(outcome::unsupported);
  } else if constexpr (Coop::alone) {
    return impl::fetch(qp, old, timeout, [&](Local local, impl::Deadline until) {
      return impl::post_each(qp, Nic::atomic(local, remote, operands), {}, until);
    });
  } else {
    coop.sync();
    impl::Fetched<T> result{};
    if (coop.thread_rank() == 0) {
      result.status = impl::fetch(qp, result.old, timeout, [&](Local local, impl::Deadline until) {
        return impl::post_fitting(qp, impl::Alone{}, Nic::atomic(local, remote, operands), {},
                                  until);
      });
    }
    result = coop.broadcast(result);
    if (result.status.ok()) old = result.old;
    return result.status;
  }
}

template <class Coop, class T, class Nic>
WV_DEVICE Status fetch_add(const Coop& coop, const QpOf<Nic>& qp, Remote remote, T add, T& old,
                           Timeout timeout) {
  return fetch_atomic(coop, qp, remote, impl::Operand<T>::add(add), old, timeout);
}

template <class Coop, class T, class Nic>
WV_DEVICE Status compare_swap(const Coop& coop, const QpOf<Nic>& qp, Remote remote, T expected,
                              T desired, T& old, Timeout timeout) {
  const auto operands = impl::Operand<T>::compare_swap(expected, desired);
  return fetch_atomic(coop, qp, remote, operands, old, timeout);
}

template <class Coop, class T, class Nic>
WV_DEVICE Status swap(const Coop& coop, const QpOf<Nic>& qp, Remote remote, T desired, T& old,
                      Timeout timeout) {
  const MaskedCompareSwap<T> operands{0, 0, desired, static_cast<T>(~T{0})};
  return fetch_atomic(coop, qp, remote, operands, old, timeout);
}

template <class Coop, class T, class Nic>
WV_DEVICE Posted add(const Coop& coop, const QpOf<Nic>& qp, Remote remote, T value, Flags flags,
                     Timeout timeout) {
  const auto operands = impl::Operand<T>::add(value);
  if constexpr (!impl::has_atomic<Nic, decltype(impl::Operand<T>::add(value))>) {
    return impl::refuse(outcome::unsupported);
  } else {
    return impl::post(coop, qp, Nic::atomic(impl::sink(qp), remote, operands), flags, timeout);
  }
}

}  // namespace wv
