// The kernels of `warpverbs perf`: kernel-posted work, and beside it the same machine's speed without
// any queue. Times go to `report`: [0] the first bad wv::Status, [1] and [2] as each kernel says.
#include "target.h"

using namespace wv;

enum class Op : u32 { write, read, atomic, send };

template <Op Which, class Coop>
WV_DEVICE Posted post_one(const Coop& coop, const Qp& qp, const Target& target, u32 bytes) {
  if constexpr (Which == Op::write) return put_each(coop, qp, target.local, target.remote, bytes);
  if constexpr (Which == Op::read) return get_each(coop, qp, target.local, target.remote, bytes);
  if constexpr (Which == Op::atomic) return add(thread, qp, target.remote, u64{1});
  if constexpr (Which == Op::send) return send(thread, qp, target.local, bytes);
}

// Nanoseconds and ticks of everything between its making and `into`.
struct Stopwatch {
  u64 ns = now_ns();
  u64 tick = ticks();

  WV_DEVICE void into(u64* report) const {
    report[1] = now_ns() - ns;
    report[2] = ticks() - tick;
  }
};

template <Op Which>
WV_DEVICE void time_each(const Target& t, u32 bytes, u32 warmup, u32 iters, u64* samples,
                         u64* report) {
  const Qp qp = *t.qp;
  Status status;
  for (u32 i = 0; i < warmup && status.ok(); ++i) {
    status = wait(thread, qp, post_one<Which>(thread, qp, t, bytes));
  }
  const Stopwatch all;
  for (u32 i = 0; i < iters && status.ok(); ++i) {
    const u64 start = ticks();
    status = wait(thread, qp, post_one<Which>(thread, qp, t, bytes));
    samples[i] = ticks() - start;
  }
  all.into(report);
  note(report, status);
}

// One thread, one operation at a time, each from before its post to after its completion, in
// ticks. report[1], [2]: all measured ones together, in nanoseconds and in ticks.
WV_SAFE_KERNEL(latency)(const Target* target WV_COUNT(1), u32 op, u32 bytes, u32 warmup, u32 iters,
                        u64* samples WV_COUNT(iters), u64* report WV_COUNT(3)) {
  const Target t = *target;
  switch (static_cast<Op>(op)) {
    case Op::write: return time_each<Op::write>(t, bytes, warmup, iters, samples, report);
    case Op::read: return time_each<Op::read>(t, bytes, warmup, iters, samples, report);
    case Op::atomic: return time_each<Op::atomic>(t, bytes, warmup, iters, samples, report);
    case Op::send: return time_each<Op::send>(t, bytes, warmup, iters, samples, report);
  }
}

template <Op Which>
WV_DEVICE Status stream_to(const Qp& qp, const Target& target, u32 bytes, u32 n) {
  return post_by_lanes(qp, n, [&](auto coop) { return post_one<Which>(coop, qp, target, bytes); });
}

WV_DEVICE Status stream_op(Op op, const Qp& qp, const Target& target, u32 bytes, u32 n) {
  switch (op) {
    case Op::read: return stream_to<Op::read>(qp, target, bytes, n);
    case Op::atomic: return stream_to<Op::atomic>(qp, target, bytes, n);
    case Op::send: return stream_to<Op::send>(qp, target, bytes, n);
    default: return stream_to<Op::write>(qp, target, bytes, n);
  }
}

// `iters` operations on each of `count` targets by one warp at most. A kernel of few threads has
// registers to spare: it keeps a copy of the Qp, which need not be fetched again after every acquire.
WV_SAFE_KERNEL(stream_alone)(const Target* targets WV_COUNT(count), u32 count, u32 op, u32 bytes,
                             u32 iters, u64* report WV_COUNT(3)) {
  if (lane_id() == 0) note_start(report);
  for (u32 i = 0; i < count; ++i) {
    const Target target = targets[i];
    const Qp qp = *target.qp;
    note(report, stream_op(static_cast<Op>(op), qp, target, bytes, iters));
  }
  if (lane_id() == 0) note_end(report);
}

// The same by the whole grid, warps shared out over targets. report[1]: complement of the earliest
// start, report[2]: the latest end, in nanoseconds.
WV_SAFE_KERNEL(stream)(const Target* targets WV_COUNT(count), u32 count, u32 op, u32 bytes,
                       u32 iters, u64* report WV_COUNT(3)) {
  share_out(targets, count, iters, report, [&](const Target& target, u32 n) {
    return stream_op(static_cast<Op>(op), *target.qp, target, bytes, n);
  });
}

// 16-byte segments of a unit of a send queue.
constexpr u32 unit_segments = WV_NIC::Nic::wqebb_bytes / 16;

// The bound of every queue: each warp stores 64 bytes at a time into the send queue's ring, or the part of
// it that is a power of two, neighbouring lanes to neighbouring 16 bytes. The queue pair cannot be used
// afterwards. Times as in stream.
WV_SAFE_KERNEL(raw_stores)(const Qp* qp, u32 rounds, u64* report WV_COUNT(3)) {
  const u64 segments = u64{unit_segments & ~1u} << qp->log_sq;
  const u64 threads = u64{grid_size()} * block_size();
  const u32 lanes = popcount(whole_warp());
  u8* ring = reinterpret_cast<u8*>(qp->sq);
  if (lane_id() == 0) note_start(report);
  for (u32 i = 0; i < rounds; ++i) {
    const u64 first = 4 * (global_thread() - lane_id() + i * threads) + lane_id();
    for (u32 k = 0; k < 4; ++k) {
      const u64 segment = (first + u64{k} * lanes) & (segments - 1);
      write16(ring + 16 * segment, vec16{segment, i});
    }
  }
  fence<order::release, scope::system>();
  if (lane_id() == 0) note_end(report);
}

