// Bodies of nixl.h: checks of places in views; the transfers themselves are those of peer.h.
#pragma once

#include "warpverbs/impl/heap_wait.h"
#include "warpverbs/impl/peer.h"
#include "warpverbs/nixl.h"

namespace wv {
namespace impl {

// Views are never written after they were handed out, so their fields are read by `fixed`: such
// loads need not be repeated behind a fence or an acquire.
// The fields that bound a wait are read once the wait lasts.
struct WatchedView {
  const LocalView& view;
};
WV_DEVICE Watch watch_of(const WatchedView& watched) {
  const LocalView& view = watched.view;
  return {fixed(view.state), fixed(view.alarms), fixed(view.peers), 0};
}

WV_DEVICE bool lies_in(u64 offset, u64 bytes, u64 whole) {
  return offset <= whole && bytes <= whole - offset;
}

// A range of this agent's memory. The status says whether the rest may be asked for.
struct NearRange {
  Status status;
  const LocalEntry* entry;
  u64 start;  // where kernels reach it

  WV_DEVICE u8* addr() const { return at<u8>(start); }
  WV_DEVICE bool nic_reaches() const { return fixed(entry->nic.addr) != 0; }
  WV_DEVICE OneKey nic() const {
    return {fixed(entry->nic.addr) + (start - fixed(entry->addr)), fixed(entry->nic.lkey)};
  }
};

WV_DEVICE const LocalEntry* entry_of(const LocalView& view, u32 index) {
  return at<const LocalEntry>(fixed(view.entries)) + index;
}

// An entry's address and length are loaded together, and so is the route of a peer's: a look at
// memory that the caches have forgotten, as they do at every acquire, takes as long for all of them.
WV_DEVICE NearRange near_range(const LocalAt& place, u64 bytes) {
  if (place.index < fixed(place.view->count)) {
    const LocalEntry* entry = entry_of(*place.view, place.index);
    const u64 addr = fixed(entry->addr), all = fixed(entry->bytes);
    if (lies_in(place.offset, bytes, all)) return {Status{}, entry, addr + place.offset};
  }
  return {Status::of(outcome::bad_address), nullptr, 0};
}

// A counter of this agent's memory.
WV_DEVICE NearRange near_counter(const LocalAt& place) {
  NearRange range = near_range(place, sizeof(Signal));
  if (range.status.ok() && reinterpret_cast<u64>(range.addr()) % alignof(Signal) != 0) {
    range.status = Status::of(outcome::bad_address);
  }
  return range;
}
WV_DEVICE const Signal* counter_of(const NearRange& range) {
  return reinterpret_cast<const Signal*>(range.addr());
}

// A range of a peer's memory, and the way there. As above, the status comes first.
struct FarRange {
  Status status;
  bool direct;
  const RemoteEntry* entry;
  u64 start;  // direct: where kernels here reach it; else for the NIC

