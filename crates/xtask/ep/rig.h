// Of the programs that run other libraries' dispatch and combine: the tokens of `warpverbs perf ep`, one process with
// a GPU for each rank, the clock, and the comparison of rows.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

constexpr int ranks = 2, hidden = 7168, top_k = 8, experts = 64 * ranks, local_experts = experts / ranks;
constexpr size_t row_bytes = 2 * hidden;
// Pairs of a dispatch and a combine in a graph.
constexpr int turns = 50;

[[noreturn]] inline void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::_Exit(1);
}
inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) fail(std::string(call) + ": " + cudaGetErrorString(code));
}
#define CHECK(call) check(call, #call)

inline void use(int rank) { CHECK(cudaSetDevice(rank)); }

template <class T>
T* room(int rank, size_t count) {
  use(rank);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, std::max<size_t>(count * sizeof(T), 16)));
  CHECK(cudaMemset(memory, 0, count * sizeof(T)));
  return static_cast<T*>(memory);
}
template <class T>
T* room(int rank, const std::vector<T>& values) {
  T* memory = room<T>(rank, values.size());
  CHECK(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}
template <class T>
std::vector<T> read(int rank, const T* from, size_t count) {
  use(rank);
  std::vector<T> found(count);
  CHECK(cudaMemcpy(found.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return found;
}

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Tokens of all ranks: the numbers of crates/bench/src/perf/ep/load.rs.
struct Load {
  uint64_t seed;
  int tokens;
  std::vector<int> chosen[ranks];

  Load(uint64_t seed, int tokens) : seed(seed), tokens(tokens) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int token = 0; token < tokens; ++token) {
        std::vector<int> left(experts);
        for (int e = 0; e < experts; ++e) left[e] = e;
        for (int j = 0; j < top_k; ++j) {
          const uint64_t at = mix(mix(mix(seed ^ uint64_t(rank)) ^ uint64_t(token)) ^ uint64_t(j)) % left.size();
          chosen[rank].push_back(left[at]);
          left[at] = left.back();
          left.pop_back();
        }
      }
    }
  }
  const int* choices(int rank, int token) const { return &chosen[rank][size_t(token) * top_k]; }
  int local(int rank, int token, int owner) const {
    const int* first = choices(rank, token);
    return int(std::count_if(first, first + top_k, [&](int e) { return e / local_experts == owner; }));
  }
  // A token's row, `times` over, as bf16.
  std::vector<uint16_t> row(int rank, int token, int times) const {
    const uint64_t begin = mix(mix(seed ^ uint64_t(rank)) ^ uint64_t(token));
    std::vector<uint16_t> row;
    for (uint64_t pack = 0; pack < hidden / 8; ++pack) {
      const uint64_t random = mix(begin ^ pack << 32);
      for (int i = 0; i < 8; ++i) {
        const uint32_t bits = random >> 8 * i & 0xff;
        const uint32_t one = (bits & 0x80) << 24 | (123 + (bits >> 4 & 7)) << 23 | (bits & 3) << 21;
        float value;
        std::memcpy(&value, &one, 4);
        value *= float(times);
        uint32_t word;
        std::memcpy(&word, &value, 4);
        row.push_back(uint16_t(word >> 16));
      }
    }
    return row;
  }
  template <class Times>
  std::vector<uint16_t> rows(int rank, Times times) const {
    std::vector<uint16_t> all;
    for (int token = 0; token < tokens; ++token) {
      const auto one = row(rank, token, times(token));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
};

inline void compare(const std::vector<uint16_t>& expected, const uint16_t* found, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    char words[80];
    std::snprintf(words, sizeof words, ": element %zu is %#x, expected %#x", i, found[i], expected[i]);
    fail("wrong data, " + what + words);
  }
}

__device__ inline uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

struct Gate {
  unsigned* arrived[ranks];  // Of each rank's memory: a word for each rank.
  unsigned* epoch;
  unsigned* late;
  int rank;
};

// All ranks meet; the last thing that it does is to read the clock.
inline __global__ void align(Gate gate, uint64_t* stamp) {
  const unsigned epoch = ++*gate.epoch;
  for (int to = 0; to < ranks; ++to) {
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(gate.arrived[to] + gate.rank), "r"(epoch) : "memory");
  }
  const uint64_t begin = now_ns();
  for (int from = 0; from < ranks; ++from) {
    for (unsigned seen = 0; seen < epoch;) {
      asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(seen) : "l"(gate.arrived[gate.rank] + from) : "memory");
      if (now_ns() - begin > 10'000'000'000) {
        *gate.late = 1;
        return;
      }
    }
  }
  *stamp = now_ns();
}

