// How fast NVSHMEM's kernels post over InfiniBand by themselves (IBGDA), to a device that only consumes: two
// processes, one GPU each, of which the first posts. Prints one JSON object a row.
//
//   posting RANK FILE EACH
//
// FILE carries NVSHMEM's unique id from rank 0 to rank 1. EACH: puts of each thread in grids of up to 1024
// threads; larger ones share as many puts as that.
#include "common.h"

#include <algorithm>
#include <dlfcn.h>
#include <vector>

using word = unsigned long long;

struct Times {
  word before_first;  // Complement of the earliest start.
  word last;
  unsigned arrived;
};

// Every thread puts `each` times to a word of its own, not beside those of other threads: NVSHMEM may make one WQE
// of the puts of a warp to neighbouring words. One quiet ends the grid, when all have posted.
__global__ void post(word* to, int each, int peer, Times* times) {
  const word start = now_ns();
  word* mine = to + size_t{2} * (blockIdx.x * blockDim.x + threadIdx.x);
  for (int i = 0; i < each; i++) nvshmem_ulonglong_p(mine, word(i), peer);
  __syncthreads();
  if (threadIdx.x != 0) return;
  atomicMax(&times->before_first, ~start);
  __threadfence();
  if (atomicAdd(&times->arrived, 1) != gridDim.x - 1) return;
  __threadfence();
  nvshmem_quiet();
  times->last = now_ns();
}

__global__ void latency(word* to, int iters, word* took, int peer) {
  for (int i = 0; i < iters; i++) {
    const word start = now_ns();
    nvshmem_ulonglong_p(to, word(i), peer);
    nvshmem_quiet();
    took[i] = now_ns() - start;
  }
}

struct Bench {
  word* to;
  Times* times;
  int each;

  void row(int blocks, int threads) const {
    const int puts = std::min(each, std::max(1, each * 1024 / (blocks * threads)));
    double best = 0;
    // The first is not measured.
    for (int turn = 0; turn < 4; turn++) {
      CHECK(cudaMemset(times, 0, sizeof *times));
      post<<<blocks, threads>>>(to, turn == 0 ? puts / 8 + 1 : puts, 1, times);
      Times t;
      CHECK(cudaMemcpy(&t, times, sizeof t, cudaMemcpyDefault));
      const double all = double(blocks) * threads * puts;
      if (turn > 0) best = std::max(best, all / double(t.last - ~t.before_first) * 1e9);
    }
    std::printf("{\"blocks\":%d,\"threads\":%d,\"per_s\":%.0f}\n", blocks, threads, best);
    std::fflush(stdout);
  }
};

static void measure(word* to, int each) {
  Bench bench{to, nullptr, each};
  CHECK(cudaMalloc(&bench.times, sizeof(Times)));
  for (const auto& [blocks, threads] : {std::pair{1, 1}, {1, 32}, {32, 128}, {132, 256}}) {
    bench.row(blocks, threads);
  }
  word* took;
  CHECK(cudaMalloc(&took, each * sizeof(word)));
  latency<<<1, 1>>>(to, each, took, 1);
  std::vector<word> ns(each);
  CHECK(cudaMemcpy(ns.data(), took, each * sizeof(word), cudaMemcpyDefault));
  std::sort(ns.begin(), ns.end());
  std::printf("{\"p50_ns\":%llu,\"p99_ns\":%llu}\n", ns[each / 2], ns[each * 99 / 100]);
  std::fflush(stdout);
}

__global__ void put_value(word* to, word value, int peer) {
  nvshmem_ulonglong_p(to, value, peer);
  nvshmem_quiet();
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  rank_ = std::atoi(argv[1]);
  const auto consume = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "warpverbs_consume"));
  require(consume != nullptr, "this runs in `warpverbs run`, whose library has warpverbs_consume");
  step("start");
  start_nvshmem(rank_, argv[2]);
  const size_t words = 2 * 132 * 256;
  word* to = static_cast<word*>(nvshmem_malloc((words + 1) * sizeof(word)));
  require(nvshmem_ptr(to, 1 - rank_) == nullptr, "the peer is reached by the NIC alone");
  CHECK(cudaMemset(to, 0xff, (words + 1) * sizeof(word)));
  CHECK(cudaDeviceSynchronize());
  nvshmem_barrier_all();
  if (rank_ == 0) {
    // This one arrives.
    put_value<<<1, 1>>>(to + words, 7, 1);
    CHECK(cudaDeviceSynchronize());
    step("the device only consumes");
    require(consume(1) > 0, "there is a device");
    measure(to, std::atoi(argv[3]));
    require(consume(0) > 0, "there is a device");
    step("the device executes");
  }
  nvshmem_barrier_all();
  if (rank_ == 1) {
    std::vector<word> found(words + 1);
    CHECK(cudaMemcpy(found.data(), to, found.size() * sizeof(word), cudaMemcpyDefault));
    require(found[words] == 7, "a put before arrived");
    found.pop_back();
    require(found == std::vector<word>(words, ~word{0}), "the puts that were measured moved nothing");
  }
  nvshmem_barrier_all();
  step("end");
  nvshmem_finalize();
  return 0;
}
