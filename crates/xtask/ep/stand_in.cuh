// Stands in for DeepEP's ibgda_device.cuh, so that its kernels need no NVSHMEM: ranks of one process, whose memory
// stores reach. What would need a NIC traps.
#pragma once

#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>

#include <deep_ep/common/exception.cuh>

#include "utils.cuh"

namespace deep_ep::legacy {

namespace cg = cooperative_groups;

// The begin of each rank's symmetric memory.
static __device__ uint64_t heaps[8];

struct Pairs {
  int num_rc_per_pe, num_devices_initialized;
};
static __device__ Pairs pairs{1 << 20, 1};
__device__ inline const Pairs* ibgda_get_state() { return &pairs; }

__device__ inline uint64_t nvshmemi_get_p2p_ptr(const uint64_t& ptr, const int& rank, const int& to) {
  return rank == to ? ptr : __ldg(heaps + to) + (ptr - __ldg(heaps + rank));
}

__device__ inline void nvshmemi_ibgda_quiet(int, int) { asm("trap;"); }
__device__ inline void nvshmemx_barrier_all_block() { asm("trap;"); }
template <class... Any>
__device__ inline void nvshmemi_ibgda_rma_p(Any...) { asm("trap;"); }
template <class... Any>
__device__ inline void nvshmemi_ibgda_put_nbi_warp(Any...) { asm("trap;"); }
template <class... Any>
__device__ inline void nvshmemi_ibgda_amo_nonfetch_add(Any...) { asm("trap;"); }

}  // namespace deep_ep::legacy

// On the current device.
void set_heaps(const uint64_t* bases, int count) {
  CUDA_RUNTIME_CHECK(cudaMemcpyToSymbol(deep_ep::legacy::heaps, bases, count * sizeof *bases));
}
