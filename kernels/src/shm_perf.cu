// What `warpverbs perf shmem` measures. report[0]: the first bad wv::Status; what else is in it,
// each kernel says. `group`: 0 thread, 1 warp, 2 block.
#include "members.h"
#include "target.h"
#include "warpverbs/barrier.h"
#include "warpverbs/bulk.h"
#include "warpverbs/mail.h"

using namespace wv;

enum class Exchange : u32 {
  signal = 0,
  put_signal = 1,
  mail = 2,
  batch = 3,
  value = 4,
  through = 5,
};
enum class Single : u32 { put = 0, get = 1, fetch_add = 2 };

// Signals of a batch.
constexpr u32 batch = 8;
// log2 of a mailbox's slots: credits, which need a release, are rare.
constexpr u32 mail_log_slots = 7;

// The places of one rank's part in an exchange, and its peer.
template <class Route, class Coop>
struct Player {
  const Coop& coop;
  const Heap& heap;
  u32 peer;
  u8* to;
  const u8* from;
  u32 bytes;
  Signal* signals;
  Lent lent;
  Mail mail;

  // The n-th message to the peer.
  WV_DEVICE Status send(Exchange what, u64 n) {
    switch (what) {
      case Exchange::signal: return signal<Route>(coop, heap, signals, SignalAdd{1}, peer);
      case Exchange::put_signal:
        return put_signal<Route>(coop, heap, to, from, bytes, signals, SignalAdd{1}, peer);
      case Exchange::mail:
        return bytes == 8 ? mail_send_value<Route>(coop, mail, n)
                          : mail_send<Route>(coop, mail, from, bytes);
      case Exchange::value:
        return put_value<Route>(coop, heap, reinterpret_cast<u64*>(to), n, peer);
      case Exchange::through: return send_through();
      case Exchange::batch: break;
    }
    // Each member puts its part; the signals' group sync gathers them behind one fence.
    Status status;
    for (u32 i = coop.thread_rank(); i < batch && status.ok(); i += coop.size()) {
      status = put<Route>(thread, heap, to + u64{i} * bytes, from + u64{i} * bytes, bytes, peer);
    }
    if (coop.any(!status.ok())) return Status::of(outcome::bad_address);
    Signal* all = signals;
    const u32 pe = peer;
    return signal_each<Route>(coop, heap, batch, [=](u32 i) { return SignalTo{all + i, pe}; },
                              SignalAdd{1});
  }

  // put_signal by one member through lent shared memory.
  WV_DEVICE Status send_through() {
    Status status;
    if (coop.thread_rank() == 0) {
      status = put_through<Route>(lent, heap, to, from, bytes, peer);
      if (status.ok()) status = signal<Route>(thread, heap, signals, SignalAdd{1}, peer);
    }
    return status;
  }

  // Until the peer has put `n` into the target.
  WV_DEVICE Status take_value(u64 n) {
    const u64* word = reinterpret_cast<const u64*>(to);
    impl::HeapDeadline deadline = impl::HeapDeadline::of(heap, Timeout{});
    return impl::await_word_together(
        coop, heap, impl::HeapWait{wait_for::signal, peer, word, n}, deadline,
        [&] { return load<order::acquire, scope::system>(word); },
        [&](u64 seen) { return seen >= n; });
  }

  // The n-th message of the peer, from 1.
  WV_DEVICE Status take(Exchange what, u64 n) {
    if (what == Exchange::mail) {
      if (bytes != 8) return mail_recv<Route>(coop, mail, to, bytes);
      u64 value = 0;
      const Status status = mail_recv_value<Route>(coop, mail, value);
      // A wrong value is no status of its own.
      return status.ok() && value != n ? Status::of(outcome::stray_cqe) : status;
    }
    if (what == Exchange::value) return take_value(n);
    if (what != Exchange::batch) return wait_signal(coop, heap, signals, compare::ge, n, {}, peer);
    const Signal* all = signals;
    return wait_each(coop, heap, batch, [=](u32 i) { return all + i; }, compare::ge, n, {}, peer);
  }
};

// One rank's side of an exchange. Offsets: target, source, 8 signals, the block of a mailbox of 128
// slots; all of them zero before.
struct Side {
  u64 to;
  u64 from;
  u64 signal;
  u64 box;
  u32 bytes;
  u32 peer;
  u32 begins;  // 1 for the one of the two that does
  u32 warmup;
  u32 iters;
  u32 lent;  // bytes of dynamic shared memory
  u64 samples;  // iters u64: ticks of each round; 0: none are taken
};

