// Bodies of shm.h: which way a call goes, and the checks before it.
#pragma once

#include "warpverbs/impl/heap_wait.h"
#include "warpverbs/impl/peer.h"
#include "warpverbs/shm.h"

namespace wv {
namespace impl {

// A range of the heap under the keys of its segments.
struct Segmented {
  // Remote has the same layout.
  const Local* segments;
  u32 log;
  u64 offset;

  WV_DEVICE Piece piece(u64 done) const {
    const u64 at = offset + done;
    const u32 k = at >> log == 0 ? 0 : highest_bit(at) - log + 1;
    const u64 start = k == 0 ? 0 : u64{1} << (log + k - 1);
    return {segments[k].addr + (at - start), segments[k].lkey, (u64{1} << (log + k)) - at};
  }
};

// The way to one rank.
struct Way {
  Status status;
  bool direct;
  u64 delta;
  const Peer* peer;  // null if all ranks are direct, without queue pairs

  template <class T>
  WV_DEVICE T* at(T* own) const {
    return reinterpret_cast<T*>(reinterpret_cast<u64>(own) + delta);
  }
};

template <class Route>
WV_DEVICE Way way_to(const Heap& heap, u32 pe) {
  const u64 stride = fixed(heap.stride);
  if (Route::may_be_direct && stride != 0) {
    const Status status = pe < fixed(heap.world) ? Status{} : Status::of(outcome::no_peer);
    return {status, true, (u64{pe} - fixed(heap.rank)) * stride, nullptr};
  }
  const Peer* peer = peer_of(heap, pe);
  const reach route = peer == nullptr ? reach::none : fixed(peer->route);
  if (!allows(Route{}, route)) {
    return {Status::of(outcome::no_peer), false, 0, nullptr};
  }
  return {Status{}, route == reach::direct, static_cast<u64>(fixed(peer->delta)), peer};
}

// The way to [own, own + bytes) of one rank.
template <class Route>
WV_DEVICE Way way_to(const Heap& heap, const void* own, u64 bytes, u64 align, u32 pe) {
  const u64 offset = offset_in(heap, own);
  if (!holds_range(heap, offset, bytes) || offset % align != 0) {
    return {Status::of(outcome::bad_address), false, 0, nullptr};
  }
  return way_to<Route>(heap, pe);
}

// The same for a range of the heap or of a registered buffer.
template <class Route>
WV_DEVICE Way way_to_range(const Heap& heap, const void* own, u64 bytes, u64 align, u32 pe) {
  if (holds_range(heap, offset_in(heap, own), bytes) || fixed(heap.window_count) == 0) {
    return way_to<Route>(heap, own, bytes, align, pe);
  }
  const Window* window = window_of(heap, own, bytes);
  if (window == nullptr || reinterpret_cast<u64>(own) % align != 0) {
    return {Status::of(outcome::bad_address), false, 0, nullptr};
  }
  const Peer* peer = peer_of(heap, pe);
  const WindowPeer* there = at<const WindowPeer>(fixed(window->peers)) + pe;
  const reach route = peer == nullptr ? reach::none : fixed(there->route);
  if (route == reach::none || !allows(Route{}, route)) {
    return {Status::of(outcome::no_peer), false, 0, nullptr};
  }
  return {Status{}, route == reach::direct, fixed(there->delta), peer};
}

// Whether the own NIC reaches a range.
WV_DEVICE bool nic_reaches(const Heap& heap, const void* own, u64 bytes) {
  if (in_heap(heap, own, bytes)) return true;
  const Window* window = window_of(heap, own, bytes);
  return window != nullptr && fixed(window->near.addr) != 0;
}

// Whether puts to this rank, which is direct, may have gone by RDMA.
WV_DEVICE bool signals_by_rdma(const Peer* peer) {
  return peer != nullptr && fixed(peer->signals_by_rdma) != 0;
}

// The queue pair of the calling block. Puts and signals of a block take the same one, which keeps
// their order.
WV_DEVICE const Qp& qp_to(const Peer* peer) {
  return qp_of(fixed(peer->qps), block_index() % fixed(peer->qp_count));
}

// A registered buffer is one segment.
constexpr u32 log_window = 63;

WV_DEVICE Segmented far_range(const Heap& heap, const Peer* peer, const void* own) {
  if (offset_in(heap, own) >= fixed(heap.bytes)) {
    const Window* window = window_of(heap, own, 1);
    if (window == nullptr) return {nullptr, 0, 0};
    const u64 pe = static_cast<u64>(peer - at<const Peer>(fixed(heap.peers)));
    const Remote* far = &at<const WindowPeer>(fixed(window->peers))[pe].far;
    const u64 offset = reinterpret_cast<u64>(own) - fixed(window->base);
    return {reinterpret_cast<const Local*>(far), log_window, offset};
  }
  return {at<const Local>(fixed(peer->segments)), fixed(heap.log_segment), offset_in(heap, own)};
}
WV_DEVICE Segmented near_range(const Heap& heap, const void* own) {
  if (offset_in(heap, own) >= fixed(heap.bytes)) {
    const Window* window = window_of(heap, own, 1);
    if (window == nullptr) return {nullptr, 0, 0};
    return {&window->near, log_window, reinterpret_cast<u64>(own) - fixed(window->base)};
  }
  return {at<const Local>(fixed(heap.segments)), fixed(heap.log_segment), offset_in(heap, own)};
}
WV_DEVICE Remote far_word(const Heap& heap, const Peer* peer, const void* own) {
  const Piece piece = far_range(heap, peer, own).piece(0);
  return {piece.addr, piece.key};
}

// The bodies by RDMA, for the calling thread. Calls of their own, so that kernels whose peers are
// direct keep the registers: posting takes three times as many as a copy.
//
// WRITE or READ of a range.
template <bool Each>
WV_D WV_NOINLINE Status move_by_rdma(const Heap& heap, const Peer* peer, mlx5::opcode what,
                                     const void* near, const void* far, u64 bytes, Flags flags,
                                     Timeout timeout) {
  return post_range<Each>(qp_to(peer), what, near_range(heap, near), far_range(heap, peer, far),
                          bytes, flags, deadline_of(heap, timeout))
      .status;
}
// WRITE of a range and a signal, which is alone if there are no bytes.
template <bool Each, class Op>
WV_D WV_NOINLINE Status signal_by_rdma(const Heap& heap, const Peer* peer, const void* near,
                                       const void* far, u64 bytes, Signal* at, Op what,
                                       Flags flags, Timeout timeout) {
  return post_range_signal<Each>(qp_to(peer), near_range(heap, near), far_range(heap, peer, far),
                                 bytes, far_word(heap, peer, &at->remote), what, flags,
                                 deadline_of(heap, timeout))
      .status;
}
template <bool Each>
WV_D WV_NOINLINE Status value_by_rdma(const Heap& heap, const Peer* peer, const void* far,
                                      u64 value, u32 bytes, Flags flags, Timeout timeout) {
  const WriteValue op{far_word(heap, peer, far), value, bytes};
  return post_one<Each>(qp_to(peer), op, flags, deadline_of(heap, timeout)).status;
}

// Whether an atomic goes by RDMA; no_peer and mixed_routes in the status.
template <class Route>
WV_DEVICE Way way_of_atomic(const Heap& heap, const void* own, u64 bytes, u32 pe) {
  Way way = way_to<Route>(heap, own, bytes, bytes, pe);
  if (!way.status.ok() || !way.direct || way.peer == nullptr) return way;
  if (fixed(way.peer->shared_atomics) == 0) return way;
  way.direct = false;
  if (!Route::may_be_rdma || fixed(way.peer->qp_count) == 0) {
    way.status = Status::of(outcome::mixed_routes);
  }
  return way;
}

template <class T, class Operands>
WV_D WV_NOINLINE Fetched<T> atomic_by_rdma(const Heap& heap, const Peer* peer, const T* far,
                                           Operands operands, Timeout timeout) {
  const Timeout bound{timeout.ns != 0 ? timeout.ns : fixed(heap.timeout_ns)};
  Fetched<T> fetched{};
  fetched.status = fetch_atomic(thread, qp_to(peer), far_word(heap, peer, far), operands,
                                fetched.old, bound);
  return fetched;
}

// One atomic by one member; its old value for all.
template <class Route, class Coop, class T, class Direct, class Operands>
WV_DEVICE Status atomic_on(const Coop& coop, const Heap& heap, T* at, T& old, u32 pe,
                           Timeout timeout, Direct direct, Operands operands) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "u32 or u64");
  const Way way = way_of_atomic<Route>(heap, at, sizeof(T), pe);
  if (!way.status.ok()) return way.status;
  coop.sync();
  Fetched<T> fetched{};
  if (coop.thread_rank() == 0) {
    if (Route::may_be_direct && way.direct) {
      fetched.old = direct(way.at(at));
    } else if constexpr (Route::may_be_rdma) {
      fetched = atomic_by_rdma<T>(heap, way.peer, at, operands, timeout);
    }
  }
  fetched = coop.broadcast(fetched);
  coop.sync();
  if (fetched.status.ok()) old = fetched.old;
  return fetched.status;
}

