// Kernels of the conformance suite: each end of a connection by itself, so that the two may run in
// different processes. Each leaves the first bad wv::Status in *status.
#include "warpverbs/warpverbs.h"

using namespace wv;

// The requests of `carry`.
enum class carried : u32 { message = 0, message_imm = 1, write_imm = 2 };

// Thread 0 carries `count` pieces of `bytes` each from `from` on, in order, with immediates from
// `imm` on; a WRITE places them from `to` on, a message goes where the receive says.
WV_SAFE_KERNEL(carry)(const Qp* qp, u32 kind, Local from, Remote to, u32 bytes, u32 count, u32 imm,
                      Status* status WV_COUNT(1)) {
  if (global_thread() != 0) return;
  for (u32 i = 0; i < count; ++i) {
    const u64 offset = u64{i} * bytes;
    const Local piece{from.addr + offset, from.lkey};
    Posted posted{};
    switch (static_cast<carried>(kind)) {
      case carried::message: posted = send(thread, *qp, piece, bytes); break;
      case carried::message_imm: posted = send_imm(thread, *qp, piece, bytes, imm + i); break;
      case carried::write_imm:
        posted = put_imm(thread, *qp, piece, Remote{to.addr + offset, to.rkey}, bytes, imm + i);
        break;
    }
    if (!posted.ok()) return keep_first(status, posted.status);
  }
  keep_first(status, quiet(thread, *qp));
}

// Thread 0 takes `count` messages, at most `window` receives open, each of `room` bytes from `to`
// on; window 0 offers none: somebody else has. taken: bytes, immediate, CQE opcode of each.
WV_SAFE_KERNEL(take)(const Qp* qp, Local to, u32 room, u32 count, u32 window,
                     u32* taken WV_COUNT(3 * count), Status* status WV_COUNT(1)) {
  if (global_thread() != 0) return;
  u32 offered = 0;
  for (u32 i = 0; i < count; ++i) {
    for (; window != 0 && offered < count && offered < i + window; ++offered) {
      const Posted posted = receive(thread, *qp, Local{to.addr + u64{offered} * room, to.lkey}, room);
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

// Every thread reads its own `bytes` from `from` into `here` and writes them on to `to`, of the same
// peer. Only the fence keeps the WRITE behind the READ.
WV_SAFE_KERNEL(bounce)(const Qp* qp, Local here, Remote from, Remote to, u32 bytes,
                       Status* status WV_COUNT(1)) {
  const u64 offset = global_thread() * bytes;
  here.addr += offset;
  const Remote source{from.addr + offset, from.rkey};
  const Posted read = get(thread, *qp, here, source, bytes, unsignalled);
  if (!read.ok()) return keep_first(status, read.status);
  const Posted posted = put(thread, *qp, here, Remote{to.addr + offset, to.rkey}, bytes, fenced);
  keep_first(status, wait(thread, *qp, posted));
}

// Every thread adds 1 to each of the two halves of the u64 at `at`, without a carry between them,
// and to the u32 behind it. olds: what they were, two u64 a thread.
WV_SAFE_KERNEL(masked)(const Qp* qp, Remote at, u64* olds WV_COUNT(2 * grid_threads),
                       Status* status WV_COUNT(1)) {
  u64 wide = 0;
  const MaskedFetchAdd<u64> halves{1ull << 32 | 1, 1ull << 31};
  keep_first(status, fetch_atomic(thread, *qp, at, halves, wide));
  u32 narrow = 0;
  const MaskedFetchAdd<u32> whole{1, 0};
  keep_first(status, fetch_atomic(thread, *qp, Remote{at.addr + 8, at.rkey}, whole, narrow));
  olds[2 * global_thread()] = wide;
  olds[2 * global_thread() + 1] = narrow;
}
