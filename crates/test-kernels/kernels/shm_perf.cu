// The kernels of `warpverbs perf shmem`. report[0]: the first bad wv::Status; what else is in it,
// each kernel says.
#include "members.h"
#include "target.h"
#include "warpverbs/barrier.h"
#include "warpverbs/bulk.h"
#include "warpverbs/mail.h"

using namespace wv;

// Those that kernels are given by number are those of shm_exchange_rdma.
enum class Exchange : u32 {
  signal = 0,
  put_signal = 1,
  mail = 2,
  batch = 3,
  value = 4,
  word = 5,  // a mail of 8 bytes from and to registers
  through = 6,
};

// Signals of a batch.
constexpr u32 batch = 8;
// log2 of a mailbox's slots: credits, which need a release, are rare.
constexpr u32 mail_log_slots = 7;

WV_DEVICE constexpr bool by_mail(Exchange what) {
  return what == Exchange::mail || what == Exchange::word;
}

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
  template <Exchange What>
  WV_DEVICE Status send(u64 n) {
    if constexpr (What == Exchange::signal) {
      return signal<Route>(coop, heap, signals, SignalAdd{1}, peer);
    } else if constexpr (What == Exchange::put_signal) {
      return put_signal<Route>(coop, heap, to, from, bytes, signals, SignalAdd{1}, peer);
    } else if constexpr (What == Exchange::mail) {
      return mail_send<Route>(coop, mail, from, bytes);
    } else if constexpr (What == Exchange::word) {
      return mail_send_value<Route>(coop, mail, n);
    } else if constexpr (What == Exchange::value) {
      return put_value<Route>(coop, heap, reinterpret_cast<u64*>(to), n, peer);
    } else if constexpr (What == Exchange::through) {
      return send_through();
    } else {
      return send_batch();
    }
  }

  WV_DEVICE Status send_batch() {
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

  WV_DEVICE Status take_word(u64 n) {
    u64 value = 0;
    const Status status = mail_recv_value<Route>(coop, mail, value);
    // A wrong value is no status of its own.
    return status.ok() && value != n ? Status::of(outcome::stray_cqe) : status;
  }

  // The n-th message of the peer, from 1.
  template <Exchange What>
  WV_DEVICE Status take(u64 n) {
    if constexpr (What == Exchange::mail) {
      return mail_recv<Route>(coop, mail, to, bytes);
    } else if constexpr (What == Exchange::word) {
      return take_word(n);
    } else if constexpr (What == Exchange::value) {
      return take_value(n);
    } else if constexpr (What == Exchange::batch) {
      const Signal* all = signals;
      return wait_each(coop, heap, batch, [=](u32 i) { return all + i; }, compare::ge, n, {}, peer);
    } else {
      return wait_signal(coop, heap, signals, compare::ge, n, {}, peer);
    }
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
  u64 samples;  // iters u64: ticks at the end of each round; 0: none are taken
};

// Begins or ends what report[1] and report[2] measure, nanoseconds and ticks.
WV_DEVICE void start_clocks(u64* report) {
  report[1] = now_ns();
  report[2] = ticks();
}
WV_DEVICE void stop_clocks(u64* report) {
  report[1] = now_ns() - report[1];
  report[2] = ticks() - report[2];
}

// Messages to and fro between this rank and its peer. report[1], report[2]: nanoseconds and ticks of
// all measured rounds there and back. Work between two messages is measured as well, so there is
// little of it.
template <class Route, Exchange What, class Coop>
WV_DEVICE void exchange_messages(const Coop& coop, const Heap& heap, const Side& side,
                                 u64* report) {
  const u64 reach = u64{side.bytes} * batch;
  if (block_index() != 0 || (side.to | side.from) % 8 != 0 ||
      !in_heap(heap, at_offset<u8>(heap, side.to), reach) ||
      !in_heap(heap, at_offset<u8>(heap, side.from), reach) || side.samples % 8 != 0 ||
      !in_heap(heap, at_offset<u8>(heap, side.samples), u64{side.iters} * 8)) {
    return;
  }
  // The answer to a batch is a mail.
  constexpr Exchange answer = What == Exchange::batch ? Exchange::word : What;
  const Mailbox box{side.box, side.bytes < 8 ? 8 : side.bytes, mail_log_slots, 30, 0};
  Player<Route, Coop> player{coop, heap, side.peer, at_offset<u8>(heap, side.to),
                             at_offset<u8>(heap, side.from), side.bytes,
                             at_offset<Signal>(heap, side.signal), lend_dynamic(side.lent), {}};
  if constexpr (by_mail(answer)) player.mail = mail_open(coop, heap, box, side.peer, side.peer);
  Status status = player.mail.status;
  const bool begins = side.begins != 0, first = coop.thread_rank() == 0;
  // Of all members those of the first one count. Rounds of this phase that are left, and before.
  u32 left = side.warmup, n = 0;
  // One call of each kind, for both sides: a loop that is short in the instruction cache.
  for (bool sends = begins; status.ok(); sends = !sends) {
    if (sends == begins) {
      if (side.samples != 0 && first && n > side.warmup) {
        u64* samples = at_offset<u64>(heap, side.samples);
        store<order::relaxed, scope::gpu>(samples + (n - side.warmup - 1), ticks());
      }
      if (left == 0) {
        if (n != side.warmup || side.iters == 0) break;
        left = side.iters;
        if (first) start_clocks(report);
      }
      left -= 1;
      n += 1;
    }
    if constexpr (answer == What) {
      status = sends ? player.template send<What>(n) : player.template take<What>(n);
    } else if (begins) {
      status = sends ? player.template send<What>(n) : player.template take<answer>(n);
    } else {
      status = sends ? player.template send<answer>(n) : player.template take<What>(n);
    }
  }
  if (first) stop_clocks(report);
  if constexpr (by_mail(answer)) {
    if (status.ok()) status = mail_close(coop, player.mail);
  }
  note(report, status);
}

template <Exchange What>
WV_DEVICE void exchange_by_thread(const Heap& heap, const Side& side, u64* report) {
  if (thread_index() == 0) exchange_messages<route::direct, What>(thread, heap, side, report);
}
template <Exchange What>
WV_DEVICE void exchange_by_warp(const Heap& heap, const Side& side, u64* report) {
  if (warp_index() == 0) exchange_messages<route::direct, What>(warp, heap, side, report);
}

// To a rank that is reached directly. Each message has a kernel of its own, and so only its own
// registers: those of a block leave room for 512 threads.
WV_SAFE_KERNEL(shm_signal_thread)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_by_thread<Exchange::signal>(*heap, side, report);
}
WV_SAFE_KERNEL(shm_value_thread)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_by_thread<Exchange::value>(*heap, side, report);
}
WV_SAFE_KERNEL(shm_put_signal_thread)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_by_thread<Exchange::put_signal>(*heap, side, report);
}
WV_SAFE_KERNEL(shm_put_signal_warp)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_by_warp<Exchange::put_signal>(*heap, side, report);
}
WV_SAFE_KERNEL(shm_put_signal_block)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_messages<route::direct, Exchange::put_signal>(block, *heap, side, report);
}
WV_SAFE_KERNEL(shm_through_warp)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_by_warp<Exchange::through>(*heap, side, report);
}
WV_SAFE_KERNEL(shm_batch_warp)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_by_warp<Exchange::batch>(*heap, side, report);
}
WV_SAFE_KERNEL(shm_word_thread)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_by_thread<Exchange::word>(*heap, side, report);
}
WV_SAFE_KERNEL(shm_word_warp)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_by_warp<Exchange::word>(*heap, side, report);
}
WV_SAFE_KERNEL(shm_mail_warp)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_by_warp<Exchange::mail>(*heap, side, report);
}
WV_BLOCK_AT_MOST(768, shm_mail_block, (const Heap*, Side, u64*));
WV_SAFE_KERNEL(shm_mail_block)(const Heap* heap, Side side, u64* report WV_COUNT(3)) {
  exchange_messages<route::direct, Exchange::mail>(block, *heap, side, report);
}

