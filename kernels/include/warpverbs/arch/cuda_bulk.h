// Copies by the tensor memory accelerator, between global memory, also a peer's, and shared memory.
// sm_90 and newer. PTX ISA, "Asynchronous copy": `cp.async.bulk`.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
namespace wv {

constexpr bool bulk_copies = true;

namespace cuda {
WV_DEVICE u32 shared_address(const void* p) {
  u32 address;
  asm("{ .reg .u64 s; cvta.to.shared.u64 s, %1; cvt.u32.u64 %0, s; }" : "=r"(address) : "l"(p));
  return address;
}
}  // namespace cuda

// A word of shared memory by which one thread waits for its loads, one at a time.
WV_DEVICE void bulk_open(u64* landed) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(cuda::shared_address(landed)) : "memory");
}
// The word is ordinary memory again.
WV_DEVICE void bulk_close(u64* landed) {
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(cuda::shared_address(landed)) : "memory");
}
// Orders what this thread sees of ordinary writes, and words just opened, before its bulk copies.
WV_DEVICE void bulk_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }

// Addresses and lengths are multiples of 16.
WV_DEVICE void bulk_load(void* shared, const void* global, u32 bytes, u64* landed) {
  const u32 word = cuda::shared_address(landed);
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(word), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          cuda::shared_address(shared)),
      "l"(global), "r"(bytes), "r"(word)
      : "memory");
}
// Until the load of a word is there: parity 0 for the first, 1 for the second, and so on.
WV_DEVICE void bulk_await(u64* landed, u32 parity) {
  const u32 word = cuda::shared_address(landed);
  u32 done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(word), "r"(parity)
        : "memory");
  }
}
WV_DEVICE void bulk_store(void* global, const void* shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(cuda::shared_address(shared)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but the last `Left` stores have read their shared memory.
template <u32 Left>
WV_DEVICE void bulk_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Left) : "memory");
}
// Until all stores are done: a release of this thread covers them.
WV_DEVICE void bulk_drain() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
}  // namespace wv
#else
#include "warpverbs/arch/no_bulk.h"
#endif

namespace wv {

// The launch's dynamic shared memory, 128-byte aligned; null if it is less than `bytes`.
WV_DEVICE u8* dynamic_shared(u32 bytes) {
  extern __shared__ __align__(128) u8 wv_dynamic_shared[];
  u32 given;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(given));
  return bytes <= given ? wv_dynamic_shared : nullptr;
}

}  // namespace wv
