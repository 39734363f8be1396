// Each call on views of registered memory by itself, for tests: by the first thread, warp or block of
// the launch. The first bad wv::Status stays in *status.
#include "members.h"
#include "warpverbs/nixl.h"

using namespace wv;

// group: as by_members.
template <class Call>
WV_DEVICE void by_first(u32 group, Status* status, Call call) {
  if (block_index() != 0) return;
  by_members(group, [&](const auto& coop) { keep_first(status, call(coop)); });
}

// Waits for what a call has started.
template <class Coop>
WV_DEVICE Status finish(const Coop& coop, const Transfer& transfer) {
  return wait(coop, transfer);
}

WV_SAFE_KERNEL(nixl_put)(const LocalView* local, const RemoteView* remote, u32 group, u32 from_index,
                         u64 from, u32 to_index, u64 to, u64 bytes, u32 channel,
                         Status* status WV_COUNT(1)) {
  by_first(group, status, [&](const auto& coop) {
    return finish(coop, put(coop, LocalAt{local, from_index, from}, RemoteAt{remote, to_index, to},
                            bytes, on_channel(channel)));
  });
}

// The same by the route that the kernel names: 1 direct, 2 rdma.
WV_SAFE_KERNEL(nixl_put_by)(const LocalView* local, const RemoteView* remote, u32 route, u64 bytes,
                            Status* status WV_COUNT(1)) {
  by_first(2, status, [&](const auto& coop) {
    const LocalAt from{local, 0, 0};
    const RemoteAt to{remote, 0, 0};
    return finish(coop, route == 1 ? put<route::direct>(coop, from, to, bytes)
                                   : put<route::rdma>(coop, from, to, bytes));
  });
}

WV_SAFE_KERNEL(nixl_get)(const LocalView* local, const RemoteView* remote, u32 group, u32 to_index,
                         u64 to, u32 from_index, u64 from, u64 bytes, u32 channel,
                         Status* status WV_COUNT(1)) {
  by_first(group, status, [&](const auto& coop) {
    return finish(coop, get(coop, LocalAt{local, to_index, to}, RemoteAt{remote, from_index, from},
                            bytes, on_channel(channel)));
  });
}

// A counter of a peer, as a kernel is given it.
struct Counter {
  u64 offset;
  u64 value;  // to add
  u32 index;
  u32 channel;
};

WV_SAFE_KERNEL(nixl_add)(const RemoteView* remote, u32 group, Counter counter,
                         Status* status WV_COUNT(1)) {
  by_first(group, status, [&](const auto& coop) {
    return finish(coop, atomic_add(coop, counter.value,
                                   RemoteAt{remote, counter.index, counter.offset},
                                   on_channel(counter.channel)));
  });
}

WV_SAFE_KERNEL(nixl_put_signal)(const LocalView* local, const RemoteView* remote, u32 group,
                                u32 from_index, u64 from, u32 to_index, u64 to, u64 bytes,
                                Counter counter, Status* status WV_COUNT(1)) {
  by_first(group, status, [&](const auto& coop) {
    return finish(coop, put_signal(coop, LocalAt{local, from_index, from},
                                   RemoteAt{remote, to_index, to}, bytes,
                                   RemoteAt{remote, counter.index, counter.offset}, counter.value,
                                   on_channel(counter.channel)));
  });
}

// how: wv::compare.
WV_SAFE_KERNEL(nixl_wait)(const LocalView* local, u32 group, u32 index, u64 offset, u32 how,
                          u64 value, u64 ns, u32 peer, Status* status WV_COUNT(1)) {
  by_first(group, status, [&](const auto& coop) {
    return wait_signal(coop, LocalAt{local, index, offset}, static_cast<compare>(how), value,
                       within_ns(ns), peer);
  });
}

// value[0]: of the counter. value[1]: address of a u64 at the same place of `remote`, 0 if none.
WV_SAFE_KERNEL(nixl_look)(const LocalView* local, const RemoteView* remote, u32 index, u64 offset,
                          u64* value WV_COUNT(2), Status* status WV_COUNT(1)) {
  by_first(0, status, [&](const auto&) {
    value[1] = reinterpret_cast<u64>(get_ptr<u64>(RemoteAt{remote, index, offset}));
    return read_signal(LocalAt{local, index, offset}, value[0]);
  });
}

// The four posts of lists. `what`: 0 part of entry `counter.index`, 1 parts of `count` entries, 2 all
// entries, 3 the counter alone.
WV_SAFE_KERNEL(nixl_list)(const LocalView* local, const RemoteView* remote, u32 group, u32 what,
                          u32 count, const u32* indices WV_COUNT(count),
                          const u64* sizes WV_COUNT(count), const u64* from WV_COUNT(count),
                          const u64* to WV_COUNT(count), Counter counter,
                          Status* status WV_COUNT(1)) {
  by_first(group, status, [&](const auto& coop) {
    const Request request{local, remote};
    const How how = on_channel(counter.channel);
    Transfer transfer{};
    if (what == 0 && count != 0) {
      transfer = post_single(coop, request, indices[0], from[0], to[0], sizes[0], how);
    } else if (what == 1) {
      transfer = post_partial(coop, request, count, indices, sizes, from, to, counter.index,
                              counter.value, counter.offset, how);
    } else if (what == 2) {
      transfer = post_all(coop, request, counter.value, how);
    } else {
      transfer = post_signal(coop, request, counter.index, counter.value, counter.offset, how);
    }
    return finish(coop, transfer);
  });
}