template <class Route, class Coop>
WV_DEVICE void exchange_messages(const Coop& coop, const Heap& heap, Exchange what,
                                 const Side& side, u64* report) {
  const u64 reach = u64{side.bytes} * batch;
  if (block_index() != 0 || (side.to | side.from) % 8 != 0 ||
      !in_heap(heap, at_offset<u8>(heap, side.to), reach) ||
      !in_heap(heap, at_offset<u8>(heap, side.from), reach) || side.samples % 8 != 0 ||
      !in_heap(heap, at_offset<u8>(heap, side.samples), u64{side.iters} * 8)) {
    return;
  }
  const Mailbox box{side.box, side.bytes < 8 ? 8 : side.bytes, mail_log_slots, 30, 0};
  Player<Route, Coop> player{coop, heap, side.peer, at_offset<u8>(heap, side.to),
                             at_offset<u8>(heap, side.from), side.bytes,
                             at_offset<Signal>(heap, side.signal),
                             lend_dynamic(side.lent),
                             mail_open(coop, heap, box, side.peer, side.peer)};
  // The answer to a batch is a mail.
  const Exchange answer = what == Exchange::batch ? Exchange::mail : what;
  Status status = player.mail.status;
  u64* samples = at_offset<u64>(heap, side.samples);
  const bool sampled = side.samples != 0 && coop.thread_rank() == 0;
  u64 start = 0, begun = 0, last = 0;
  for (u64 n = 1; n <= u64{side.warmup} + side.iters && status.ok(); ++n) {
    if (n == u64{side.warmup} + 1) {
      start = now_ns();
      begun = last = ticks();
    }
    status = side.begins != 0 ? player.send(what, n) : player.take(what, n);
    if (status.ok()) status = side.begins != 0 ? player.take(answer, n) : player.send(answer, n);
    if (sampled && n > side.warmup) {
      const u64 now = ticks();
      store<order::relaxed, scope::gpu>(samples + (n - side.warmup - 1), now - last);
      last = now;
    }
  }
  if (coop.thread_rank() == 0) {
    report[1] = now_ns() - start;
    report[2] = ticks() - begun;
  }
  if (status.ok()) status = mail_close(coop, player.mail);
  note(report, status);
}

// The same for a kind that is known at run time: each has a loop of its own, and so only its own
// registers.
template <class Route, class Coop>
WV_DEVICE void exchange_kind(const Coop& coop, const Heap& heap, u32 what, const Side& side,
                             u64* report) {
  switch (static_cast<Exchange>(what)) {
    case Exchange::signal:
      return exchange_messages<Route>(coop, heap, Exchange::signal, side, report);
    case Exchange::put_signal:
      return exchange_messages<Route>(coop, heap, Exchange::put_signal, side, report);
    case Exchange::mail:
      return exchange_messages<Route>(coop, heap, Exchange::mail, side, report);
    case Exchange::batch:
      return exchange_messages<Route>(coop, heap, Exchange::batch, side, report);
    case Exchange::value:
      return exchange_messages<Route>(coop, heap, Exchange::value, side, report);
    case Exchange::through:
      return exchange_messages<Route>(coop, heap, Exchange::through, side, report);
  }
}

// Messages to and fro between this rank and its peer. what: Exchange; a batch and a value have 8
// bytes. report[1], report[2]: nanoseconds and ticks of all measured rounds there and back. By one
// thread or a warp to a rank that is reached directly, and by a block to one that is reached by RDMA.
WV_SAFE_KERNEL(shm_exchange_thread)(const Heap* heap, u32 what, Side side,
                                    u64* report WV_COUNT(3)) {
  if (thread_index() != 0) return;
  exchange_kind<route::direct>(thread, *heap, what, side, report);
}
WV_SAFE_KERNEL(shm_exchange_warp)(const Heap* heap, u32 what, Side side, u64* report WV_COUNT(3)) {
  if (warp_index() != 0) return;
  exchange_kind<route::direct>(warp, *heap, what, side, report);
}
WV_SAFE_KERNEL(shm_exchange_rdma)(const Heap* heap, u32 what, Side side, u64* report WV_COUNT(3)) {
  exchange_kind<route::rdma>(block, *heap, what, side, report);
}
// By a block to a rank that is reached directly: kernels of their own, for up to 512 threads.
WV_SAFE_KERNEL(shm_put_signal_block)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_messages<route::direct>(block, *heap, Exchange::put_signal, side, report);
}
WV_SAFE_KERNEL(shm_mail_block)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_messages<route::direct>(block, *heap, Exchange::mail, side, report);
}

template <class Route, class Coop>
WV_DEVICE Status one_call(const Coop& coop, const Heap& heap, Single what, u8* to, u8* from,
                          u32 bytes, u32 peer) {
  Status status;
  if (what == Single::fetch_add) {
    u64 old = 0;
    return fetch_add<Route>(coop, heap, reinterpret_cast<u64*>(to), u64{1}, old, peer);
  }
  status = what == Single::put ? put<Route>(coop, heap, to, from, bytes, peer)
                               : get<Route>(coop, heap, to, from, bytes, peer);
  return status.ok() ? quiet<Route>(coop, heap, peer) : status;
}

