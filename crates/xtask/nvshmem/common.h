// Of the programs that run NVSHMEM: two processes that meet by a file, their checks, and a GPU's clock.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

__device__ inline uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

[[noreturn]] inline void fail(int rank, const char* what, const char* why) {
  std::fprintf(stderr, "rank %d: %s: %s\n", rank, what, why);
  // Without what NVSHMEM does at exit, which would wait for the other rank.
  std::_Exit(1);
}

// The rank that messages name.
inline int rank_ = 0;

inline void require(bool holds, const char* what) {
  if (!holds) fail(rank_, "not so", what);
}

inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) fail(rank_, call, cudaGetErrorString(code));
}
#define CHECK(call) check(call, #call)

// Says what comes next: what does not end is what was said last.
inline void step(const char* what) { std::fprintf(stderr, "rank %d: %s\n", rank_, what); }

inline void write_id(const char* file, const nvshmemx_uniqueid_t& id) {
  const std::string part = std::string(file) + ".part";
  std::FILE* out = std::fopen(part.c_str(), "wb");
  if (out == nullptr || std::fwrite(&id, sizeof id, 1, out) != 1) fail(0, file, "cannot be written");
  std::fclose(out);
  std::rename(part.c_str(), file);
}

inline void read_id(const char* file, nvshmemx_uniqueid_t* id) {
  for (int turn = 0; turn < 6000; ++turn) {
    if (std::FILE* in = std::fopen(file, "rb")) {
      const size_t read = std::fread(id, sizeof *id, 1, in);
      std::fclose(in);
      if (read == 1) return;
    }
    usleep(10000);
  }
  fail(1, file, "rank 0 has left no unique id there after a minute");
}

// Starts NVSHMEM as one of two ranks, on a GPU of its own if there are two; `file` carries the unique id
// from rank 0 to rank 1.
inline void start_nvshmem(int rank, const char* file) {
  int gpus = 0;
  CHECK(cudaGetDeviceCount(&gpus));
  CHECK(cudaSetDevice(rank % gpus));
  CHECK(cudaFree(nullptr));
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  if (rank != 0) {
    read_id(file, &id);
  } else {
    if (nvshmemx_get_uniqueid(&id) != 0) fail(0, "nvshmemx_get_uniqueid", "failed");
    write_id(file, id);
  }
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  nvshmemx_set_attr_uniqueid_args(rank, 2, &id, &attributes);
  if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0) {
    fail(rank, "nvshmemx_init_attr", "failed");
  }
}
