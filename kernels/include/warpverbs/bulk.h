// Puts by one thread through shared memory that the caller lends, while the block's other threads
// compute. On NVIDIA GPUs from sm_90 on the tensor memory accelerator moves the bytes; elsewhere
// the thread copies them.
//
//   launch with dynamic shared memory:  Dim::new(blocks, threads).shared(96 << 10)
//   wv::Lent lent = wv::lend_dynamic(96 << 10);
//   if (wv::thread_index() == 0) status = wv::put_through(lent, heap, to, from, bytes, pe);
#pragma once

#include "warpverbs/shm.h"

namespace wv {

// Shared memory of the block, 128-byte aligned, which one thread at a time uses. 128 bytes of it
// are for bookkeeping, the rest is eight tiles. It holds nothing of use before and after a call.
struct Lent {
  u8* memory;
  u32 bytes;
};

// `bytes` of the launch's dynamic shared memory; nothing if it has not as much.
WV_DEVICE Lent lend_dynamic(u32 bytes) {
  u8* memory = dynamic_shared(bytes);
  return {memory, memory == nullptr ? 0 : bytes};
}

// put(thread, …), as fast as a block's where the peer is direct, `to` and `from` are equally far
// from a multiple of 16 and enough is lent: 96 KiB for the full rate. Returns when the bytes are in the
// peer's memory; a signal of this thread is then behind them.
template <class Route = route::any>
WV_DEVICE Status put_through(const Lent& lent, const Heap& heap, void* to, const void* from,
                             u64 bytes, u32 pe, Flags = {}, Timeout = {});

}  // namespace wv

#include "warpverbs/impl/bulk.h"
