// NVSHMEM's kernels over InfiniBand without a proxy (IBGDA): two processes, one GPU each. Checks
// every byte, and measures one put of four bytes with its completion.
//
//   ibgda RANK FILE ITERS
//
// FILE carries NVSHMEM's unique id from rank 0 to rank 1.
#include "common.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

__global__ void put_value(int* to, int value, int peer) {
  nvshmem_int_p(to, value, peer);
  nvshmem_quiet();
}

__global__ void put_many(int* to, const int* from, size_t count, int peer) {
  nvshmemx_int_put_nbi_block(to, from, count, peer);
  __syncthreads();
  if (threadIdx.x == 0) nvshmem_quiet();
}

__global__ void get_many(int* to, const int* from, size_t count, int peer) {
  nvshmemx_int_get_block(to, from, count, peer);
}

struct Words {
  unsigned long long wide, swapped, compared;
  unsigned narrow, exchanged, bits;
};

// The value that each atomic fetches goes to `found`.
__global__ void atomics(Words* words, Words* found, int peer) {
  found->wide = nvshmem_ulonglong_atomic_fetch_add(&words->wide, 5, peer);
  found->swapped = nvshmem_ulonglong_atomic_swap(&words->swapped, 0x1122334455667788ull, peer);
  found->compared = nvshmem_ulonglong_atomic_compare_swap(&words->compared, 30, 31, peer);
  found->narrow = nvshmem_uint_atomic_fetch_add(&words->narrow, 7, peer);
  found->exchanged = nvshmem_uint_atomic_compare_swap(&words->exchanged, 50, 51, peer);
  found->bits = nvshmem_uint_atomic_fetch_xor(&words->bits, 0xff, peer);
  nvshmem_ulonglong_atomic_add(&words->wide, 1, peer);
  nvshmem_quiet();
}

__global__ void put_signal(int* to, const int* from, size_t count, uint64_t* signal, int peer) {
  nvshmemx_int_put_signal_nbi_block(to, from, count, signal, 1, NVSHMEM_SIGNAL_ADD, peer);
}

__global__ void wait_signal(uint64_t* signal, uint64_t value) {
  nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, value);
}

__global__ void barrier() { nvshmem_barrier_all(); }

__global__ void latency(int* to, int iters, uint64_t* took, int peer) {
  for (int i = 0; i < iters; i++) {
    const uint64_t start = now_ns();
    nvshmem_int_p(to, i, peer);
    nvshmem_quiet();
    took[i] = now_ns() - start;
  }
}

static std::vector<int> numbers(int rank, size_t count) {
  std::vector<int> out(count);
  for (size_t i = 0; i < count; i++) out[i] = int(i * 2654435761u) ^ (rank + 1);
  return out;
}

static std::vector<int> read(const int* from, size_t count) {
  std::vector<int> out(count);
  CHECK(cudaMemcpy(out.data(), from, count * sizeof(int), cudaMemcpyDefault));
  return out;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  rank_ = std::atoi(argv[1]);
  const int iters = std::atoi(argv[3]), peer = 1 - rank_;
  step("start");
  start_nvshmem(rank_, argv[2]);
  step("heap");
  const size_t count = 1 << 18;
  int* from = static_cast<int*>(nvshmem_malloc(count * sizeof(int)));
  int* to = static_cast<int*>(nvshmem_malloc(count * sizeof(int)));
  auto* words = static_cast<Words*>(nvshmem_malloc(sizeof(Words)));
  auto* signal = static_cast<uint64_t*>(nvshmem_malloc(sizeof(uint64_t)));
  require(nvshmem_ptr(to, peer) == nullptr, "the peer is reached by the NIC alone");
  const Words start = {10, 20, 30, 40, 50, 0xf0};
  CHECK(cudaMemcpy(words, &start, sizeof start, cudaMemcpyDefault));
  CHECK(cudaMemset(signal, 0, sizeof *signal));
  CHECK(cudaMemcpy(from, numbers(rank_, count).data(), count * sizeof(int), cudaMemcpyDefault));
  CHECK(cudaDeviceSynchronize());
  step("barrier");
  nvshmem_barrier_all();

  step("p");
  put_value<<<1, 1>>>(to, 4000 + rank_, peer);
  CHECK(cudaDeviceSynchronize());
  nvshmem_barrier_all();
  require(read(to, 1)[0] == 4000 + peer, "p");
  nvshmem_barrier_all();
  step("put");
  for (const size_t n : {size_t{1}, size_t{1023}, count}) {
    put_many<<<1, 128>>>(to, from, n, peer);
    CHECK(cudaDeviceSynchronize());
    nvshmem_barrier_all();
    require(read(to, n) == numbers(peer, n), "put");
    nvshmem_barrier_all();
  }
  CHECK(cudaMemset(to, 0, count * sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  nvshmem_barrier_all();
  step("get");
  get_many<<<1, 128>>>(to, from, count, peer);
  CHECK(cudaDeviceSynchronize());
  require(read(to, count) == numbers(peer, count), "get");
  nvshmem_barrier_all();

  Words *found, mine;
  CHECK(cudaMallocManaged(&found, sizeof(Words)));
  step("atomics");
  atomics<<<1, 1>>>(words, found, peer);
  CHECK(cudaDeviceSynchronize());
  nvshmem_barrier_all();
  CHECK(cudaMemcpy(&mine, words, sizeof mine, cudaMemcpyDefault));
  require(found->wide == 10 && mine.wide == 16, "fetch_add and add of 8 bytes");
  require(found->swapped == 20 && mine.swapped == 0x1122334455667788ull, "swap of 8 bytes");
  require(found->compared == 30 && mine.compared == 31, "compare_swap of 8 bytes");
  require(found->narrow == 40 && mine.narrow == 47, "fetch_add of 4 bytes");
  require(found->exchanged == 50 && mine.exchanged == 51, "compare_swap of 4 bytes");
  require(found->bits == 0xf0 && mine.bits == 0x0f, "fetch_xor of 4 bytes");

  CHECK(cudaMemset(to, 0, count * sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  nvshmem_barrier_all();
  step("put with signal");
  for (int turn = 0; turn < 2; turn++) {
    if (turn == rank_) {
      put_signal<<<1, 32>>>(to, from, 4096, signal, peer);
    } else {
      wait_signal<<<1, 1>>>(signal, 1);
    }
    CHECK(cudaDeviceSynchronize());
    if (turn != rank_) require(read(to, 4096) == numbers(peer, 4096), "put with signal");
    nvshmem_barrier_all();
  }
  step("barrier by a kernel");
  for (int i = 0; i < 10; i++) barrier<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());

  uint64_t* took;
  CHECK(cudaMallocManaged(&took, iters * sizeof(uint64_t)));
  step("latency");
  for (int turn = 0; turn < 2; turn++) {
    if (turn == rank_) latency<<<1, 1>>>(to, iters, took, peer);
    CHECK(cudaDeviceSynchronize());
    nvshmem_barrier_all();
  }
  require(read(to, 1)[0] == iters - 1, "the last p");
  std::sort(took, took + iters);
  std::printf("rank %d: p, put, get, atomics, put with signal, barrier: all data right; p + quiet %.2f us (p99 %.2f)\n",
              rank_, took[iters / 2] / 1e3, took[iters * 99 / 100] / 1e3);
  std::fflush(stdout);
  nvshmem_barrier_all();
  step("end");
  nvshmem_finalize();
  return 0;
}
