// Kernels of the loopback examples: every operation once, posted by the kernel itself.
// *status keeps the first bad status of any thread; it is 0 if all went well.
#include "warpverbs/warpverbs.h"

using namespace wv;

namespace {

WV_DEVICE bool keep_first(u32* status, Status ended) {
  if (!ended.ok()) (void)compare_exchange<order::relaxed, scope::gpu>(status, 0u, ended.code);
  return ended.ok();
}

// This thread's part of `bytes`, cut as evenly as whole bytes allow.
struct Slice {
  u64 at;
  u32 bytes;

  explicit WV_DEVICE Slice(u64 total) {
    const u64 threads = u64{block_size()} * grid_size();
    const u64 me = global_thread();
    at = total / threads * me + (me < total % threads ? me : total % threads);
    bytes = static_cast<u32>(total / threads + (me < total % threads ? 1 : 0));
  }
};

// Offers a receive for every chunk, at most `depth` ahead of what has arrived, and tells the sender.
WV_DEVICE void take_all(const Qp& qp, Local into, u64 bytes, u32 chunk, u64 chunks, u32 depth,
                        u64* offered, u32* status) {
  u64 posted = 0;
  for (u64 arrived = 0; arrived < chunks; ++arrived) {
    for (; posted < chunks && posted < arrived + depth; ++posted) {
      const Local at{into.addr + posted * chunk, into.lkey};
      const u64 rest = bytes - posted * chunk;
      const u32 room = rest < chunk ? static_cast<u32>(rest) : chunk;
      if (!keep_first(status, receive(thread, qp, at, room).status)) return;
      store<order::release, scope::gpu>(offered, posted + 1);
    }
    Received message;
    if (!keep_first(status, wait_recv(thread, qp, message))) return;
    const u64 rest = bytes - arrived * chunk;
    const u32 expected = rest < chunk ? static_cast<u32>(rest) : chunk;
    if (message.index != arrived || message.bytes != expected) trap();
  }
}

WV_DEVICE void send_all(const Qp& qp, Local from, u64 bytes, u32 chunk, u64 chunks,
                        const u64* offered, u32* status) {
  for (u64 sent = 0; sent < chunks; ++sent) {
    if (!keep_first(status, wait_signal(thread, qp, offered, compare::gt, sent))) return;
    const Local at{from.addr + sent * chunk, from.lkey};
    const u64 rest = bytes - sent * chunk;
    const u32 length = rest < chunk ? static_cast<u32>(rest) : chunk;
    if (!keep_first(status, send(thread, qp, at, length).status)) return;
  }
  keep_first(status, quiet(thread, qp));
}

}  // namespace

// Block 0 receives, block 1 sends: `bytes` in `chunks` messages of `chunk` bytes, the last one
// shorter. At most `depth` receives are posted at a time; *offered counts them.
WV_KERNEL(carry)(const Qp* sender, u64 from, u32 from_key, const Qp* receiver, u64 into,
                 u32 into_key, u64 bytes, u32 chunk, u64 chunks, u32 depth, u64* offered,
                 u32* status) {
  if (thread_index() != 0) return;
  if (block_index() == 0) {
    take_all(*receiver, Local{into, into_key}, bytes, chunk, chunks, depth, offered, status);
  } else if (block_index() == 1) {
    send_all(*sender, Local{from, from_key}, bytes, chunk, chunks, offered, status);
  }
}

// Every thread writes its slice to the peer, and waits for it.
WV_KERNEL(write_slices)(const Qp* qp, u64 local, u32 lkey, u64 remote, u32 rkey, u64 bytes,
                        u32* status) {
  const Slice mine(bytes);
  const Posted posted = put(thread, *qp, Local{local + mine.at, lkey},
                            Remote{remote + mine.at, rkey}, mine.bytes);
  keep_first(status, wait(thread, *qp, posted));
}

// The same with the bytes inside the WQE, and no registered source at all.
WV_KERNEL(write_slices_inline)(const Qp* qp, const u8* source, u64 remote, u32 rkey, u64 bytes,
                               u32* status) {
  const Slice mine(bytes);
  const Posted posted =
      put_inline(thread, *qp, source + mine.at, Remote{remote + mine.at, rkey}, mine.bytes);
  keep_first(status, wait(thread, *qp, posted));
}

// Every thread reads its slice from the peer.
WV_KERNEL(read_slices)(const Qp* qp, u64 local, u32 lkey, u64 remote, u32 rkey, u64 bytes,
                       u32* status) {
  const Slice mine(bytes);
  const Posted posted = get(thread, *qp, Local{local + mine.at, lkey},
                            Remote{remote + mine.at, rkey}, mine.bytes);
  keep_first(status, wait(thread, *qp, posted));
}

// Every thread adds 1 to the first remote word and tries to swap its number + 1 for the 0 in the
// second. old[2 * thread ..]: what the two words held before.
WV_KERNEL(count_and_claim)(const Qp* qp, u64 remote, u32 rkey, u64* old, u32* status) {
  const u64 me = global_thread();
  const Remote counter{remote, rkey};
  const Remote prize{remote + 8, rkey};
  u64 counted = 0;
  u64 claimed = 0;
  if (!keep_first(status, fetch_add(thread, *qp, counter, u64{1}, counted))) return;
  if (!keep_first(status, compare_swap(thread, *qp, prize, u64{0}, me + 1, claimed))) return;
  old[2 * me] = counted;
  old[2 * me + 1] = claimed;
}