// The way to a signal, which lies in the heap. Behind a payload that goes by RDMA, it goes so as well.
template <class Route>
WV_DEVICE Way way_to_signal(const Heap& heap, const Signal* at, u64 payload, u32 pe) {
  constexpr u64 size = sizeof(Signal), align = alignof(Signal);
  if (Route::may_be_direct || payload == 0) return way_to<Route>(heap, at, size, align, pe);
  Way way = way_to<route::any>(heap, at, size, align, pe);
  const bool posts = way.peer != nullptr && fixed(way.peer->qp_count) != 0;
  if (way.status.ok() && !posts) way.status = Status::of(outcome::no_peer);
  return way;
}

// By all members of a group.
template <class Coop>
WV_DEVICE Status await_signal(const Coop& coop, const Heap& heap, const Signal* at, compare how,
                              u64 value, HeapDeadline& deadline, u32 from) {
  const u64 offset = offset_in(heap, at);
  if (!holds_range(heap, offset, sizeof(Signal)) || offset % alignof(Signal) != 0) {
    return Status::of(outcome::bad_address);
  }
  return await_word_together(
      coop, heap, HeapWait{wait_for::signal, from, at, value}, deadline,
      [&] { return read_signal(at); }, [&](u64 actual) { return holds(actual, how, value); });
}