// By a block to a rank that is reached by RDMA. what: Exchange, but for `through`.
WV_SAFE_KERNEL(shm_exchange_rdma)(const Heap* heap, u32 what, Side side, u64* report WV_COUNT(3)) {
  using rdma = route::rdma;
  switch (static_cast<Exchange>(what)) {
    case Exchange::signal:
      return exchange_messages<rdma, Exchange::signal>(block, *heap, side, report);
    case Exchange::put_signal:
      return exchange_messages<rdma, Exchange::put_signal>(block, *heap, side, report);
    case Exchange::mail: return exchange_messages<rdma, Exchange::mail>(block, *heap, side, report);
    case Exchange::batch:
      return exchange_messages<rdma, Exchange::batch>(block, *heap, side, report);
    case Exchange::value:
      return exchange_messages<rdma, Exchange::value>(block, *heap, side, report);
    case Exchange::word: return exchange_messages<rdma, Exchange::word>(block, *heap, side, report);
    case Exchange::through: return;
  }
}

// `body` again and again by one group. report[1]: nanoseconds of `iters`.
template <class Coop, class Body>
WV_DEVICE void repeat(const Coop& coop, u32 warmup, u32 iters, u64* report, Body body) {
  Status status;
  u64 start = 0;
  for (u32 i = 0; i < warmup + iters && status.ok(); ++i) {
    if (i == warmup) start = now_ns();
    status = body();
  }
  if (coop.thread_rank() == 0) report[1] = now_ns() - start;
  note(report, status);
}

template <class Route, class Coop>
WV_DEVICE Status one_transfer(const Coop& coop, const Heap& heap, u32 gets, u8* to, u8* from,
                              u32 bytes, u32 peer) {
  const Status status = gets != 0 ? get<Route>(coop, heap, to, from, bytes, peer)
                                  : put<Route>(coop, heap, to, from, bytes, peer);
  return status.ok() ? quiet<Route>(coop, heap, peer) : status;
}

