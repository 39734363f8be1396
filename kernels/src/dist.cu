// The traffic between the ranks of a job: WRITEs and messages around a mesh, and a counter that all
// of them count up. report: [0] the first bad wv::Status, [1] complement of the earliest start,
// [2] the latest end, in nanoseconds, [3] what each kernel says.
#include "target.h"

using namespace wv;

// `iters` WRITEs of `bytes` on each of `count` queue pairs by the whole grid.
WV_SAFE_KERNEL(write_all)(const Target* targets WV_COUNT(count), u32 count, u32 bytes, u32 iters,
                          u64* report WV_COUNT(3)) {
  share_out(targets, count, iters, report, [&](const Target& to, u32 n) {
    const Qp& qp = *to.qp;
    return post_by_lanes(
        qp, n, [&](auto coop) { return put_each(coop, qp, to.local, to.remote, bytes); });
  });
}

// One queue pair that exchanges messages: those sent lie from `local` on, window + 1 different ones that take turns;
// those received from `inbox` on, `window` of them. So every place gets another message each time.
struct Peer {
  const Qp* qp;
  Local local;
  Local inbox;
};

WV_D Local place(Local base, u32 slot, u32 bytes) {
  return Local{base.addr + u64{slot} * bytes, base.lkey};
}

// One thread for each queue pair offers its first receives, before the peer may send.
WV_SAFE_KERNEL(offer)(const Peer* peers WV_COUNT(count), u32 count, u32 bytes, u32 window,
                      u32 messages, u64* report WV_COUNT(3)) {
  note_start(report);
  const u32 first = window < messages ? window : messages;
  for (u32 i = static_cast<u32>(global_thread()); i < count; i += grid_size() * block_size()) {
    const Peer e = peers[i];
    Status status;
    for (u32 k = 0; k < first && status.ok(); ++k) {
      status = receive(thread, *e.qp, place(e.inbox, k, bytes), bytes).status;
    }
    note(report, status);
  }
  note_end(report);
}

// Sends messages 0, 1, 2 and so on; the odd ones carry their number.
WV_D Status send_all(const Peer& e, const Qp& qp, u32 bytes, u32 window, u32 messages) {
  u32 slot = 0;
  for (u32 i = 0; i < messages; ++i) {
    const Local from = place(e.local, slot, bytes);
    const Posted posted = i % 2 == 0 ? send(thread, qp, from, bytes, unsignalled)
                                     : send_imm(thread, qp, from, bytes, i, unsignalled);
    if (!posted.ok()) return posted.status;
    slot = slot == window ? 0 : slot + 1;
  }
  return quiet(thread, qp);
}

// Takes as many, offering each place again. Adds to `wrong` those that are not the next in order.
WV_D Status receive_all(const Peer& e, const Qp& qp, u32 bytes, u32 window, u32 messages,
                        u64& wrong) {
  for (u32 i = 0; i < messages; ++i) {
    Received got;
    Status status = wait_recv(thread, qp, got);
    if (!status.ok()) return status;
    const bool odd = i % 2 != 0;
    wrong += got.bytes != bytes || got.has_imm() != odd || (odd && got.imm != i);
    if (window == 0 || u64{i} + window >= messages) continue;
    status = receive(thread, qp, place(e.inbox, i % window, bytes), bytes).status;
    if (!status.ok()) return status;
  }
  return Status{};
}

// On each of `count` queue pairs one warp sends `messages` and another receives as many: the launch
// has 2 * count warps or more. report[3]: messages of the wrong length, order or immediate.
WV_SAFE_KERNEL(exchange)(const Peer* peers WV_COUNT(count), u32 count, u32 bytes, u32 window,
                         u32 messages, u64* report WV_COUNT(4)) {
  const u32 me = block_index() * (block_size() / warp_size) + warp_index();
  if (lane_id() != 0 || me >= 2 * count) return;
  note_start(report);
  const Peer e = peers[me / 2];
  u64 wrong = 0;
  note(report, me % 2 == 0 ? send_all(e, *e.qp, bytes, window, messages)
                           : receive_all(e, *e.qp, bytes, window, messages, wrong));
  if (wrong != 0) (void)fetch_add<order::relaxed, scope::gpu>(report + 3, wrong);
  note_end(report);
}

// Every thread counts the word at `remote` of target `thread % count` up, `iters` times, and keeps
// the value that it found there each time. report[3]: operations that this took.
WV_SAFE_KERNEL(add_up)(const Target* targets WV_COUNT(count), u32 count, u32 iters,
                       u64* found WV_COUNT(grid_threads * iters), u64* report WV_COUNT(4)) {
  if (count == 0) return;
  note_start(report);
  const u64 me = global_thread();
  const Target t = targets[me % count];
  Status status;
  u32 done = 0;
  for (; done < iters && status.ok(); ++done) {
    status = fetch_add(thread, *t.qp, t.remote, u64{1}, found[me * iters + done]);
  }
  (void)fetch_add<order::relaxed, scope::gpu>(report + 3, u64{done});
  note(report, status);
  note_end(report);
}

// The same by compare-and-swap: a thread that finds another value than it expected tries again
// with that.
WV_SAFE_KERNEL(swap_up)(const Target* targets WV_COUNT(count), u32 count, u32 iters,
                        u64* found WV_COUNT(grid_threads * iters), u64* report WV_COUNT(4)) {
  if (count == 0) return;
  note_start(report);
  const u64 me = global_thread();
  const Target t = targets[me % count];
  Status status;
  u64 tries = 0, expected = 0, old = 0;
  for (u32 done = 0; done < iters; ++tries) {
    status = compare_swap(thread, *t.qp, t.remote, expected, expected + 1, old);
    if (!status.ok()) break;
    if (old == expected) {
      found[me * iters + done] = old;
      ++done;
    }
    expected = old == expected ? old + 1 : old;
  }
  (void)fetch_add<order::relaxed, scope::gpu>(report + 3, tries);
  note(report, status);
  note_end(report);
}