// Waits, on one thread, until everything posted so far to `peer` is done.
WV_D WV_NOINLINE inline Status quiet_queues(const Peer* peer, Deadline deadline) {
  for (u32 i = 0; i < fixed(peer->qp_count); ++i) {
    const Qp& qp = qp_of(fixed(peer->qps), i);
    const u64 upto = next_index(qp);
    const Status status = complete(qp, upto, deadline);
    if (!status.ok()) return status;
  }
  return Status{};
}

}  // namespace impl

template <class Route, class Coop>
WV_DEVICE Status put(const Coop& coop, const Heap& heap, void* to, const void* from, u64 bytes,
                     u32 pe, Flags flags, Timeout timeout) {
  const impl::Way way = impl::way_to_range<Route>(heap, to, bytes, 1, pe);
  if (!way.status.ok()) return way.status;
  if (Route::may_be_direct && way.direct) {
    impl::copy_together(coop, way.at(to), from, bytes);
  } else if constexpr (Route::may_be_rdma) {
    if (!impl::nic_reaches(heap, from, bytes)) return Status::of(outcome::bad_address);
    return impl::by_leader(coop, [&] {
      return impl::move_by_rdma<Coop::alone>(heap, way.peer, mlx5::opcode::rdma_write, from, to,
                                             bytes, flags, timeout);
    });
  }
  return Status{};
}

template <class Route, class Coop>
WV_DEVICE Status get(const Coop& coop, const Heap& heap, void* to, const void* from, u64 bytes,
                     u32 pe, Flags flags, Timeout timeout) {
  const impl::Way way = impl::way_to_range<Route>(heap, from, bytes, 1, pe);
  if (!way.status.ok()) return way.status;
  if (Route::may_be_direct && way.direct) {
    impl::copy_together(coop, to, way.at(from), bytes);
  } else if constexpr (Route::may_be_rdma) {
    if (!impl::nic_reaches(heap, to, bytes)) return Status::of(outcome::bad_address);
    return impl::by_leader(coop, [&] {
      return impl::move_by_rdma<Coop::alone>(heap, way.peer, mlx5::opcode::rdma_read, to, from,
                                             bytes, flags, timeout);
    });
  }
  return Status{};
}