// One call after the other, each with what makes sure that it is done. what: Single. report[1]:
// nanoseconds of `iters`.
WV_SAFE_KERNEL(shm_calls)(const Heap* heap, u32 direct, u32 what, u32 group, u32 peer, u64 to,
                          u64 from, u32 bytes, u32 warmup, u32 iters, u64* report WV_COUNT(2)) {
  if (block_index() != 0 || !in_heap(*heap, at_offset<u8>(*heap, to), bytes) ||
      !in_heap(*heap, at_offset<u8>(*heap, from), bytes)) {
    return;
  }
  by_members(group, [&](const auto& coop) {
    u8* target = at_offset<u8>(*heap, to);
    u8* source = at_offset<u8>(*heap, from);
    const auto kind = static_cast<Single>(what);
    Status status;
    u64 start = 0;
    for (u32 i = 0; i < warmup + iters && status.ok(); ++i) {
      if (i == warmup) start = now_ns();
      status = direct != 0
                   ? one_call<route::direct>(coop, *heap, kind, target, source, bytes, peer)
                   : one_call<route::rdma>(coop, *heap, kind, target, source, bytes, peer);
    }
    if (coop.thread_rank() == 0) report[1] = now_ns() - start;
    note(report, status);
  });
}

template <class Route>
WV_DEVICE void stream(const Heap& heap, u32 gets, u32 peer, u64 to, u64 from, u64 bytes, u32 iters,
                      u64* report) {
  const u64 part = bytes / grid_size() / 16 * 16;
  const u64 skip = part * block_index();
  const u64 mine = block_index() == grid_size() - 1 ? bytes - skip : part;
  u8* target = at_offset<u8>(heap, to + skip);
  u8* source = at_offset<u8>(heap, from + skip);
  if (!in_heap(heap, target, mine) || !in_heap(heap, source, mine)) return;
  if (thread_index() == 0) note_start(report);
  Status status;
  for (u32 i = 0; i < iters && status.ok(); ++i) {
    status = gets != 0 ? get<Route>(block, heap, target, source, mine, peer)
                       : put<Route>(block, heap, target, source, mine, peer);
  }
  if (status.ok()) status = quiet<Route>(block, heap, peer);
  if (thread_index() == 0) note_end(report);
  note(report, status);
}

// Every block moves its part of `bytes`, `iters` times, then makes sure. report[1]: the complement
// of the earliest start, report[2]: the latest end.
WV_SAFE_KERNEL(shm_stream)(const Heap* heap, u32 gets, u32 peer, u64 to, u64 from, u64 bytes,
                           u32 iters, u64* report WV_COUNT(3)) {
  stream<route::direct>(*heap, gets, peer, to, from, bytes, iters, report);
}
WV_SAFE_KERNEL(shm_stream_rdma)(const Heap* heap, u32 gets, u32 peer, u64 to, u64 from, u64 bytes,
                                u32 iters, u64* report WV_COUNT(3)) {
  stream<route::rdma>(*heap, gets, peer, to, from, bytes, iters, report);
}

// One thread of each block moves the block's part of `bytes` through `lent` bytes of dynamic shared
// memory. report as of shm_stream.
WV_SAFE_KERNEL(shm_stream_through)(const Heap* heap, u32 lent, u32 peer, u64 to, u64 from, u64 bytes,
                                   u32 iters, u64* report WV_COUNT(3)) {
  const u64 part = bytes / grid_size() / 16 * 16;
  const u64 skip = part * block_index();
  const u64 mine = block_index() == grid_size() - 1 ? bytes - skip : part;
  u8* target = at_offset<u8>(*heap, to + skip);
  u8* source = at_offset<u8>(*heap, from + skip);
  if (thread_index() != 0 || !in_heap(*heap, target, mine) || !in_heap(*heap, source, mine)) return;
  const Lent shared = lend_dynamic(lent);
  note_start(report);
  Status status;
  for (u32 i = 0; i < iters && status.ok(); ++i) {
    status = put_through<route::direct>(shared, *heap, target, source, mine, peer);
  }
  if (status.ok()) status = quiet<route::direct>(thread, *heap, peer);
  note_end(report);
  note(report, status);
}

// All ranks meet. report[1]: nanoseconds of `iters` barriers, or syncs if light != 0.
WV_SAFE_KERNEL(shm_meetings)(const Heap* heap, u32 group, u64 team_block, u32 light, u32 warmup,
                             u32 iters, u64* report WV_COUNT(2)) {
  if (block_index() != 0) return;
  by_members(group, [&](const auto& coop) {
    const Team team{team_block, 0, 1, heap->world, 0};
    Status status;
    u64 start = 0;
    for (u32 i = 0; i < warmup + iters && status.ok(); ++i) {
      if (i == warmup) start = now_ns();
      status = light != 0 ? sync(coop, *heap, team) : barrier(coop, *heap, team);
    }
    if (coop.thread_rank() == 0) report[1] = now_ns() - start;
    note(report, status);
  });
}
