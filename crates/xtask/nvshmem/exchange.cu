// The measurements of `warpverbs perf shmem`, by NVSHMEM: two processes, one GPU each. Same loops, sizes,
// blocks and threads; every row's data is checked. Prints one JSON object a row.
//
//   exchange RANK FILE ITERS WARMUP
//
// FILE carries NVSHMEM's unique id from rank 0 to rank 1.
#include "common.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

enum Group { thread_group, warp_group, block_group };
static const char* const names[] = {"thread", "warp", "block"};

template <int G>
__device__ bool is_leader() {
  return threadIdx.x == 0;
}
template <int G>
__device__ void sync() {
  if (G == block_group) __syncthreads();
  else if (G == warp_group) __syncwarp();
}

template <int G>
__device__ void put_signal(void* to, const void* from, size_t bytes, uint64_t* signal, int peer) {
  if (G == block_group) {
    nvshmemx_putmem_signal_nbi_block(to, from, bytes, signal, 1, NVSHMEM_SIGNAL_ADD, peer);
  } else if (G == warp_group) {
    nvshmemx_putmem_signal_nbi_warp(to, from, bytes, signal, 1, NVSHMEM_SIGNAL_ADD, peer);
  } else {
    nvshmem_putmem_signal_nbi(to, from, bytes, signal, 1, NVSHMEM_SIGNAL_ADD, peer);
  }
}

// put with a signal, there and back.
template <int G>
__global__ void ping_pong(char* to, const char* from, size_t bytes, uint64_t* signal, int me,
                          int iters, int warmup, uint64_t* report) {
  const int peer = 1 - me;
  uint64_t start = 0;
  for (int n = 1; n <= warmup + iters; ++n) {
    if (n == warmup + 1) start = now_ns();
    if (me == 0) put_signal<G>(to, from, bytes, signal, peer);
    if (is_leader<G>()) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, n);
    sync<G>();
    if (me == 1) put_signal<G>(to, from, bytes, signal, peer);
  }
  if (is_leader<G>()) *report = now_ns() - start;
}

// Eight puts of 8 bytes, a fence, eight signals; answered by a put with signal.
__global__ void batches(char* to, const char* from, uint64_t* signals, int me, int iters, int warmup,
                        uint64_t* report) {
  const int peer = 1 - me, lane = threadIdx.x;
  uint64_t start = 0;
  for (int n = 1; n <= warmup + iters; ++n) {
    if (n == warmup + 1) start = now_ns();
    if (me == 0) {
      if (lane < 8) nvshmem_putmem_nbi(to + 8 * lane, from + 8 * lane, 8, peer);
      __syncwarp();
      if (lane < 8) {
        nvshmem_fence();
        nvshmemx_signal_op(signals + lane, 1, NVSHMEM_SIGNAL_ADD, peer);
      }
      if (lane == 0) nvshmem_signal_wait_until(signals + 8, NVSHMEM_CMP_GE, n);
      __syncwarp();
    } else {
      if (lane < 8) nvshmem_signal_wait_until(signals + lane, NVSHMEM_CMP_GE, n);
      __syncwarp();
      if (lane == 0) {
        nvshmem_putmem_signal_nbi(to + 64, from + 64, 8, signals + 8, 1, NVSHMEM_SIGNAL_ADD, peer);
      }
    }
  }
  if (lane == 0) *report = now_ns() - start;
}

template <int G>
__global__ void puts(char* to, const char* from, size_t bytes, int gets, int peer, int iters,
                     int warmup, uint64_t* report) {
  uint64_t start = 0;
  for (int n = 0; n < warmup + iters; ++n) {
    if (n == warmup) start = now_ns();
    if (G == block_group) {
      if (gets) nvshmemx_getmem_nbi_block(to, from, bytes, peer);
      else nvshmemx_putmem_nbi_block(to, from, bytes, peer);
    } else if (G == warp_group) {
      if (gets) nvshmemx_getmem_nbi_warp(to, from, bytes, peer);
      else nvshmemx_putmem_nbi_warp(to, from, bytes, peer);
    } else {
      if (gets) nvshmem_getmem_nbi(to, from, bytes, peer);
      else nvshmem_putmem_nbi(to, from, bytes, peer);
    }
    sync<G>();
    if (is_leader<G>()) nvshmem_quiet();
    sync<G>();
  }
  if (is_leader<G>()) *report = now_ns() - start;
}

