// Each call on the symmetric heap by itself, for tests: by the first thread, warp or block of the
// launch. Places are offsets in the heap. The first bad wv::Status stays in *status.
#include "warpverbs/bulk.h"

using namespace wv;

// The group that makes the call: thread 0, warp 0 or block 0.
enum class caller : u32 { thread = 0, warp = 1, block = 2 };

template <class Call>
WV_DEVICE void by_group(u32 group, Status* status, Call call) {
  if (block_index() != 0) return;
  switch (static_cast<caller>(group)) {
    case caller::thread:
      if (thread_index() == 0) keep_first(status, call(thread));
      break;
    case caller::warp:
      if (warp_index() == 0) keep_first(status, call(warp));
      break;
    case caller::block: keep_first(status, call(block)); break;
  }
}

WV_SAFE_KERNEL(shm_put)(const Heap* heap, u32 group, u64 to, u64 from, u64 bytes, u32 pe,
                        Status* status WV_COUNT(1)) {
  by_group(group, status, [&](const auto& coop) {
    const Status put_status = put(coop, *heap, at_offset<u8>(*heap, to),
                                  at_offset<u8>(*heap, from), bytes, pe);
    return put_status.ok() ? quiet(coop, *heap, pe) : put_status;
  });
}

// The same through each route that the caller may name: 1 direct, 2 rdma.
WV_SAFE_KERNEL(shm_put_by)(const Heap* heap, u32 group, u32 route, u64 to, u64 from, u64 bytes,
                           u32 pe, Status* status WV_COUNT(1)) {
  by_group(group, status, [&](const auto& coop) {
    u8* target = at_offset<u8>(*heap, to);
    const u8* source = at_offset<u8>(*heap, from);
    const Status put_status =
        route == 1 ? put<route::direct>(coop, *heap, target, source, bytes, pe)
                   : put<route::rdma>(coop, *heap, target, source, bytes, pe);
    return put_status.ok() ? quiet(coop, *heap) : put_status;
  });
}

// Twice, by thread 0 of block 0, through `lent` bytes of dynamic shared memory.
WV_SAFE_KERNEL(shm_put_through)(const Heap* heap, u32 lent, u64 to, u64 from, u64 bytes, u32 pe,
                                Status* status WV_COUNT(1)) {
  if (block_index() != 0 || thread_index() != 0) return;
  const Lent shared = lend_dynamic(lent);
  u8* target = at_offset<u8>(*heap, to);
  const u8* source = at_offset<u8>(*heap, from);
  Status result;
  for (u32 i = 0; i < 2 && result.ok(); ++i) {
    result = put_through(shared, *heap, target, source, bytes, pe);
  }
  keep_first(status, result.ok() ? quiet(thread, *heap, pe) : result);
}

WV_SAFE_KERNEL(shm_get)(const Heap* heap, u32 group, u64 to, u64 from, u64 bytes, u32 pe,
                        Status* status WV_COUNT(1)) {
  by_group(group, status, [&](const auto& coop) {
    const Status get_status = get(coop, *heap, at_offset<u8>(*heap, to),
                                  at_offset<u8>(*heap, from), bytes, pe);
    return get_status.ok() ? quiet(coop, *heap, pe) : get_status;
  });
}

// The low `width` bytes of `value`, 1, 4 or 8.
WV_SAFE_KERNEL(shm_put_value)(const Heap* heap, u32 group, u64 to, u64 value, u32 width, u32 pe,
                              Status* status WV_COUNT(1)) {
  by_group(group, status, [&](const auto& coop) {
    Status result;
    if (width == 8) result = put_value(coop, *heap, at_offset<u64>(*heap, to), value, pe);
    else if (width == 4) {
      result = put_value(coop, *heap, at_offset<u32>(*heap, to), static_cast<u32>(value), pe);
    } else {
      result = put_value(coop, *heap, at_offset<u8>(*heap, to), static_cast<u8>(value), pe);
    }
    return result.ok() ? quiet(coop, *heap, pe) : result;
  });
}

// Two puts, each by its own route, and a signal behind both.
WV_SAFE_KERNEL(shm_put_both)(const Heap* heap, u64 first, u64 first_bytes, u64 second,
                             u64 second_bytes, u64 signal, u32 pe, Status* status WV_COUNT(1)) {
  by_group(static_cast<u32>(caller::block), status, [&](const auto& coop) {
    u8* one = at_offset<u8>(*heap, first);
    u8* other = at_offset<u8>(*heap, second);
    Status result = put(coop, *heap, one, one, first_bytes, pe, unsignalled);
    if (result.ok()) result = put(coop, *heap, other, other, second_bytes, pe);
    Signal* word = at_offset<Signal>(*heap, signal);
    return result.ok() ? wv::signal(coop, *heap, word, SignalAdd{1}, pe) : result;
  });
}