inline __global__ void stamp(uint64_t* to) { *to = now_ns(); }

inline __global__ void nothing() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// How a peer launches a kernel.
struct Launch {
  int blocks, threads, shared_bytes;
  bool cooperative, programmatic;
  int cluster;

  void empty(cudaStream_t stream) const {
    cudaLaunchAttribute attributes[3];
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = programmatic;
    config.numAttrs = 1;
    if (cooperative) {
      attributes[0].id = cudaLaunchAttributeCooperative;
      attributes[0].val.cooperative = 1;
      attributes[1].id = cudaLaunchAttributeClusterDimension;
      attributes[1].val.clusterDim = {unsigned(cluster), 1, 1};
      config.numAttrs = 2;
    }
    CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    CHECK(cudaLaunchKernelEx(&config, nothing));
  }
};

// A library's calls with the tokens of one row, which a capture records in this order.
struct Peer {
  Launch dispatch_launch, combine_launch;
  virtual ~Peer() = default;
  virtual void prepare_dispatch(int, cudaStream_t) {}
  virtual void dispatch(int rank, cudaStream_t stream) = 0;
  virtual void prepare_combine(int, cudaStream_t) {}
  virtual void combine(int rank, cudaStream_t stream) = 0;
  // Bytes that no call leaves as they are, wherever rows and sums come to lie.
  virtual void poison(int rank) = 0;
  virtual void verify(int rank) = 0;
  virtual size_t bytes() const = 0;
};

struct Rank {
  cudaStream_t stream;
  Gate gate{};
  uint64_t* stamps;
};

// Ranks of this process, their clocks and their graphs.
struct Rig {
  Rank of[ranks];

  Rig() {
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      CHECK(cudaDeviceEnablePeerAccess(1 - rank, 0));
      CHECK(cudaStreamCreate(&of[rank].stream));
      of[rank].stamps = room<uint64_t>(rank, 4 * turns);
      of[rank].gate.rank = rank;
      of[rank].gate.epoch = room<unsigned>(rank, 1);
      of[rank].gate.late = room<unsigned>(rank, 1);
      unsigned* words = room<unsigned>(rank, ranks);
      for (Rank& one : of) one.gate.arrived[rank] = words;
    }
  }

  using Body = std::function<void(int, Rank&)>;

  void capture(const Body& body, cudaGraphExec_t (&graphs)[ranks]) {
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      cudaGraph_t graph;
      CHECK(cudaStreamBeginCapture(of[rank].stream, cudaStreamCaptureModeThreadLocal));
      body(rank, of[rank]);
      CHECK(cudaStreamEndCapture(of[rank].stream, &graph));
      CHECK(cudaGraphInstantiate(&graphs[rank], graph, 0));
      CHECK(cudaGraphUpload(graphs[rank], of[rank].stream));
      CHECK(cudaGraphDestroy(graph));
    }
    meet();
  }
  void meet() {
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      CHECK(cudaStreamSynchronize(of[rank].stream));
      if (read(rank, of[rank].gate.late, 1)[0] != 0) fail("a rank has not come within 10 s");
    }
  }
  // Stamps of each rank, after one launch on all.
  std::vector<std::vector<uint64_t>> run(cudaGraphExec_t (&graphs)[ranks]) {
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      CHECK(cudaGraphLaunch(graphs[rank], of[rank].stream));
    }
    meet();
    std::vector<std::vector<uint64_t>> found;
    for (int rank = 0; rank < ranks; ++rank) found.push_back(read(rank, of[rank].stamps, 4 * turns));
    return found;
  }
  void end(cudaGraphExec_t (&graphs)[ranks]) {
    for (cudaGraphExec_t graph : graphs) CHECK(cudaGraphExecDestroy(graph));
  }
};

using Stamps = std::vector<std::vector<uint64_t>>;

// Nanoseconds between two stamps, of the latest rank.
inline double latest(const Stamps& stamps, int begin, int end) {
  double most = 0;
  for (const auto& one : stamps) most = std::max(most, double(one[end] - one[begin]));
  return most;
}
inline double quantile(std::vector<double> all, double part) {
  std::sort(all.begin(), all.end());
  return all[std::min(all.size() - 1, size_t(part * double(all.size())))];
}

