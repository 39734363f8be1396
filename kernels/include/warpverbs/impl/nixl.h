// Bodies of nixl.h: checks of places in views; the transfers themselves are those of peer.h.
#pragma once

#include "warpverbs/impl/heap_wait.h"
#include "warpverbs/impl/peer.h"
#include "warpverbs/nixl.h"

namespace wv {
namespace impl {

WV_DEVICE Watch watch_of(const LocalView& view) {
  return {view.state, view.alarms, view.peers, 0};
}

WV_DEVICE bool lies_in(u64 offset, u64 bytes, u64 whole) {
  return offset <= whole && bytes <= whole - offset;
}

// A range of this agent's memory.
struct NearRange {
  Status status;
  u8* addr;
  OneKey nic;
};

WV_DEVICE NearRange near_range(const LocalAt& place, u64 bytes) {
  NearRange range{};
  if (place.index < place.view->count) {
    const LocalEntry& entry = at<const LocalEntry>(place.view->entries)[place.index];
    if (lies_in(place.offset, bytes, entry.bytes)) {
      range.addr = at<u8>(entry.addr + place.offset);
      if (entry.nic.addr != 0) range.nic = {entry.nic.addr + place.offset, entry.nic.lkey};
      return range;
    }
  }
  range.status = Status::of(outcome::bad_address);
  return range;
}

// A range of a peer's memory, and the way there.
struct FarRange {
  Status status;
  bool direct;
  u32 peer;
  u8* addr;
  OneKey nic;
  const Qp* qp;
};

template <class Route>
WV_DEVICE FarRange far_range(const RemoteAt& place, u64 bytes, u64 align, u32 channel) {
  FarRange range{};
  range.status = Status::of(outcome::bad_address);
  if (place.index >= place.view->count) return range;
  const RemoteEntry& entry = at<const RemoteEntry>(place.view->entries)[place.index];
  if (!allows(Route{}, entry.route)) {
    range.status = Status::of(outcome::no_peer);
    return range;
  }
  range.direct = entry.route == reach::direct;
  const u64 start = range.direct ? entry.addr : entry.nic.addr;
  if (!lies_in(place.offset, bytes, entry.bytes) || (start + place.offset) % align != 0) {
    return range;
  }
  range.status = Status{};
  range.peer = entry.peer;
  if (range.direct) {
    range.addr = at<u8>(start + place.offset);
  } else {
    range.nic = {start + place.offset, entry.nic.rkey};
    range.qp = &qp_of(entry.qps, channel % entry.qp_count);
  }
  return range;
}

template <class Route>
WV_DEVICE FarRange far_counter(const RemoteAt& place, u32 channel) {
  return far_range<Route>(place, sizeof(Signal), alignof(Signal), channel);
}
WV_DEVICE Signal* counter_of(const FarRange& range) { return reinterpret_cast<Signal*>(range.addr); }

WV_DEVICE Transfer refused(Status why) { return {why, 0, 0, nullptr}; }

// Nothing posted is done at once.
WV_DEVICE Transfer posted_on(const Qp* qp, Posted posted) {
  return {posted.status, posted.wqebbs, posted.index, posted.wqebbs != 0 ? qp : nullptr};
}

WV_DEVICE Deadline deadline_of(const RemoteView& view, Timeout timeout) {
  return deadline_within(timeout, view.timeout_ns);
}

// By the calling thread; calls of their own, as those of the heap.
template <bool Each>
WV_D WV_NOINLINE Transfer move_by_rdma(const Qp* qp, mlx5::opcode what, OneKey near, OneKey far,
                                       u64 bytes, Flags flags, Deadline deadline) {
  return posted_on(qp, post_range<Each>(*qp, what, near, far, bytes, flags, deadline));
}
template <bool Each>
WV_D WV_NOINLINE Transfer signal_by_rdma(const Qp* qp, OneKey counter, u64 value, OneKey near,
                                         OneKey far, u64 bytes, Flags flags, Deadline deadline) {
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

// A move between checked ranges; `read`: from the peer.
template <class Route, class Coop>
WV_DEVICE Transfer move(const Coop& coop, const NearRange& near, const FarRange& far, u64 bytes,
                        bool read, const How& how, Deadline deadline) {
  if (!near.status.ok()) return refused(near.status);
  if (!far.status.ok()) return refused(far.status);
  if (Route::may_be_direct && far.direct) {
    copy_together(coop, read ? near.addr : far.addr, read ? far.addr : near.addr, bytes);
  } else if constexpr (Route::may_be_rdma) {
    if (near.nic.addr == 0) return refused(Status::of(outcome::bad_address));
    const auto what = read ? mlx5::opcode::rdma_read : mlx5::opcode::rdma_write;
    return post_once(coop, [&] {
      return move_by_rdma<Coop::alone>(far.qp, what, near.nic, far.nic, bytes, how.flags, deadline);
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
    if (part.far.peer != counter.peer) return Status::of(outcome::no_peer);
    if (!counter.direct && part.near.nic.addr == 0) return Status::of(outcome::bad_address);
  }
  return Status{};
}

// `count` parts, then the counter; by RDMA with one doorbell.
template <class Route, class Coop, class Item>
WV_DEVICE Transfer post_list(const Coop& coop, u32 count, const FarRange& counter, u64 increment,
                             const How& how, Deadline deadline, Item item) {
  const Status status = check_list(count, counter, item);
  if (!status.ok()) return refused(status);
  if (Route::may_be_direct && counter.direct) {
    coop.assemble();
    for (u32 i = 0; i < count; ++i) {
      const ListItem part = item(i);
      copy(coop, part.far.addr, part.near.addr, part.bytes);
    }
    copy_and_signal(coop, nullptr, nullptr, 0, &counter_of(counter)->direct, SignalAdd{increment});
  } else if constexpr (Route::may_be_rdma) {
    return post_once(coop, [&] {
      for (u32 i = 0; i < count; ++i) {
        const ListItem part = item(i);
        const Transfer transfer = move_by_rdma<Coop::alone>(
            part.far.qp, mlx5::opcode::rdma_write, part.near.nic, part.far.nic, part.bytes,
            how.flags | unsignalled | deferred, deadline);
        if (!transfer.ok()) return transfer;
      }
      return signal_by_rdma<Coop::alone>(counter.qp, counter.nic, increment, {}, {}, 0, how.flags,
                                         deadline);
    });
  }
  return Transfer{};
}

}  // namespace impl

template <class Route, class Coop>
WV_DEVICE Transfer put(const Coop& coop, const LocalAt& from, const RemoteAt& to, u64 bytes,
                       How how) {
  return impl::move<Route>(coop, impl::near_range(from, bytes),
                           impl::far_range<Route>(to, bytes, 1, how.channel), bytes, false, how,
                           impl::deadline_of(*to.view, how.timeout));
}

template <class Route, class Coop>
WV_DEVICE Transfer get(const Coop& coop, const LocalAt& to, const RemoteAt& from, u64 bytes,
                       How how) {
  return impl::move<Route>(coop, impl::near_range(to, bytes),
                           impl::far_range<Route>(from, bytes, 1, how.channel), bytes, true, how,
                           impl::deadline_of(*from.view, how.timeout));
}

template <class Route, class Coop>
WV_DEVICE Transfer put_signal(const Coop& coop, const LocalAt& from, const RemoteAt& to, u64 bytes,
                              const RemoteAt& counter, u64 value, How how) {
  const impl::NearRange near = impl::near_range(from, bytes);
  const impl::FarRange far = impl::far_range<Route>(to, bytes, 1, how.channel);
  const impl::FarRange word = impl::far_counter<Route>(counter, how.channel);
  const auto same = [&](u32) { return impl::ListItem{near, far, bytes}; };
  const Status status = impl::check_list(1, word, same);
  if (!status.ok()) return impl::refused(status);
  if (Route::may_be_direct && word.direct) {
    impl::copy_and_signal(coop, far.addr, near.addr, bytes, &impl::counter_of(word)->direct,
                          SignalAdd{value});
  } else if constexpr (Route::may_be_rdma) {
    const impl::Deadline deadline = impl::deadline_of(*to.view, how.timeout);
    return impl::post_once(coop, [&] {
      return impl::signal_by_rdma<Coop::alone>(word.qp, word.nic, value, near.nic, far.nic, bytes,
                                               how.flags, deadline);
    });
  }
  return Transfer{};
}

template <class Route, class Coop>
WV_DEVICE Transfer atomic_add(const Coop& coop, u64 value, const RemoteAt& counter, How how) {
  const impl::FarRange word = impl::far_counter<Route>(counter, how.channel);
  return impl::post_list<Route>(coop, 0, word, value, how,
                                impl::deadline_of(*counter.view, how.timeout),
                                [](u32) { return impl::ListItem{}; });
}

WV_DEVICE Status read_signal(const LocalAt& counter, u64& value) {
  const impl::NearRange range = impl::near_range(counter, sizeof(Signal));
  if (!range.status.ok()) return range.status;
  if (reinterpret_cast<u64>(range.addr) % alignof(Signal) != 0) {
    return Status::of(outcome::bad_address);
  }
  // Acquire, pairs with the release of kernels' adds and with the NIC's write of its own.
  const vec16 words = load16<order::acquire, scope::system>(range.addr);
  value = words.lo + words.hi;
  return Status{};
}

template <class Coop>
WV_DEVICE Status wait_signal(const Coop& coop, const LocalAt& counter, compare how, u64 value,
                             Timeout timeout, u32 peer) {
  coop.assemble();
  return impl::once(coop, [&] {
    u64 first = 0;
    const Status status = read_signal(counter, first);
    if (!status.ok()) return status;
    const void* word = impl::near_range(counter, sizeof(Signal)).addr;
    const auto look = [&] {
      u64 now = 0;
      (void)read_signal(counter, now);
      return now;
    };
    auto deadline = impl::HeapDeadline::of(counter.view->timeout_ns, timeout);
    return impl::await_word(impl::watch_of(*counter.view),
                            impl::HeapWait{wait_for::signal, peer, word, value}, deadline, look,
                            [&](u64 actual) { return impl::holds(actual, how, value); });
  });
}

template <class T>
WV_DEVICE T* get_ptr(const RemoteAt& at) {
  const impl::FarRange range = impl::far_range<route::direct>(at, sizeof(T), 1, 0);
  return range.status.ok() ? reinterpret_cast<T*>(range.addr) : nullptr;
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
  if (status.ok() && impl::try_lock(queue, completed)) {
    status = impl::drain_send<true>(qp, completed);
    impl::unlock(queue, completed);
    if (completed >= end) return Status{};
  }
  if (!status.ok()) return status;
  if (impl::tail_is_unsignalled(queue)) {
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
  return impl::post_list<Route>(
      coop, count, impl::far_counter<Route>(counter, how.channel), increment, how,
      impl::deadline_of(*request.remote, how.timeout), [&](u32 i) {
        const u64 bytes = sizes[i];
        const LocalAt from{request.local, indices[i], local_offsets[i]};
        const RemoteAt to{request.remote, indices[i], remote_offsets[i]};
        return impl::ListItem{impl::near_range(from, bytes),
                              impl::far_range<Route>(to, bytes, 1, how.channel), bytes};
      });
}

template <class Route, class Coop>
WV_DEVICE Transfer post_all(const Coop& coop, const Request& request, u64 increment, How how) {
  const u32 count = request.local->count;
  const RemoteAt counter{request.remote, count, 0};
  return impl::post_list<Route>(
      coop, count, impl::far_counter<Route>(counter, how.channel), increment, how,
      impl::deadline_of(*request.remote, how.timeout), [&](u32 i) {
        const u64 bytes = impl::at<const LocalEntry>(request.local->entries)[i].bytes;
        return impl::ListItem{
            impl::near_range(LocalAt{request.local, i, 0}, bytes),
            impl::far_range<Route>(RemoteAt{request.remote, i, 0}, bytes, 1, how.channel), bytes};
      });
}

template <class Route, class Coop>
WV_DEVICE Transfer post_signal(const Coop& coop, const Request& request, u32 signal_index,
                               u64 increment, u64 signal_offset, How how) {
  return atomic_add<Route>(coop, increment, RemoteAt{request.remote, signal_index, signal_offset},
                           how);
}

}  // namespace wv