// set != 0: SignalSet, else SignalAdd.
WV_SAFE_KERNEL(shm_put_signal)(const Heap* heap, u32 group, u64 to, u64 from, u64 bytes,
                               u64 signal, u32 set, u64 value, u32 pe, Status* status WV_COUNT(1)) {
  by_group(group, status, [&](const auto& coop) {
    u8* target = at_offset<u8>(*heap, to);
    const u8* source = at_offset<u8>(*heap, from);
    Signal* word = at_offset<Signal>(*heap, signal);
    return set != 0 ? put_signal(coop, *heap, target, source, bytes, word, SignalSet{value}, pe)
                    : put_signal(coop, *heap, target, source, bytes, word, SignalAdd{value}, pe);
  });
}

// Adds `value` to the signals at `signal`, `signal` + 16, … of `count` ranks from `first` on.
WV_SAFE_KERNEL(shm_signal_each)(const Heap* heap, u32 group, u64 signal, u64 value, u32 first,
                                u32 count, Status* status WV_COUNT(1)) {
  by_group(group, status, [&](const auto& coop) {
    return signal_each(coop, *heap, count, [&](u32 i) {
      return SignalTo{at_offset<Signal>(*heap, signal + u64{i} * sizeof(Signal)), first + i};
    }, SignalAdd{value});
  });
}

// how: wv::compare.
WV_SAFE_KERNEL(shm_wait)(const Heap* heap, u32 group, u64 signal, u32 how, u64 value, u64 ns,
                         u32 from, Status* status WV_COUNT(1)) {
  by_group(group, status, [&](const auto& coop) {
    return wait_signal(coop, *heap, at_offset<Signal>(*heap, signal), static_cast<compare>(how),
                       value, within_ns(ns), from);
  });
}

// The same for `count` signals, one behind the other from `signal` on.
WV_SAFE_KERNEL(shm_wait_each)(const Heap* heap, u32 group, u64 signal, u32 count, u32 how, u64 value,
                              u64 ns, u32 from, Status* status WV_COUNT(1)) {
  by_group(group, status, [&](const auto& coop) {
    const auto at = [&](u32 i) { return at_offset<Signal>(*heap, signal + u64{i} * sizeof(Signal)); };
    return wait_each(coop, *heap, count, at, static_cast<compare>(how), value, within_ns(ns), from);
  });
}

template <class T, class Coop>
WV_DEVICE Status one_atomic(const Coop& coop, const Heap& heap, u32 what, u64 at, u64 first,
                            u64 second, u32 pe, u64* old) {
  T* word = at_offset<T>(heap, at);
  const T a = static_cast<T>(first), b = static_cast<T>(second);
  T was = 0;
  Status status;
  if (what == 0) status = fetch_add(coop, heap, word, a, was, pe);
  else if (what == 1) status = compare_exchange(coop, heap, word, a, b, was, pe);
  else status = exchange(coop, heap, word, a, was, pe);
  *old = was;
  return status;
}

// what: 0 fetch_add of `first`, 1 compare_exchange of `first` by `second`, 2 exchange by `first`.
// width: 4 or 8 bytes. Every thread, or the group, does one; olds: what each thread saw.
WV_SAFE_KERNEL(shm_atomic)(const Heap* heap, u32 group, u32 what, u32 width, u64 at, u64 first,
                           u64 second, u32 pe, u64* olds WV_COUNT(grid_threads),
                           Status* status WV_COUNT(1)) {
  const auto one = [&](const auto& coop) {
    u64* old = olds + global_thread();
    return width == 8 ? one_atomic<u64>(coop, *heap, what, at, first, second, pe, old)
                      : one_atomic<u32>(coop, *heap, what, at, first, second, pe, old);
  };
  if (static_cast<caller>(group) == caller::thread) keep_first(status, one(thread));
  else by_group(group, status, one);
}

// Every thread puts its own `bytes` to the rank that its number names, and adds 1 to that rank's
// signal: lanes of one warp take different routes.
WV_SAFE_KERNEL(shm_scatter)(const Heap* heap, u64 to, u64 from, u64 bytes, u64 signal,
                            Status* status WV_COUNT(1)) {
  const u64 offset = global_thread() * bytes;
  const u32 pe = static_cast<u32>(global_thread() % heap->world);
  keep_first(status, put_signal(thread, *heap, at_offset<u8>(*heap, to + offset),
                                at_offset<u8>(*heap, from + offset), bytes,
                                at_offset<Signal>(*heap, signal), SignalAdd{1}, pe));
}