// One put after the other, or one get, each with what makes sure that it is done. `group`: 0 thread,
// 1 warp, 2 block.
WV_SAFE_KERNEL(shm_transfers)(const Heap* heap, u32 direct, u32 gets, u32 group, u32 peer, u64 to,
                              u64 from, u32 bytes, u32 warmup, u32 iters, u64* report WV_COUNT(2)) {
  if (block_index() != 0 || !in_heap(*heap, at_offset<u8>(*heap, to), bytes) ||
      !in_heap(*heap, at_offset<u8>(*heap, from), bytes)) {
    return;
  }
  u8* target = at_offset<u8>(*heap, to);
  u8* source = at_offset<u8>(*heap, from);
  by_members(group, [&](const auto& coop) {
    repeat(coop, warmup, iters, report, [&] {
      return direct != 0
                 ? one_transfer<route::direct>(coop, *heap, gets, target, source, bytes, peer)
                 : one_transfer<route::rdma>(coop, *heap, gets, target, source, bytes, peer);
    });
  });
}

// One fetch_add after the other, by one thread.
WV_SAFE_KERNEL(shm_fetch_adds)(const Heap* heap, u32 peer, u64 to, u32 warmup, u32 iters,
                               u64* report WV_COUNT(2)) {
  if (block_index() != 0 || thread_index() != 0) return;
  repeat(thread, warmup, iters, report, [&] {
    u64 old = 0;
    return fetch_add(thread, *heap, at_offset<u64>(*heap, to), u64{1}, old, peer);
  });
}

// Every block moves its part `iters` times by `move(target, source, bytes)`, and makes sure by `end()`.
// report[1]: the complement of the earliest start, report[2]: the latest end.
struct Stream {
  u64 to, from, bytes;
  u32 iters;
};

template <class Move, class End>
WV_DEVICE void stream(const Heap& heap, const Stream& stream, u64* report, Move move, End end) {
  const u64 part = stream.bytes / grid_size() / 16 * 16;
  const u64 skip = part * block_index();
  const u64 mine = block_index() == grid_size() - 1 ? stream.bytes - skip : part;
  u8* target = at_offset<u8>(heap, stream.to + skip);
  u8* source = at_offset<u8>(heap, stream.from + skip);
  if (!in_heap(heap, target, mine) || !in_heap(heap, source, mine)) return;
  if (thread_index() == 0) note_start(report);
  Status status;
  for (u32 i = 0; i < stream.iters && status.ok(); ++i) status = move(target, source, mine);
  if (status.ok()) status = end();
  if (thread_index() == 0) note_end(report);
  note(report, status);
}

template <class Route>
WV_DEVICE void stream_by_blocks(const Heap& heap, u32 gets, u32 peer, const Stream& what,
                                u64* report) {
  stream(
      heap, what, report,
      [&](u8* target, u8* source, u64 bytes) {
        return gets != 0 ? get<Route>(block, heap, target, source, bytes, peer)
                         : put<Route>(block, heap, target, source, bytes, peer);
      },
      [&] { return quiet<Route>(block, heap, peer); });
}

WV_SAFE_KERNEL(shm_stream)(const Heap* heap, u32 gets, u32 peer, Stream what,
                           u64* report WV_COUNT(3)) {
  stream_by_blocks<route::direct>(*heap, gets, peer, what, report);
}
WV_SAFE_KERNEL(shm_stream_rdma)(const Heap* heap, u32 gets, u32 peer, Stream what,
                                u64* report WV_COUNT(3)) {
  stream_by_blocks<route::rdma>(*heap, gets, peer, what, report);
}

// By one thread of each block, through `lent` bytes of dynamic shared memory.
WV_SAFE_KERNEL(shm_stream_through)(const Heap* heap, u32 lent, u32 peer, Stream what,
                                   u64* report WV_COUNT(3)) {
  if (thread_index() != 0) return;
  const Lent shared = lend_dynamic(lent);
  stream(
      *heap, what, report,
      [&](u8* target, u8* source, u64 bytes) {
        return put_through<route::direct>(shared, *heap, target, source, bytes, peer);
      },
      [&] { return quiet<route::direct>(thread, *heap, peer); });
}

// All ranks meet. `group`: 0 thread, 1 warp, 2 block. report[1]: nanoseconds of `iters` barriers, or syncs if light != 0.
WV_SAFE_KERNEL(shm_meetings)(const Heap* heap, u32 group, u64 team_block, u32 light, u32 warmup,
                             u32 iters, u64* report WV_COUNT(2)) {
  if (block_index() != 0) return;
  by_members(group, [&](const auto& coop) {
    const Team team{team_block, 0, 1, heap->world, 0};
    repeat(coop, warmup, iters, report, [&] {
      return light != 0 ? sync(coop, *heap, team) : barrier(coop, *heap, team);
    });
  });
}