// out: the first `segments` 16-byte segments of the send queue's ring.
WV_SAFE_KERNEL(copy_ring)(const Qp* qp, vec16* out WV_COUNT(segments), u32 segments) {
  const u64 all = u64{unit_segments} << qp->log_sq;
  const u64 some = segments < all ? segments : all;
  const u8* ring = reinterpret_cast<const u8*>(qp->sq);
  const u64 threads = u64{grid_size()} * block_size();
  for (u64 i = global_thread(); i < some; i += threads) {
    write16(out + i, load16<scope::system>(ring + 16 * i));
  }
}

// Waits until the byte is `turn`. Nothing else tells that the peer has ended.
WV_D Status await_turn(const u8* byte, u8 turn, u64 patience_ns) {
  const u64 begin = now_ns();
  for (u32 looks = 1; load<order::relaxed, scope::system>(byte) != turn; ++looks) {
    if (looks % 64 == 0 && now_ns() - begin >= patience_ns) return Status::of(outcome::timeout);
    pause(0);
  }
  // Bytes are loaded relaxed everywhere: what was written before this one is seen from here on.
  fence<order::acquire, scope::system>();
  return Status{};
}

// For WRITEs, the last bytes of what goes out and comes in, as the kernel sees them; for SENDs, the
// memory that receives are offered, as the NIC sees it.
struct Answers {
  u8* out;
  const u8* in;
  Local at;
  u32 bytes;
};

template <Op Which>
WV_DEVICE Status rally(const Qp& qp, const Target& t, const Answers& from, u32 bytes, u8 turn,
                       u64 patience_ns) {
  if constexpr (Which == Op::write) {
    // The last byte counts turns. The peer has all of the message before: it has answered.
    store<order::relaxed, scope::system>(from.out, turn);
  }
  Status status = post_one<Which>(thread, qp, t, bytes).status;
  if (!status.ok()) return status;
  if constexpr (Which == Op::write) {
    return await_turn(from.in, turn, patience_ns);
  }
  Received received;
  status = wait_recv(thread, qp, received);
  if (!status.ok()) return status;
  if (received.bytes != bytes) return Status::of(outcome::too_long);
  return receive(thread, qp, from.at, from.bytes).status;
}

template <Op Which>
WV_DEVICE void time_rally(const Target& t, const Answers& from, u32 bytes, u32 first, u32 warmup,
                          u32 iters, u64 patience_ns, u64* samples, u64* report) {
  const Qp qp = *t.qp;
  Status status;
  Stopwatch all;
  for (u32 i = 0; i < warmup + iters && status.ok(); ++i) {
    if (i == warmup) all = Stopwatch{};
    const u64 start = ticks();
    status = rally<Which>(qp, t, from, bytes, static_cast<u8>(first + i), patience_ns);
    if (i >= warmup) samples[i - warmup] = ticks() - start;
  }
  all.into(report);
  note(report, status);
}

// A message there and one back, again and again, by one thread; turns are counted from `first`.
// `receives` are offered before. Samples of whole round trips, and report, as in latency.
WV_SAFE_KERNEL(ping_pong)(const Target* target WV_COUNT(1), const Answers* answers WV_COUNT(1),
                          u32 op, u32 bytes, u32 first, u32 receives, u32 warmup, u32 iters,
                          u64 patience_ns, u64* samples WV_COUNT(iters),
                          u64* report WV_COUNT(3)) {
  const Target t = *target;
  const Answers from = *answers;
  const Qp& qp = *t.qp;
  for (u32 i = 0; i < receives; ++i) {
    const Posted offered = receive(thread, qp, from.at, from.bytes);
    if (!offered.ok()) return note(report, offered.status);
  }
  switch (static_cast<Op>(op)) {
    case Op::send:
      return time_rally<Op::send>(t, from, bytes, first, warmup, iters, patience_ns, samples,
                                  report);
    default:
      return time_rally<Op::write>(t, from, bytes, first, warmup, iters, patience_ns, samples,
                                   report);
  }
}

// Raises `to` and waits until somebody has answered the same in `from`. Samples and report as in
// latency.
WV_SAFE_KERNEL(flag_round_trip)(u64* to WV_COUNT(1), u64* from WV_COUNT(1), u32 warmup, u32 iters,
                                u64 patience_ns, u64* samples WV_COUNT(iters),
                                u64* report WV_COUNT(3)) {
  const u64 begin = now_ns();
  Stopwatch all;
  for (u32 i = 0; i < warmup + iters; ++i) {
    if (i == warmup) all = Stopwatch{};
    const u64 start = ticks();
    store<order::release, scope::system>(to, u64{i} + 1);
    for (u32 looks = 1; load<order::acquire, scope::system>(from) != u64{i} + 1; ++looks) {
      if (looks % 64 == 0 && now_ns() - begin >= patience_ns) {
        note(report, Status::of(outcome::timeout));
        return;
      }
      pause(0);
    }
    if (i >= warmup) samples[i - warmup] = ticks() - start;
  }
  all.into(report);
}