template <class Route, class Coop, class T>
WV_DEVICE Status put_value(const Coop& coop, const Heap& heap, T* to, T value, u32 pe, Flags flags,
                           Timeout timeout) {
  static_assert(sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8, "an integer");
  const impl::Way way = impl::way_to_range<Route>(heap, to, sizeof(T), sizeof(T), pe);
  if (!way.status.ok()) return way.status;
  if (Route::may_be_direct && way.direct) {
    if (coop.thread_rank() == 0) store<order::relaxed, scope::system>(way.at(to), value);
  } else if constexpr (Route::may_be_rdma) {
    return impl::by_leader(coop, [&] {
      constexpr u64 ones = ~u64{0} >> (64 - 8 * sizeof(T));
      return impl::value_by_rdma<Coop::alone>(heap, way.peer, to, static_cast<u64>(value) & ones,
                                              sizeof(T), flags, timeout);
    });
  }
  return Status{};
}

template <class Route, class Coop, class Op>
WV_DEVICE Status signal(const Coop& coop, const Heap& heap, Signal* at, Op what, u32 pe,
                        Flags flags, Timeout timeout) {
  return put_signal<Route>(coop, heap, at, nullptr, 0, at, what, pe, flags, timeout);
}

template <class Route, class Coop, class Op>
WV_DEVICE Status put_signal(const Coop& coop, const Heap& heap, void* to, const void* from,
                            u64 bytes, Signal* at, Op what, u32 pe, Flags flags,
                            Timeout timeout) {
  const impl::Way word = impl::way_to_signal<Route>(heap, at, bytes, pe);
  const impl::Way way = bytes == 0 ? word : impl::way_to_range<Route>(heap, to, bytes, 1, pe);
  if (!way.status.ok()) return way.status;
  if (!word.status.ok()) return word.status;
  if (Route::may_be_direct && way.direct) {
    if (!Route::may_be_rdma || !impl::signals_by_rdma(word.peer)) {
      impl::copy_and_signal(coop, way.at(to), from, bytes, &word.at(at)->direct, what);
      return Status{};
    }
    impl::copy_together(coop, way.at(to), from, bytes);
  }
  if constexpr (Route::may_be_rdma) {
    const u64 left = way.direct ? 0 : bytes;
    if (left != 0 && !impl::nic_reaches(heap, from, left)) return Status::of(outcome::bad_address);
    return impl::by_leader(coop, [&] {
      // Release, pairs with the acquire of read_signal: the NIC's atomic follows the stores.
      if (way.direct) wv::fence<order::release, scope::system>();
      return impl::signal_by_rdma<Coop::alone>(heap, word.peer, from, to, left, at, what, flags,
                                               timeout);
    });
  }
  return Status{};
}

template <class Route, class Coop, class To, class Op>
WV_DEVICE Status signal_each(const Coop& coop, const Heap& heap, u32 count, To to, Op what,
                             Flags flags, Timeout timeout) {
  coop.sync();
  Status first;
  bool released = false;
  for (u32 i = coop.thread_rank(); i < count; i += coop.size()) {
    const SignalTo target = to(i);
    const impl::Way way = impl::way_to<Route>(heap, target.at, sizeof(Signal), alignof(Signal),
                                              target.pe);
    Status status = way.status;
    if (status.ok() && Route::may_be_direct && way.direct) {
      // Release, once for all of this member's signals; pairs with the acquire of read_signal.
      if (!released) wv::fence<order::release, scope::system>();
      released = true;
      if (!Route::may_be_rdma || !impl::signals_by_rdma(way.peer)) {
        impl::signal_word<order::relaxed>(&way.at(target.at)->direct, what);
        continue;
      }
    }
    if constexpr (Route::may_be_rdma) {
      if (status.ok()) {
        status = impl::signal_by_rdma<true>(heap, way.peer, nullptr, target.at, 0, target.at,
                                      what, flags, timeout);
      }
    }
    if (first.ok()) first = status;
  }
  return first;
}

