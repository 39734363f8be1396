// Kernels for the GPU tests and the probe. Plain CUDA, so that they test the driver side alone.
using u32 = unsigned int;
using u64 = unsigned long long;

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

// Each block reports in `started`, then holds its threads until `*stop` or for `limit_ns`.
// Two blocks of 1024 threads take every thread slot of a multiprocessor.
extern "C" __global__ void __launch_bounds__(1024, 2)
spin(u64* started, const u64* stop, u64 limit_ns) {
    u64 begin = now_ns();
    // One thread looks, and seldom: more would fill the bus with reads of host memory.
    if (threadIdx.x == 0) {
        store_sys(started + blockIdx.x, 1);
        while (load_sys(stop) == 0 && now_ns() - begin < limit_ns) __nanosleep(20000);
    }
    __syncthreads();
}

extern "C" __global__ void add_one(u32* words, u32 count) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) words[i] += 1;
}

// Answers 1, 2, … `rounds` in `ping` by the same value in `pong`.
extern "C" __global__ void echo(const u64* ping, u64* pong, u64 rounds, u64 limit_ns) {
    u64 begin = now_ns();
    for (u64 i = 1; i <= rounds; ++i) {
        while (load_sys(ping) < i)
            if (now_ns() - begin > limit_ns) return;
        store_sys(pong, i);
    }
}

extern "C" __global__ void fail() { asm volatile("trap;"); }