// One row: kernels, what their launches take by themselves, and pairs without barriers.
inline void measure(Rig& rig, Peer& peer, const char* name, int tokens, int launches) {
  cudaGraphExec_t empty[ranks], aligned[ranks], pairs[ranks];
  rig.capture([&](int, Rank& one) {
    for (int turn = 0; turn < turns; ++turn) {
      align<<<1, 1, 0, one.stream>>>(one.gate, one.stamps + 4 * turn);
      peer.dispatch_launch.empty(one.stream);
      stamp<<<1, 1, 0, one.stream>>>(one.stamps + 4 * turn + 1);
      align<<<1, 1, 0, one.stream>>>(one.gate, one.stamps + 4 * turn + 2);
      peer.combine_launch.empty(one.stream);
      stamp<<<1, 1, 0, one.stream>>>(one.stamps + 4 * turn + 3);
    }
  }, empty);
  rig.capture([&](int rank, Rank& one) {
    for (int turn = 0; turn < turns; ++turn) {
      peer.prepare_dispatch(rank, one.stream);
      align<<<1, 1, 0, one.stream>>>(one.gate, one.stamps + 4 * turn);
      peer.dispatch(rank, one.stream);
      stamp<<<1, 1, 0, one.stream>>>(one.stamps + 4 * turn + 1);
      peer.prepare_combine(rank, one.stream);
      align<<<1, 1, 0, one.stream>>>(one.gate, one.stamps + 4 * turn + 2);
      peer.combine(rank, one.stream);
      stamp<<<1, 1, 0, one.stream>>>(one.stamps + 4 * turn + 3);
    }
  }, aligned);
  rig.capture([&](int rank, Rank& one) {
    align<<<1, 1, 0, one.stream>>>(one.gate, one.stamps);
    for (int turn = 0; turn < turns; ++turn) {
      peer.prepare_dispatch(rank, one.stream);
      peer.dispatch(rank, one.stream);
      peer.prepare_combine(rank, one.stream);
      peer.combine(rank, one.stream);
    }
    stamp<<<1, 1, 0, one.stream>>>(one.stamps + 1);
  }, pairs);
  std::vector<double> times[2], launched[2], pair;
  // The first launch is not measured.
  for (int launch = 0; launch <= launches; ++launch) {
    const Stamps without = rig.run(empty);
    for (int rank = 0; rank < ranks; ++rank) peer.poison(rank);
    const Stamps with = rig.run(aligned);
    for (int rank = 0; rank < ranks && launch % 4 == 0; ++rank) peer.verify(rank);
    for (int rank = 0; rank < ranks; ++rank) peer.poison(rank);
    const Stamps row = rig.run(pairs);
    for (int rank = 0; rank < ranks && launch % 4 == 0; ++rank) peer.verify(rank);
    if (launch == 0) continue;
    for (int turn = 0; turn < turns; ++turn) {
      for (int part = 0; part < 2; ++part) {
        const int begin = 4 * turn + 2 * part;
        launched[part].push_back(latest(without, begin, begin + 1));
        times[part].push_back(latest(with, begin, begin + 1));
      }
    }
    pair.push_back(latest(row, 0, 1) / turns);
  }
  std::printf("{\"peer\":\"%s\",\"tokens\":%d,\"bytes\":%zu,\"pair_ns\":%.0f", name, tokens, peer.bytes(),
              quantile(pair, 0.5));
  const char* parts[] = {"dispatch", "combine"};
  for (int part = 0; part < 2; ++part) {
    const double launch = quantile(launched[part], 0.5);
    std::printf(",\"%s\":{\"p50_ns\":%.0f,\"p99_ns\":%.0f,\"launch_ns\":%.0f}", parts[part],
                quantile(times[part], 0.5) - launch, quantile(times[part], 0.99) - launch, launch);
  }
  std::printf(",\"data\":\"equal\"}\n");
  std::fflush(stdout);
  rig.end(empty);
  rig.end(aligned);
  rig.end(pairs);
}

// Arguments SEED LAUNCHES TOKENS…, a row for each number of tokens.
template <class Row>
int run(int argc, char** argv, Row row) {
  if (argc < 4) fail(std::string("usage: ") + argv[0] + " SEED LAUNCHES TOKENS…");
  Rig rig;
  for (int i = 3; i < argc; ++i) row(rig, Load(std::strtoull(argv[1], nullptr, 0), std::atoi(argv[i])), std::atoi(argv[2]));
  return 0;
}