// Every thread puts `rounds` words, each to a place of its own, without ringing for those whose bit of
// `rings` is not set; then it polls for its last one. seen: looks until it was done, over all threads.
WV_SAFE_KERNEL(nixl_deferred)(const LocalView* local, const RemoteView* remote, u32 rounds,
                              u64 rings, u64* looks WV_COUNT(1), Status* status WV_COUNT(1)) {
  Transfer transfer{};
  Status result;
  for (u32 round = 0; round < rounds && result.ok(); ++round) {
    const u64 place = (global_thread() * rounds + round) * 8;
    const bool ring = (rings >> ((global_thread() + round) % 64) & 1) != 0;
    transfer = put(thread, LocalAt{local, 0, place}, RemoteAt{remote, 0, place}, 8,
                   on_channel(0, ring ? Flags{} : deferred));
    result = transfer.status;
  }
  u64 mine = 0;
  while (result.ok()) {
    result = transfer_status(transfer);
    if (result.kind() != outcome::no_room) break;
    result = Status{};
    mine += 1;
    pause(200);
  }
  (void)fetch_add<order::relaxed, scope::gpu>(looks, mine);
  keep_first(status, result);
}

// Only the first lane of the group calls. sync: the others meet at a barrier meanwhile.
WV_SAFE_KERNEL(nixl_part_of_group)(const LocalView* local, const RemoteView* remote, u32 group,
                                   u32 sync, u64 bytes, Status* status WV_COUNT(1)) {
  const LocalAt from{local, 0, 0};
  const RemoteAt to{remote, 0, 0};
  if (thread_index() == 0) {
    if (group == 1) keep_first(status, put(warp, from, to, bytes).status);
    else keep_first(status, put(block, from, to, bytes).status);
  }
  if (sync != 0) sync_block();
}

// One side of messages there and back: entry 0 of both views is data, the first `bytes` of it those of
// this side and the next those of the peer; entry 1 a counter, zero before.
struct Exchange {
  u64 bytes;
  u32 begins;  // 1 for the one of the two that does
  u32 warmup;
  u32 iters;
  u32 direct;  // 1: the peer's memory is mapped here
};

// Puts and raises the counter, waits for the peer's counter. report[0]: nanoseconds of `iters` rounds.
template <class Route, class Coop>
WV_DEVICE Status exchange_rounds(const Coop& coop, const LocalView* local, const RemoteView* remote,
                                 const Exchange& how, u64* report) {
  const LocalAt from{local, 0, 0}, counter{local, 1, 0};
  const RemoteAt to{remote, 0, how.bytes}, raised{remote, 1, 0};
  const auto send = [&]() -> Status {
    const Transfer data =
        put<Route>(coop, from, to, how.bytes, on_channel(0, unsignalled | deferred));
    if (!data.ok()) return data.status;
    return atomic_add<Route>(coop, 1, raised, on_channel(0, unsignalled)).status;
  };
  const auto take = [&](u64 n) -> Status {
    return wait_signal(coop, counter, compare::ge, n);
  };
  if constexpr (!Route::may_be_rdma) {
    // Looks every place up once: what the views say stays in registers from here on.
    u64 value = 0;
    Status status = put<Route>(coop, from, to, 0).status;
    if (status.ok()) status = read_signal(counter, value);
    if (status.ok() && get_ptr<Signal>(raised) == nullptr) status = Status::of(outcome::no_peer);
    if (!status.ok()) return status;
  }
  u64 start = 0;
  for (u64 n = 1; n <= u64{how.warmup} + how.iters; ++n) {
    if (n == u64{how.warmup} + 1) start = now_ns();
    Status status = how.begins != 0 ? send() : take(n);
    if (status.ok()) status = how.begins != 0 ? take(n) : send();
    if (!status.ok()) return status;
  }
  if (coop.thread_rank() == 0) report[0] = now_ns() - start;
  return Status{};
}

// By the route that is named: 1 direct, else any.
template <class Coop>
WV_DEVICE Status exchange_by(const Coop& coop, const LocalView* local, const RemoteView* remote,
                             const Exchange& how, u64* report) {
  return how.direct == 1 ? exchange_rounds<route::direct>(coop, local, remote, how, report)
                         : exchange_rounds<route::any>(coop, local, remote, how, report);
}

WV_SAFE_KERNEL(nixl_exchange_thread)(const LocalView* local, const RemoteView* remote, Exchange how,
                                     u64* report WV_COUNT(1), Status* status WV_COUNT(1)) {
  if (global_thread() != 0) return;
  keep_first(status, exchange_by(thread, local, remote, how, report));
}

WV_SAFE_KERNEL(nixl_exchange_warp)(const LocalView* local, const RemoteView* remote, Exchange how,
                                   u64* report WV_COUNT(1), Status* status WV_COUNT(1)) {
  if (global_thread() >= warp_size) return;
  keep_first(status, exchange_by(warp, local, remote, how, report));
}
