// Waits that may fail. status[thread] is how each ended; took[thread] how long it took, in ns.
#include "warpverbs/warpverbs.h"

using namespace wv;

WV_D void leave(Status* status, u64* took, Status result, u64 since) {
  status[global_thread()] = result;
  took[global_thread()] = now_ns() - since;
}

// One WRITE and a wait for it. deadline_ns 0: the queue pair's own.
WV_SAFE_KERNEL(completion)(const Qp* qp, Local from, Remote to, u32 bytes, u64 deadline_ns,
                           Status* status WV_COUNT(grid_threads),
                           u64* took WV_COUNT(grid_threads)) {
  const u64 start = now_ns();
  const Timeout timeout = within_ns(deadline_ns);
  const Posted posted = put(thread, *qp, from, to, bytes, {}, timeout);
  leave(status, took, wait(thread, *qp, posted, timeout), start);
}

// `count` WRITEs without looking at their completion: more than the queue takes.
WV_SAFE_KERNEL(room)(const Qp* qp, Local from, Remote to, u32 count, u64 deadline_ns,
                     Status* status WV_COUNT(grid_threads),
                     u64* took WV_COUNT(grid_threads)) {
  const u64 start = now_ns();
  Status result;
  for (u32 i = 0; i < count && result.ok(); ++i) {
    result = put(thread, *qp, from, to, 8, {}, within_ns(deadline_ns)).status;
  }
  leave(status, took, result, start);
}

// The same, but takes no for an answer.
WV_SAFE_KERNEL(no_room)(const Qp* qp, Local from, Remote to, u32 count,
                        Status* status WV_COUNT(grid_threads),
                        u64* took WV_COUNT(grid_threads)) {
  const u64 start = now_ns();
  u32 posted = 0;
  Status result;
  for (; posted < count && result.ok(); posted += result.ok()) {
    result = put(thread, *qp, from, to, 8, no_wait).status;
  }
  leave(status, took, result, start);
  took[global_thread()] = posted;
}

// Waits for *word >= value.
WV_SAFE_KERNEL(signal_word)(const Qp* qp, const u64* word WV_COUNT(1), u64 value, u64 deadline_ns,
                            Status* status WV_COUNT(grid_threads),
                            u64* took WV_COUNT(grid_threads)) {
  const u64 start = now_ns();
  const Status result =
      wait_signal(warp, *qp, word, compare::ge, value, within_ns(deadline_ns));
  leave(status, took, result, start);
}

// Waits for a message.
WV_SAFE_KERNEL(message)(const Qp* qp, u64 deadline_ns,
                        Status* status WV_COUNT(grid_threads),
                        u64* took WV_COUNT(grid_threads)) {
  const u64 start = now_ns();
  Received received;
  leave(status, took, wait_recv(block, *qp, received, within_ns(deadline_ns)), start);
}

// Offers `count` receives of 8 bytes.
WV_SAFE_KERNEL(offers)(const Qp* qp, Local to, u32 count, u64 deadline_ns,
                       Status* status WV_COUNT(grid_threads),
                       u64* took WV_COUNT(grid_threads)) {
  const u64 start = now_ns();
  Status result;
  for (u32 i = 0; i < count && result.ok(); ++i) {
    result = receive(thread, *qp, to, 8, within_ns(deadline_ns)).status;
  }
  leave(status, took, result, start);
}

// Fetches through a scratch slot.
WV_SAFE_KERNEL(old_value)(const Qp* qp, Remote at, u64 deadline_ns,
                          Status* status WV_COUNT(grid_threads),
                          u64* took WV_COUNT(grid_threads)) {
  const u64 start = now_ns();
  u64 old = 0;
  const Status result =
      fetch_add(thread, *qp, at, u64{1}, old, within_ns(deadline_ns));
  leave(status, took, result, start);
}

// Lengths that cannot be posted: 2^31 bytes, and one more than may be inline.
WV_SAFE_KERNEL(lengths)(const Qp* qp, Local local, Remote remote, Status* status WV_COUNT(6)) {
  status[0] = put(thread, *qp, local, remote, 0x80000000u).status;
  status[1] = get(thread, *qp, local, remote, 0xffffffffu).status;
  status[2] = send(thread, *qp, local, 0x80000000u).status;
  status[3] = put_inline(thread, *qp, status, remote, u32{qp->inline_words} * 4 + 1).status;
  status[4] = put_each(warp, *qp, local, remote, 0x80000000u).status;
  status[5] = receive(thread, *qp, local, 0x80000000u).status;
}