// Every block moves its part, `iters` times. report: earliest start as a complement, latest end.
__global__ void stream(char* to, const char* from, size_t bytes, int gets, int peer, int iters,
                       uint64_t* report) {
  const size_t part = bytes / gridDim.x / 16 * 16, skip = part * blockIdx.x;
  const size_t mine = blockIdx.x == gridDim.x - 1 ? bytes - skip : part;
  using word = unsigned long long;
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<word*>(report), ~word{now_ns()});
  for (int n = 0; n < iters; ++n) {
    if (gets) nvshmemx_getmem_nbi_block(to + skip, from + skip, mine, peer);
    else nvshmemx_putmem_nbi_block(to + skip, from + skip, mine, peer);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    nvshmem_quiet();
    atomicMax(reinterpret_cast<word*>(report + 1), word{now_ns()});
  }
}

template <int G>
__global__ void barriers(int light, int iters, int warmup, uint64_t* report) {
  uint64_t start = 0;
  for (int n = 0; n < warmup + iters; ++n) {
    if (n == warmup) start = now_ns();
    if (G == block_group) {
      if (light) nvshmemx_sync_all_block();
      else nvshmemx_barrier_all_block();
    } else if (G == warp_group) {
      if (light) nvshmemx_sync_all_warp();
      else nvshmemx_barrier_all_warp();
    } else {
      if (light) nvshmem_sync_all();
      else nvshmem_barrier_all();
    }
  }
  if (is_leader<G>()) *report = now_ns() - start;
}

struct Bench {
  int me, iters, warmup;
  size_t room;
  char *to, *from;
  uint64_t *signals, *report;

  std::vector<char> pattern(int rank, size_t bytes) const {
    std::vector<char> all(bytes);
    for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<char>(i * 31 + rank * 7 + (i >> 8));
    return all;
  }
  void prepare(size_t bytes) const {
    CHECK(cudaMemset(signals, 0, 16 * sizeof(uint64_t)));
    CHECK(cudaMemset(report, 0, 2 * sizeof(uint64_t)));
    CHECK(cudaMemset(to, 0x5a, bytes));
    const auto mine = pattern(me, bytes);
    CHECK(cudaMemcpy(from, mine.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    nvshmem_barrier_all();
  }
  // Runs `start` on the ranks that take part, and compares the target with the other's bytes.
  template <class Start>
  void row(const char* what, int group, int blocks, int threads, size_t bytes, size_t moved,
           bool takes_part, bool compares, double per, bool rate, Start start) const {
    prepare(moved);
    if (takes_part) start();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    nvshmem_barrier_all();
    if (compares) {
      std::vector<char> found(moved);
      CHECK(cudaMemcpy(found.data(), to, moved, cudaMemcpyDeviceToHost));
      if (found != pattern(1 - me, moved)) {
        std::fprintf(stderr, "%s, %zu bytes: wrong data on rank %d\n", what, bytes, me);
        std::exit(1);
      }
    }
    if (me != 0) return;
    uint64_t ns[2];
    CHECK(cudaMemcpy(ns, report, sizeof ns, cudaMemcpyDeviceToHost));
    const double span = rate ? static_cast<double>(ns[1] - ~ns[0]) : static_cast<double>(ns[0]);
    std::printf("{\"what\":\"%s\",\"by\":\"%s\",\"blocks\":%d,\"threads\":%d,\"bytes\":%zu,\"%s\":%.3f}\n",
                what, names[group], blocks, threads, bytes, rate ? "gb_per_s" : "us",
                rate ? per / span : span / per / 1000);
    std::fflush(stdout);
  }
  template <int G>
  void exchange(int threads, size_t bytes) const {
    row("put_signal, there and back", G, 1, threads, bytes, bytes, true, true, iters, false, [&] {
      ping_pong<G><<<1, threads>>>(to, from, bytes, signals, me, iters, warmup, report);
    });
  }
  template <int G>
  void call(int gets, int threads, size_t bytes) const {
    const bool moves = gets != 0 ? me == 0 : me == 1;
    row(gets != 0 ? "get, quiet" : "put, quiet", G, 1, threads, bytes, bytes, me == 0, moves, iters, false, [&] {
      puts<G><<<1, threads>>>(to, from, bytes, gets, 1, iters, warmup, report);
    });
  }
  template <int G>
  void meet(int light, int threads) const {
    row(light != 0 ? "sync of all" : "barrier of all", G, 1, threads, 0, 8, true, false, iters, false, [&] {
      void* args[] = {&light, const_cast<int*>(&iters), const_cast<int*>(&warmup),
                      const_cast<uint64_t**>(&report)};
      // Collective: NVSHMEM wants its own launch.
      nvshmemx_collective_launch(reinterpret_cast<const void*>(&barriers<G>), 1, threads, args, 0, 0);
    });
  }
};

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: exchange RANK FILE ITERS WARMUP\n");
    return 2;
  }
  const int rank = rank_ = std::atoi(argv[1]);
  // Fails where there is one GPU: over NVLink there must be two.
  CHECK(cudaSetDevice(rank));
  start_nvshmem(rank, argv[2]);

