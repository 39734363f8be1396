// HIP's device interface as far as MORI's RDMA kernels use it, for a host's compiler: a thread is a lane, of
// a wave of its own or of one that it shares with others. Those meet where they vote and shuffle, so they must
// all come there. Between two meetings one runs after the other: the last, which announces for all, finds what
// the others have stored, as where all go in step.
#pragma once
#include <hip/hip_runtime_api.h>
#include <sched.h>
#include <stdint.h>

#include <atomic>
#include <barrier>

#define warpSize 8

struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline thread_local uint3 threadIdx{0, 0, 0};
inline constexpr uint3 blockIdx{0, 0, 0}, blockDim{warpSize, 1, 1}, gridDim{1, 1, 1};

// Lanes that go together.
struct Wave {
    std::barrier<> meeting{warpSize};
    std::atomic<uint64_t> told[warpSize];
    std::atomic<unsigned> turn{0};

    void await_turn() {
        while (turn != threadIdx.x) sched_yield();
    }
    void end_turn() { turn = threadIdx.x + 1; }
    // The values of all lanes at this place.
    template <typename Use>
    auto exchange(uint64_t value, Use use) {
        told[threadIdx.x] = value;
        end_turn();
        meeting.arrive_and_wait();
        const auto result = use(told);
        meeting.arrive_and_wait();
        if (threadIdx.x == 0) turn = 0;
        await_turn();
        return result;
    }
};
// Null: the lane is alone.
inline thread_local Wave* wave = nullptr;

inline uint64_t __ballot(int vote) {
    if (!wave) return static_cast<uint64_t>(vote != 0) << threadIdx.x;
    return wave->exchange(vote != 0, [](const auto& told) {
        uint64_t votes = 0;
        for (unsigned lane = 0; lane < warpSize; ++lane) votes |= told[lane].load() << lane;
        return votes;
    });
}
inline uint64_t __lanemask_lt() { return (uint64_t{1} << threadIdx.x) - 1; }
inline int __popcll(uint64_t bits) { return __builtin_popcountll(bits); }
inline int __clzll(uint64_t bits) { return bits ? __builtin_clzll(bits) : 64; }
inline int __ffsll(uint64_t bits) { return __builtin_ffsll(static_cast<long long>(bits)); }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
template <typename T>
T __shfl(T value, int lane) {
    if (!wave) return value;
    const auto tell = static_cast<uint64_t>(value);
    return wave->exchange(tell, [lane](const auto& told) { return static_cast<T>(told[lane].load()); });
}

// Waits are loops around loads: with more threads than cores the one that is waited for needs a turn.
inline void give_turns() {
    thread_local unsigned loads;
    if (++loads % 256 == 0) sched_yield();
}

#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#define __hip_atomic_load(at, order, scope) (give_turns(), __atomic_load_n(at, order))
#define __hip_atomic_store(at, value, order, scope) __atomic_store_n(at, value, order)
#define __hip_atomic_fetch_add(at, value, order, scope) __atomic_fetch_add(at, value, order)
#define __hip_atomic_fetch_max(at, value, order, scope) fetch_max(at, value)
#define __hip_atomic_compare_exchange_strong(at, expected, value, success, failure, scope) \
    (give_turns(), __atomic_compare_exchange_n(at, expected, value, false, success, failure))

template <typename T>
T fetch_max(T* at, T value) {
    T found = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (found < value && !__atomic_compare_exchange_n(at, &found, value, false,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return found;
}
template <typename T, typename U>
T atomicAdd(T* at, U value) {
    give_turns();
    return __atomic_fetch_add(at, static_cast<T>(value), __ATOMIC_RELAXED);
}
inline uint32_t atomicCAS(uint32_t* at, uint32_t expected, uint32_t value) {
    give_turns();
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
inline uint32_t atomicExch(uint32_t* at, uint32_t value) {
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
