// Kernels for the GPU tests and the probe. On CUDA plain, so that they test the driver side alone.
using u32 = unsigned int;
using u64 = unsigned long long;

#if defined(__HIP__)
#include "warpverbs/arch/arch.h"

#define KERNEL(name) extern "C" __attribute__((global)) void name
#define FULL_KERNEL(name) \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, 1024))) void name
#define DEVICE __attribute__((device))

DEVICE u64 now_ns() { return wv::now_ns(); }
DEVICE u64 load_sys(const u64* p) {
    return wv::load<wv::order::acquire, wv::scope::system>(reinterpret_cast<const wv::u64*>(p));
}
DEVICE void store_sys(u64* p, u64 v) {
    wv::store<wv::order::release, wv::scope::system>(reinterpret_cast<wv::u64*>(p), v);
}
DEVICE void nap() { wv::pause(20000); }
DEVICE void together() { wv::sync_block(); }
DEVICE u32 thread() { return wv::thread_index(); }
DEVICE u32 threads() { return wv::block_size(); }
DEVICE u32 block() { return wv::block_index(); }
DEVICE void stop_here() { wv::trap(); }
#else
#define KERNEL(name) extern "C" __global__ void name
// Two blocks of 1024 threads take every thread slot of a multiprocessor.
#define FULL_KERNEL(name) extern "C" __global__ void __launch_bounds__(1024, 2) name

__device__ u64 now_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

__device__ u64 load_sys(const u64* p) {
    u64 v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

__device__ void store_sys(u64* p, u64 v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ void nap() { __nanosleep(20000); }
__device__ void together() { __syncthreads(); }
__device__ u32 thread() { return threadIdx.x; }
__device__ u32 threads() { return blockDim.x; }
__device__ u32 block() { return blockIdx.x; }
__device__ void stop_here() { asm volatile("trap;"); }
#endif

// Each block reports in `started`, then holds its threads until `*stop` or for `limit_ns`.
FULL_KERNEL(spin)(u64* started, const u64* stop, u64 limit_ns) {
    u64 begin = now_ns();
    // One thread looks, and seldom: more would fill the bus with reads of host memory.
    if (thread() == 0) {
        store_sys(started + block(), 1);
        while (load_sys(stop) == 0 && now_ns() - begin < limit_ns) nap();
    }
    together();
}

KERNEL(add_one)(u32* words, u32 count) {
    u32 i = block() * threads() + thread();
    if (i < count) words[i] += 1;
}

// Answers 1, 2, … `rounds` in `ping` by the same value in `pong`.
KERNEL(echo)(const u64* ping, u64* pong, u64 rounds, u64 limit_ns) {
    u64 begin = now_ns();
    for (u64 i = 1; i <= rounds; ++i) {
        while (load_sys(ping) < i)
            if (now_ns() - begin > limit_ns) return;
        store_sys(pong, i);
    }
}

KERNEL(fail)() { stop_here(); }
