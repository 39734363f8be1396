// The patterns of docs/device-guide.md. Views of both sides: entry 0 is data, entry 1 a counter.
#include "warpverbs/nixl.h"

using namespace wv;

// Write and signal: `bytes` in `pieces` parts that are posted one after the other without waiting, and
// with one doorbell; then the counter.
template <class Coop>
WV_DEVICE Transfer write_and_signal(const Coop& coop, const LocalView* local,
                                    const RemoteView* remote, u64 bytes, u32 pieces) {
  const u64 each = bytes / pieces;
  for (u32 i = 0; i + 1 < pieces; ++i) {
    const u64 at = i * each;
    const Transfer part = put(coop, LocalAt{local, 0, at}, RemoteAt{remote, 0, at}, each,
                              on_channel(0, unsignalled | deferred));
    if (!part.ok()) return part;
  }
  const u64 at = (pieces - 1) * each;
  return put_signal(coop, LocalAt{local, 0, at}, RemoteAt{remote, 0, at}, bytes - at,
                    RemoteAt{remote, 1, 0}, 1);
}

// `rounds` of it, each complete before the next; took[0]: nanoseconds of all.
template <class Coop>
WV_DEVICE Status timed_writes(const Coop& coop, const LocalView* local, const RemoteView* remote,
                              u64 bytes, u32 pieces, u32 rounds, u64* took) {
  if (pieces == 0) return Status::of(outcome::too_long);
  const u64 start = now_ns();
  for (u32 round = 0; round < rounds; ++round) {
    const Transfer transfer = write_and_signal(coop, local, remote, bytes, pieces);
    const Status status = wait(coop, transfer);
    if (!status.ok()) return status;
  }
  if (coop.thread_rank() == 0) took[0] = now_ns() - start;
  return Status{};
}

// One thread does everything.
WV_SAFE_KERNEL(simple_write_thread)(const LocalView* local, const RemoteView* remote, u64 bytes,
                                    u32 pieces, u32 rounds, u64* took WV_COUNT(1),
                                    Status* status WV_COUNT(1)) {
  if (global_thread() != 0) return;
  keep_first(status, timed_writes(thread, local, remote, bytes, pieces, rounds, took));
}

// All lanes of a warp make each call together: one transfer, one increment.
WV_SAFE_KERNEL(simple_write_warp)(const LocalView* local, const RemoteView* remote, u64 bytes,
                                  u32 pieces, u32 rounds, u64* took WV_COUNT(1),
                                  Status* status WV_COUNT(1)) {
  if (global_thread() >= warp_size) return;
  keep_first(status, timed_writes(warp, local, remote, bytes, pieces, rounds, took));
}

// The target's side: waits until the counter is at least `expected`. WRITEs before that are
// then visible to the kernel.
WV_SAFE_KERNEL(simple_write_wait)(const LocalView* local, u64 expected, u64 ns,
                                  Status* status WV_COUNT(1)) {
  if (global_thread() != 0) return;
  keep_first(status, wait_signal(thread, LocalAt{local, 1, 0}, compare::ge, expected,
                                 within_ns(ns)));
}

// Every thread moves 64 bytes of its own by whatever way its data leads, and polls in place of waiting:
// the loop is where other work would be done. looks[0]: how often all of them looked.
WV_SAFE_KERNEL(simple_write_poll)(const LocalView* local, const RemoteView* remote,
                                  u64* looks WV_COUNT(1), Status* status WV_COUNT(1)) {
  const u64 at = global_thread() * 64;
  const Transfer transfer = put(thread, LocalAt{local, 0, at}, RemoteAt{remote, 0, at}, 64,
                                on_channel(block_index()));
  Status now = transfer_status(transfer);
  u64 mine = 1;
  while (now.kind() == outcome::no_room) {
    pause(100);
    now = transfer_status(transfer);
    mine += 1;
  }
  increase<order::relaxed, scope::gpu>(looks, mine);
  keep_first(status, now);
}