  WV_DEVICE u32 peer() const { return fixed(entry->peer); }
  WV_DEVICE u8* addr() const { return at<u8>(start); }
  WV_DEVICE OneKey nic() const { return {start, fixed(entry->nic.rkey)}; }
  WV_DEVICE const Qp* qp(const How& how) const {
    return &qp_of(fixed(entry->qps), how.channel % fixed(entry->qp_count));
  }
};

template <class Route>
WV_DEVICE FarRange far_range(const RemoteAt& place, u64 bytes, u64 align = 1) {
  const Status bad = Status::of(outcome::bad_address);
  if (place.index >= fixed(place.view->count)) return {bad, false, nullptr, 0};
  const RemoteEntry* entry = at<const RemoteEntry>(fixed(place.view->entries)) + place.index;
  const u64 addr = fixed(entry->addr), all = fixed(entry->bytes);
  const reach route = fixed(entry->route);
  if (!allows(Route{}, route)) return {Status::of(outcome::no_peer), false, nullptr, 0};
  const bool direct = Route::may_be_direct && (!Route::may_be_rdma || route == reach::direct);
  const u64 start = (direct ? addr : fixed(entry->nic.addr)) + place.offset;
  const bool good = lies_in(place.offset, bytes, all) && start % align == 0;
  return {good ? Status{} : bad, direct, entry, start};
}

template <class Route>
WV_DEVICE FarRange far_counter(const RemoteAt& place) {
  return far_range<Route>(place, sizeof(Signal), alignof(Signal));
}
WV_DEVICE Signal* counter_of(const FarRange& range) {
  return reinterpret_cast<Signal*>(range.addr());
}

WV_DEVICE Transfer refused(Status why) { return {why, 0, 0, nullptr}; }

// Nothing posted is done at once.
WV_DEVICE Transfer posted_on(const Qp* qp, Posted posted) {
  return {posted.status, posted.wqebbs, posted.index, posted.wqebbs != 0 ? qp : nullptr};
}

// By the calling thread; calls of their own, as those of the heap. They alone read the clock.
template <bool Each>
WV_D WV_NOINLINE Transfer move_by_rdma(const Qp* qp, mlx5::opcode what, OneKey near, OneKey far,
                                       u64 bytes, Flags flags, Timeout timeout) {
  const Deadline deadline = deadline_within(timeout, timeout.ns);
  return posted_on(qp, post_range<Each>(*qp, what, near, far, bytes, flags, deadline));
}
template <bool Each>
WV_D WV_NOINLINE Transfer signal_by_rdma(const Qp* qp, OneKey counter, u64 value, OneKey near,
                                         OneKey far, u64 bytes, Flags flags, Timeout timeout) {
  const Deadline deadline = deadline_within(timeout, timeout.ns);
  const Remote word{counter.addr + WV_OFFSETOF(Signal, remote), counter.key};
  return posted_on(qp, post_range_signal<Each>(*qp, near, far, bytes, word, SignalAdd{value}, flags,
                                               deadline));
}

// `body` by one thread of the group, after what the members did; its result for all.
template <class Coop, class Body>
WV_DEVICE Transfer post_once(const Coop& coop, Body body) {
  coop.assemble();
  Transfer transfer{};
  if (coop.thread_rank() == 0) transfer = body();
  return coop.broadcast(transfer);
}

// Of a call: its own, or the view's.
WV_DEVICE Timeout timeout_of(const RemoteView& view, const How& how) {
  return how.timeout.ns != 0 ? how.timeout : Timeout{fixed(view.timeout_ns)};
}

// A move between checked ranges; `read`: from the peer.
template <class Route, class Coop>
WV_DEVICE Transfer move(const Coop& coop, const NearRange& near, const RemoteAt& place, u64 bytes,
                        bool read, const How& how) {
  const FarRange far = far_range<Route>(place, bytes);
  if (!near.status.ok()) return refused(near.status);
  if (!far.status.ok()) return refused(far.status);
  if (Route::may_be_direct && far.direct) {
    copy_together(coop, read ? near.addr() : far.addr(), read ? far.addr() : near.addr(), bytes);
  } else if constexpr (Route::may_be_rdma) {
    if (!near.nic_reaches()) return refused(Status::of(outcome::bad_address));
    const auto what = read ? mlx5::opcode::rdma_read : mlx5::opcode::rdma_write;
    return post_once(coop, [&] {
      return move_by_rdma<Coop::alone>(far.qp(how), what, near.nic(), far.nic(), bytes, how.flags,
                                       timeout_of(*place.view, how));
    });
  }
  return Transfer{};
}

// One part of a list.
struct ListItem {
  NearRange near;
  FarRange far;
  u64 bytes;
};

// Why a list cannot be posted, if it cannot: every member looks at all of it.
template <class Item>
WV_DEVICE Status check_list(u32 count, const FarRange& counter, Item item) {
  if (!counter.status.ok()) return counter.status;
  for (u32 i = 0; i < count; ++i) {
    const ListItem part = item(i);
    if (!part.near.status.ok()) return part.near.status;
    if (!part.far.status.ok()) return part.far.status;
    if (part.far.peer() != counter.peer()) return Status::of(outcome::no_peer);
    if (!counter.direct && !part.near.nic_reaches()) return Status::of(outcome::bad_address);
  }
  return Status{};
}

// `count` parts, then the counter; by RDMA with one doorbell.
template <class Route, class Coop, class Item>
WV_DEVICE Transfer post_list(const Coop& coop, u32 count, const RemoteAt& place, u64 increment,
                             const How& how, Item item) {
  const FarRange counter = far_counter<Route>(place);
  const Status status = check_list(count, counter, item);
  if (!status.ok()) return refused(status);
  if (Route::may_be_direct && counter.direct) {
    coop.assemble();
    for (u32 i = 0; i < count; ++i) {
      const ListItem part = item(i);
      copy(coop, part.far.addr(), part.near.addr(), part.bytes);
    }
    copy_and_signal(coop, nullptr, nullptr, 0, &counter_of(counter)->direct, SignalAdd{increment});
  } else if constexpr (Route::may_be_rdma) {
    return post_once(coop, [&] {
      const Timeout timeout = timeout_of(*place.view, how);
      const Qp* qp = counter.qp(how);
      for (u32 i = 0; i < count; ++i) {
        const ListItem part = item(i);
        const Transfer transfer = move_by_rdma<Coop::alone>(
            qp, mlx5::opcode::rdma_write, part.near.nic(), part.far.nic(), part.bytes,
            how.flags | unsignalled | deferred, timeout);
        if (!transfer.ok()) return transfer;
      }
      return signal_by_rdma<Coop::alone>(qp, counter.nic(), increment, {}, {}, 0, how.flags,
                                         timeout);
    });
  }
  return Transfer{};
}

}  // namespace impl

template <class Route, class Coop>
WV_DEVICE Transfer put(const Coop& coop, const LocalAt& from, const RemoteAt& to, u64 bytes,
                       How how) {
  return impl::move<Route>(coop, impl::near_range(from, bytes), to, bytes, false, how);
}

template <class Route, class Coop>
WV_DEVICE Transfer get(const Coop& coop, const LocalAt& to, const RemoteAt& from, u64 bytes,
                       How how) {
  return impl::move<Route>(coop, impl::near_range(to, bytes), from, bytes, true, how);
}

template <class Route, class Coop>
WV_DEVICE Transfer put_signal(const Coop& coop, const LocalAt& from, const RemoteAt& to, u64 bytes,
                              const RemoteAt& counter, u64 value, How how) {
  const impl::NearRange near = impl::near_range(from, bytes);
  const impl::FarRange far = impl::far_range<Route>(to, bytes);
  const impl::FarRange word = impl::far_counter<Route>(counter);
  const auto same = [&](u32) { return impl::ListItem{near, far, bytes}; };
  const Status status = impl::check_list(1, word, same);
  if (!status.ok()) return impl::refused(status);
  if (Route::may_be_direct && word.direct) {
    impl::copy_and_signal(coop, far.addr(), near.addr(), bytes, &impl::counter_of(word)->direct,
                          SignalAdd{value});
  } else if constexpr (Route::may_be_rdma) {
    return impl::post_once(coop, [&] {
      return impl::signal_by_rdma<Coop::alone>(word.qp(how), word.nic(), value, near.nic(),
                                               far.nic(), bytes, how.flags,
                                               impl::timeout_of(*to.view, how));
    });
  }
  return Transfer{};
}

template <class Route, class Coop>
WV_DEVICE Transfer atomic_add(const Coop& coop, u64 value, const RemoteAt& counter, How how) {
  return impl::post_list<Route>(coop, 0, counter, value, how,
                                [](u32) { return impl::ListItem{}; });
}

WV_DEVICE Status read_signal(const LocalAt& counter, u64& value) {
  const impl::NearRange range = impl::near_counter(counter);
  if (range.status.ok()) value = impl::value_of(impl::counter_of(range));
  return range.status;
}

template <class Coop>
WV_DEVICE Status wait_signal(const Coop& coop, const LocalAt& counter, compare how, u64 value,
                             Timeout timeout, u32 peer) {
  coop.assemble();
  const impl::NearRange range = impl::near_counter(counter);
  if (!range.status.ok()) return range.status;
  const Signal* word = impl::counter_of(range);
  const LocalView& view = *counter.view;
  auto deadline = impl::HeapDeadline::of(impl::fixed(view.timeout_ns), timeout);
  return impl::await_word_together(
      coop, impl::WatchedView{view}, impl::HeapWait{wait_for::signal, peer, word, value}, deadline,
      [&] { return impl::value_of(word); },
      [&](u64 actual) { return impl::holds(actual, how, value); });
}

template <class T>
WV_DEVICE T* get_ptr(const RemoteAt& at) {
  const impl::FarRange range = impl::far_range<route::direct>(at, sizeof(T));
  return range.status.ok() ? reinterpret_cast<T*>(range.addr()) : nullptr;
}

WV_DEVICE Status transfer_status(const Transfer& transfer) {
  if (!transfer.ok() || transfer.qp == nullptr) return transfer.status;
  const Qp& qp = *transfer.qp;
  PostState* state = impl::state_of(qp);
  QueueState* queue = &state->sq;
  const u64 end = transfer.index + transfer.wqebbs;
  u64 completed = impl::load_poll_word(queue).completed();
  if (completed >= end) return Status{};
  Status status = impl::error_of(state);
  if (status.ok()) {
    (void)impl::if_unlocked(queue, [&](u64& done) {
      status = impl::drain_send<true>(qp, done);
      completed = done;
    });
    if (completed >= end) return Status{};
  }
  if (!status.ok()) return status;
  if (impl::tail_is_unsignalled(qp)) {
    // No CQE would ever report it. Without waiting for room: the next look tries again.
    const Posted tail = impl::post_tail(qp, no_wait, impl::Deadline{0});
    if (!tail.ok()) return tail.status;
  }
  return Status::of(outcome::no_room);
}

template <class Coop>
WV_DEVICE Status wait(const Coop& coop, const Transfer& transfer, Timeout timeout) {
  if (!transfer.ok() || transfer.qp == nullptr) return transfer.status;
  const Posted posted{transfer.status, transfer.wqebbs, transfer.index};
  return wait(coop, *transfer.qp, posted, timeout);
}

template <class Route, class Coop>
WV_DEVICE Transfer post_single(const Coop& coop, const Request& request, u32 index,
                               u64 local_offset, u64 remote_offset, u64 bytes, How how) {
  return put<Route>(coop, LocalAt{request.local, index, local_offset},
                    RemoteAt{request.remote, index, remote_offset}, bytes, how);
}

template <class Route, class Coop>
WV_DEVICE Transfer post_partial(const Coop& coop, const Request& request, u32 count,
                                const u32* indices, const u64* sizes, const u64* local_offsets,
                                const u64* remote_offsets, u32 signal_index, u64 increment,
                                u64 signal_offset, How how) {
  const RemoteAt counter{request.remote, signal_index, signal_offset};
  return impl::post_list<Route>(coop, count, counter, increment, how, [&](u32 i) {
    const u64 bytes = sizes[i];
    const LocalAt from{request.local, indices[i], local_offsets[i]};
    const RemoteAt to{request.remote, indices[i], remote_offsets[i]};
    return impl::ListItem{impl::near_range(from, bytes), impl::far_range<Route>(to, bytes), bytes};
  });
}

template <class Route, class Coop>
WV_DEVICE Transfer post_all(const Coop& coop, const Request& request, u64 increment, How how) {
  const u32 count = impl::fixed(request.local->count);
  const RemoteAt counter{request.remote, count, 0};
  return impl::post_list<Route>(coop, count, counter, increment, how, [&](u32 i) {
    const u64 bytes = impl::fixed(impl::entry_of(*request.local, i)->bytes);
    const LocalAt from{request.local, i, 0};
    const RemoteAt to{request.remote, i, 0};
    return impl::ListItem{impl::near_range(from, bytes), impl::far_range<Route>(to, bytes), bytes};
  });
}

template <class Route, class Coop>
WV_DEVICE Transfer post_signal(const Coop& coop, const Request& request, u32 signal_index,
                               u64 increment, u64 signal_offset, How how) {
  return atomic_add<Route>(coop, increment, RemoteAt{request.remote, signal_index, signal_offset},
                           how);
}

}  // namespace wv
