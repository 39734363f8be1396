// What `warpverbs perf` runs. Times are left in `report`: see crates/cli/src/perf/kernel.rs.
#include "warpverbs/atomic.h"
#include "warpverbs/get.h"
#include "warpverbs/put.h"
#include "warpverbs/wait.h"

using namespace wv;

namespace {

// A queue pair and what it moves.
struct Target {
  const Qp* qp;
  u64 local;
  u64 remote;
  u32 lkey;
  u32 rkey;
};
static_assert(sizeof(Target) == 32, "as the host writes it");

enum op : u32 { op_write, op_read, op_atomic };

// report[0]: the first bad status, 0 if there is none.
WV_DEVICE bool keep_first(u64* report, Status status) {
  if (!status.ok()) {
    (void)compare_exchange<order::relaxed, scope::gpu>(report, u64{0}, u64{status.code});
  }
  return status.ok();
}

WV_DEVICE Posted post(const Target& t, u32 what, u32 bytes, Flags flags) {
  const Local local{t.local, t.lkey};
  const Remote remote{t.remote, t.rkey};
  switch (what) {
    case op_read: return get(thread, *t.qp, local, remote, bytes, flags);
    case op_atomic: return add(thread, *t.qp, remote, u64{1}, flags);
    default: return put(thread, *t.qp, local, remote, bytes, flags);
  }
}

// One thread's share of `total`.
WV_DEVICE u32 share(u32 total, u32 rank, u32 parts) {
  return total / parts + (rank < total % parts ? 1 : 0);
}

}  // namespace

// One thread, one operation at a time, each from its post to its completion. samples: ticks;
// report[1], report[2]: all measured ones together, in ns and in ticks.
WV_KERNEL(latency)(const void* target, u32 op, u32 bytes, u32 warmup, u32 iters, u64* samples,
                   u64* report) {
  if (global_thread() != 0) return;
  const Target t = *static_cast<const Target*>(target);
  u64 start_ns = now_ns();
  u64 start = ticks();
  for (u32 turn = 0; turn < warmup + iters; ++turn) {
    if (turn == warmup) {
      start_ns = now_ns();
      start = ticks();
    }
    const u64 before = ticks();
    const Posted posted = post(t, op, bytes, 0);
    if (!keep_first(report, wait(thread, *t.qp, posted))) return;
    if (turn >= warmup) samples[turn - warmup] = ticks() - before;
  }
  report[1] = now_ns() - start_ns;
  report[2] = ticks() - start;
}

// `iters` operations on each of `count` targets by the whole grid. Warps are dealt out to targets;
// where there are more targets than warps, a warp goes round several. report[1]: complement of the
// first thread's start; report[2]: last thread's end, ns.
WV_KERNEL(stream)(const void* targets, u32 count, u32 op, u32 bytes, u32 iters, u64* report) {
  const Target* table = static_cast<const Target*>(targets);
  const u32 per_block = (block_size() + warp_size - 1) / warp_size;
  const u32 warps = per_block * grid_size();
  const u32 me = block_index() * per_block + warp_index();
  const u32 step = warps < count ? warps : count;
  const u32 first = me % step;
  // Warps with the same targets, and which of them this is.
  const u32 crew = (warps - first + step - 1) / step;
  const lane_mask all = whole_warp();
  const u32 mine = share(share(iters, me / step, crew), lane_id(), popcount(all));
  (void)fetch_max<order::relaxed, scope::gpu>(report + 1, ~now_ns());
  bool well = true;
  for (u32 turn = 0; turn < mine && well; ++turn) {
    for (u32 i = first; i < count && well; i += step) {
      well = keep_first(report, post(table[i], op, bytes, unsignalled).status);
    }
  }
  sync_warp(all);
  if (lane_id() == 0) {
    for (u32 i = first; i < count; i += step) {
      if (!keep_first(report, quiet(thread, *table[i].qp))) break;
    }
    (void)fetch_max<order::relaxed, scope::gpu>(report + 2, now_ns());
  }
}

// The raw round trip: raises *to, which the host answers in *from. samples and report as `latency`.
WV_KERNEL(flag_round_trip)(u64* to, const u64* from, u32 warmup, u32 iters, u64 patience_ns,
                           u64* samples, u64* report) {
  if (global_thread() != 0) return;
  const u64 begin = now_ns();
  u64 start_ns = begin;
  u64 start = ticks();
  for (u32 turn = 1; turn <= warmup + iters; ++turn) {
    if (turn == warmup + 1) {
      start_ns = now_ns();
      start = ticks();
    }
    const u64 before = ticks();
    store<order::release, scope::system>(to, turn);
    u32 looks = 0;
    while (load<order::acquire, scope::system>(from) != turn) {
      // The clock is looked at seldom: the flag is what is timed.
      if (++looks % 1024 != 0) continue;
      if (now_ns() - begin > patience_ns) {
        (void)keep_first(report, Status::of(outcome::timeout));
        return;
      }
      pause(0);
    }
    if (turn > warmup) samples[turn - warmup - 1] = ticks() - before;
  }
  report[1] = now_ns() - start_ns;
  report[2] = ticks() - start;
}

// 64-byte stores that mean nothing, `rounds` by every thread, warp by warp over the ring of the
// queue pair. Only for one that will never be posted to again. report as `stream`.
WV_KERNEL(raw_stores)(const Qp* qp, u32 rounds, u64* report) {
  const u64 mask = (u64{1} << qp->log_sq) - 1;
  const u64 threads = u64{block_size()} * grid_size();
  u8* ring = reinterpret_cast<u8*>(qp->sq);
  (void)fetch_max<order::relaxed, scope::gpu>(report + 1, ~now_ns());
  for (u32 round = 0; round < rounds; ++round) {
    const u64 index = global_thread() + round * threads;
    u8* slot = ring + (index & mask) * 64;
    for (u32 part = 0; part < 4; ++part) write16(slot + part * 16, vec16{index, round});
  }
  fence<order::release, scope::system>();
  (void)fetch_max<order::relaxed, scope::gpu>(report + 2, now_ns());
}

// Copies the send queue, 64 bytes a WQEBB, for a look at what was posted.
WV_KERNEL(copy_ring)(const Qp* qp, u64* out) {
  const u64* ring = reinterpret_cast<const u64*>(qp->sq);
  const u64 words = u64{8} << qp->log_sq;
  const u64 threads = u64{block_size()} * grid_size();
  for (u64 i = global_thread(); i < words; i += threads) {
    out[i] = load<order::relaxed, scope::system>(ring + i);
  }
}
