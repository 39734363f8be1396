// Kernels of the conformance suite: each end of a connection by itself, so that the two may run in
// different processes. Each leaves the first bad wv::Status in status[0].
#include "warpverbs/warpverbs.h"

using namespace wv;

WV_D void keep_first(u32* status, Status result) {
  if (!result.ok()) (void)compare_exchange<order::relaxed, scope::gpu>(status, 0, result.code);
}

// What `carry` posts.
enum class carried : u32 { message = 0, message_imm = 1, write_imm = 2 };

// Thread 0 carries `count` pieces of `bytes` each from laddr on, in order, with immediates from
// `imm` on; a WRITE places them from raddr on, a message goes where the receive says.
WV_KERNEL(carry)(const Qp* qp, u32 kind, u64 laddr, u32 lkey, u64 raddr, u32 rkey, u32 bytes,
                 u32 count, u32 imm, u32* status) {
  if (global_thread() != 0) return;
  for (u32 i = 0; i < count; ++i) {
    const u64 offset = u64{i} * bytes;
    const Local from{laddr + offset, lkey};
    Posted posted{};
    switch (static_cast<carried>(kind)) {
      case carried::message: posted = send(thread, *qp, from, bytes); break;
      case carried::message_imm: posted = send_imm(thread, *qp, from, bytes, imm + i); break;
      case carried::write_imm:
        posted = put_imm(thread, *qp, from, Remote{raddr + offset, rkey}, bytes, imm + i);
        break;
    }
    if (!posted.ok()) return keep_first(status, posted.status);
  }
  keep_first(status, quiet(thread, *qp));
}

// Thread 0 takes `count` messages, at most `window` receives open, each of `room` bytes from addr
// on; window 0 offers none: somebody else has. taken: bytes, immediate, CQE opcode of each.
WV_KERNEL(take)(const Qp* qp, u64 addr, u32 lkey, u32 room, u32 count, u32 window, u32* taken,
                u32* status) {
  if (global_thread() != 0) return;
  u32 offered = 0;
  for (u32 i = 0; i < count; ++i) {
    for (; window != 0 && offered < count && offered < i + window; ++offered) {
      const Posted posted = receive(thread, *qp, Local{addr + u64{offered} * room, lkey}, room);
      if (!posted.ok()) return keep_first(status, posted.status);
    }
    Received received{};
    const Status result = wait_recv(thread, *qp, received);
    if (!result.ok()) return keep_first(status, result);
    taken[3 * i] = received.bytes;
    taken[3 * i + 1] = received.imm;
    taken[3 * i + 2] = received.opcode;
  }
}

// Every thread reads its own `bytes` from `from` into laddr and writes them on to `to`, of the same
// peer. Only the fence keeps the WRITE behind the READ.
WV_KERNEL(bounce)(const Qp* qp, u64 laddr, u32 lkey, u64 from, u64 to, u32 rkey, u32 bytes,
                  u32* status) {
  const u64 offset = global_thread() * bytes;
  const Local here{laddr + offset, lkey};
  const Posted read = get(thread, *qp, here, Remote{from + offset, rkey}, bytes, unsignalled);
  if (!read.ok()) return keep_first(status, read.status);
  const Posted posted = put(thread, *qp, here, Remote{to + offset, rkey}, bytes, fenced);
  keep_first(status, wait(thread, *qp, posted));
}

// Every thread adds 1 to each of the two halves of the u64 at raddr, without a carry between them,
// and to the u32 at raddr + 8. olds: what they were, two u64 a thread.
WV_KERNEL(masked)(const Qp* qp, u64 raddr, u32 rkey, u64* olds, u32* status) {
  u64 wide = 0;
  const MaskedFetchAdd<u64> halves{1ull << 32 | 1, 1ull << 31};
  keep_first(status, fetch_atomic(thread, *qp, Remote{raddr, rkey}, halves, wide));
  u32 narrow = 0;
  const MaskedFetchAdd<u32> whole{1, 0};
  keep_first(status, fetch_atomic(thread, *qp, Remote{raddr + 8, rkey}, whole, narrow));
  olds[2 * global_thread()] = wide;
  olds[2 * global_thread() + 1] = narrow;
}