  Bench bench{rank, std::atoi(argv[3]), std::atoi(argv[4]), size_t{64} << 20};
  bench.to = static_cast<char*>(nvshmem_malloc(bench.room));
  bench.from = static_cast<char*>(nvshmem_malloc(bench.room));
  bench.signals = static_cast<uint64_t*>(nvshmem_calloc(16, sizeof(uint64_t)));
  CHECK(cudaMalloc(&bench.report, 2 * sizeof(uint64_t)));
  if (bench.to == nullptr || bench.from == nullptr || bench.signals == nullptr) return 1;

  bench.exchange<thread_group>(1, 8);
  bench.exchange<warp_group>(32, 8);
  bench.exchange<warp_group>(32, 4 << 10);
  bench.exchange<warp_group>(32, 16 << 10);
  bench.exchange<block_group>(128, 1 << 10);
  for (size_t bytes : {4 << 10, 16 << 10, 64 << 10}) bench.exchange<block_group>(512, bytes);
  bench.exchange<block_group>(768, 64 << 10);
  bench.row("8 puts, 8 signals, a put back", warp_group, 1, 32, 8, 64, true, rank == 1, bench.iters, false, [&] {
    batches<<<1, 32>>>(bench.to, bench.from, bench.signals, rank, bench.iters, bench.warmup, bench.report);
  });
  for (int gets : {0, 1}) {
    bench.call<thread_group>(gets, 1, 8);
    bench.call<warp_group>(gets, 32, 4 << 10);
    bench.call<block_group>(gets, 256, 64 << 10);
  }
  for (int gets : {0, 1}) {
    for (int blocks : {1, 2, 4, 8, 16, 32, 64}) {
      const int transfers = 20;
      const double bytes = static_cast<double>(bench.room) * transfers;
      const bool moves = gets != 0 ? rank == 0 : rank == 1;
      bench.row(gets != 0 ? "get" : "put", block_group, blocks, 512, bench.room, bench.room, rank == 0,
                moves, bytes, true, [&] {
        // Twice, as `perf shmem` does: the first run is not measured.
        stream<<<blocks, 512>>>(bench.to, bench.from, bench.room, gets, 1, transfers, bench.report);
        CHECK(cudaMemsetAsync(bench.report, 0, 2 * sizeof(uint64_t)));
        stream<<<blocks, 512>>>(bench.to, bench.from, bench.room, gets, 1, transfers, bench.report);
      });
    }
  }
  for (int light : {0, 1}) {
    bench.meet<thread_group>(light, 1);
    bench.meet<warp_group>(light, 32);
    bench.meet<block_group>(light, 256);
  }
  nvshmem_barrier_all();
  nvshmem_finalize();
  return 0;
}