WV_DEVICE u64 read_signal(const Signal* at) { return impl::value_of(at); }

template <class Coop>
WV_DEVICE Status wait_signal(const Coop& coop, const Heap& heap, const Signal* at, compare how,
                             u64 value, Timeout timeout, u32 from) {
  impl::HeapDeadline deadline = impl::HeapDeadline::of(heap, timeout);
  return impl::await_signal(coop, heap, at, how, value, deadline, from);
}

template <class Coop, class At>
WV_DEVICE Status wait_each(const Coop& coop, const Heap& heap, u32 count, At at, compare how,
                           u64 value, Timeout timeout, u32 from) {
  Status mine;
  impl::HeapDeadline deadline = impl::HeapDeadline::of(heap, timeout);
  for (u32 i = coop.thread_rank(); i < count && mine.ok(); i += coop.size()) {
    mine = impl::await_signal(thread, heap, at(i), how, value, deadline, from);
  }
  return impl::worst_of(coop, mine);
}

template <class Route, class Coop, class T>
WV_DEVICE Status fetch_add(const Coop& coop, const Heap& heap, T* at, T add, T& old, u32 pe,
                           Timeout timeout) {
  return impl::atomic_on<Route>(
      coop, heap, at, old, pe, timeout,
      [&](T* word) { return wv::fetch_add<order::acq_rel, scope::system>(word, add); },
      impl::Operand<T>::add(add));
}

template <class Route, class Coop, class T>
WV_DEVICE Status compare_exchange(const Coop& coop, const Heap& heap, T* at, T expected, T desired,
                                  T& old, u32 pe, Timeout timeout) {
  return impl::atomic_on<Route>(
      coop, heap, at, old, pe, timeout,
      [&](T* word) {
        return wv::compare_exchange<order::acq_rel, scope::system>(word, expected, desired);
      },
      impl::Operand<T>::compare_swap(expected, desired));
}

template <class Route, class Coop, class T>
WV_DEVICE Status exchange(const Coop& coop, const Heap& heap, T* at, T desired, T& old, u32 pe,
                          Timeout timeout) {
  return impl::atomic_on<Route>(
      coop, heap, at, old, pe, timeout,
      [&](T* word) { return wv::exchange<order::acq_rel, scope::system>(word, desired); },
      MaskedCompareSwap<T>{0, 0, desired, static_cast<T>(~T{0})});
}

template <class Coop>
WV_DEVICE Status fence(const Coop& coop, const Heap& heap, u32 pe) {
  const impl::Way way = impl::way_to<route::any>(heap, pe);
  if (!way.status.ok()) return way.status;
  // By RDMA the queue pair keeps the order of what the members post.
  coop.sync();
  if (way.direct) {
    if (coop.thread_rank() == 0) wv::fence<order::acq_rel, scope::system>();
    coop.sync();
    if (impl::signals_by_rdma(way.peer)) return quiet(coop, heap, pe);
  }
  return Status{};
}

template <class Route, class Coop>
WV_DEVICE Status quiet(const Coop& coop, const Heap& heap, u32 pe, Timeout timeout) {
  const impl::Way way = impl::way_to<Route>(heap, pe);
  if (!way.status.ok()) return way.status;
  return impl::by_leader(coop, [&] {
    if (way.direct) wv::fence<order::acq_rel, scope::system>();
    if constexpr (Route::may_be_rdma) {
      if (way.peer != nullptr) {
        return impl::quiet_queues(way.peer, impl::deadline_of(heap, timeout));
      }
    }
    return Status{};
  });
}

template <class Coop>
WV_DEVICE Status quiet(const Coop& coop, const Heap& heap, Timeout timeout) {
  return impl::by_leader(coop, [&] {
    wv::fence<order::acq_rel, scope::system>();
    // Then there are no queue pairs.
    if (impl::fixed(heap.stride) != 0) return Status{};
    const impl::Deadline deadline = impl::deadline_of(heap, timeout);
    for (u32 pe = 0; pe < impl::fixed(heap.world); ++pe) {
      const Status status = impl::quiet_queues(impl::peer_of(heap, pe), deadline);
      if (!status.ok()) return status;
    }
    return Status{};
  });
}

}  // namespace wv
