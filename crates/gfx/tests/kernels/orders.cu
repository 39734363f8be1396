// Litmus tests of the orders in arch/hip.h, for the emulator's lazy mode. Blocks are parties. Each adds to wrong[0]
// when it sees what an order forbids, or has looked too often. Words that are shared lie in lines of their own.
#include "warpverbs/impl/publish.h"

using namespace wv;

constexpr u32 rounds = 12, apart = 16;

WV_DEVICE void complain(u64* wrong) { (void)fetch_add<order::relaxed, scope::system>(wrong, 1); }

// Old copies of the words come into the caches. Of gfx90a only the L1 may be stale, which scalar loads do not fill, so
// there the address must not be one for all lanes.
WV_DEVICE u64 warm(const u64* data) {
#ifdef __gfx90a__
  const u32 own = thread_index() % apart;
#else
  const u32 own = 0;
#endif
  u64 sum = 0;
  WV_ROLLED for (u32 i = 0; i < rounds; ++i) sum += data[i * apart + own];
  return sum;
}

template <class Sees>
WV_DEVICE void until(u64* wrong, Sees sees) {
  WV_ROLLED for (u32 looks = 0; looks < 3000; ++looks) {
    if (sees()) return;
    pause(32);
  }
  complain(wrong);
}

// Message passing. Block 0 writes a word and sends its number, block 1 waits for that and looks at the word.
template <class Send, class See>
WV_DEVICE void message(u64* data, u64* flag, u64* wrong, Send send, See see) {
  if (block_index() != 0 && warm(data) == ~u64{0}) complain(wrong);
  WV_ROLLED for (u32 round = 1; round <= rounds; ++round) {
    u64* word = data + (round - 1) * apart;
    if (block_index() == 0) {
      *word = round;
      send(flag, round);
    } else {
      until(wrong, [&] { return see(flag) >= round; });
      if (*word != round) complain(wrong);
    }
  }
}
#define MESSAGE(name, SEND, SEE)                             \
  WV_KERNEL(name)(u64* data, u64* flag, u64* wrong) {        \
    message(data, flag, wrong, [](u64* p, u64 v) { (void)v; SEND; }, [](u64* p) { return SEE; }); \
  }
#define STORE(o, s) (store<order::o, scope::s>(p, v))
#define LOAD(o, s) (load<order::o, scope::s>(p))
// clang-format off
MESSAGE(store_release_gpu, STORE(release, gpu), LOAD(acquire, gpu))
MESSAGE(store_release_sys, STORE(release, system), LOAD(acquire, system))
MESSAGE(fence_release_gpu, (fence<order::release, scope::gpu>()); STORE(relaxed, gpu), LOAD(acquire, gpu))
MESSAGE(fence_release_sys, (fence<order::release, scope::system>()); STORE(relaxed, system), LOAD(acquire, system))
MESSAGE(load16_acquire_gpu, (store<order::release, scope::gpu>(p + 1, v)), (load16<order::acquire, scope::gpu>(p).hi))
MESSAGE(add_release_sys, (increase<order::release, scope::system>(p, 1)), LOAD(acquire, system))
MESSAGE(max_release_gpu, (raise<order::release, scope::gpu>(p, v)), LOAD(acquire, gpu))
MESSAGE(or_release_gpu, ((void)fetch_or<order::release, scope::gpu>(p, u64{1} << v)), popcount(LOAD(acquire, gpu)))
MESSAGE(or_acquire_gpu, STORE(release, gpu), (fetch_or<order::acquire, scope::gpu>(p, 0)))
// clang-format on

WV_KERNEL(fence_acquire_gpu)(u64* data, u64* flag, u64* wrong) {
  message(data, flag, wrong, [](u64* p, u64 v) { STORE(release, gpu); },
          [](u64* p) {
            const u64 seen = LOAD(relaxed, gpu);
            fence<order::acquire, scope::gpu>();
            return seen;
          });
}

// Each flag is looked at once: in a loop, what its last turn has read would do, which an invalidation is behind.
WV_KERNEL(load_acquire_once_gpu)(u64* data, u64* flag, u64* wrong) {
  if (block_index() != 0 && warm(data) == ~u64{0}) complain(wrong);
  WV_ROLLED for (u32 at = 0; at < rounds * apart; at += apart) {
    if (block_index() == 0) {
      data[at] = at + 2;
      store<order::release, scope::gpu>(flag + at, 1);
    } else if (load<order::acquire, scope::gpu>(flag + at) != 0 && data[at] != at + 2) {
      complain(wrong);
    }
  }
}

// A lock by compare-and-swap, and two words that are equal whenever it is free.
WV_KERNEL(lock_by_cas)(u64* data, u64* flag, u64* wrong) {
  u64 seen = 0;
  WV_ROLLED for (u32 round = 0; round < rounds; ++round) {
    until(wrong, [&] { return compare_exchange<order::acquire, scope::gpu>(flag, 0, 1) == 0; });
    const u64 first = data[0], second = data[apart];
    if (first != second || first < seen) complain(wrong);
    seen = first + 1;
    data[0] = first + 1;
    data[apart] = second + 1;
    store<order::release, scope::gpu>(flag, 0);
  }
}

// Each of two blocks writes its word, then says so; the second one sees both words.
template <class Arrive>
WV_DEVICE void both(u64* data, u64* flag, u64* wrong, Arrive arrive) {
  if (warm(data) == ~u64{0}) complain(wrong);
  WV_ROLLED for (u32 round = 0; round < rounds / 2; ++round) {
    u64* words = data + 2 * apart * round;
    words[apart * (block_index() & 1)] = 1;
    if (arrive(flag + apart * round) && words[0] + words[apart] != 2) complain(wrong);
  }
}
#define BOTH(name, ARRIVE)                                            \
  WV_KERNEL(name)(u64* data, u64* flag, u64* wrong) {                 \
    both(data, flag, wrong, [](u64* p) { return (ARRIVE) != 0; });    \
  }
BOTH(add_acq_rel_gpu, (fetch_add<order::acq_rel, scope::gpu>(p, 1)))
BOTH(exchange_acq_rel_gpu, (exchange<order::acq_rel, scope::gpu>(p, 1)))
BOTH(cas_acq_rel_sys, (compare_exchange<order::acq_rel, scope::system>(p, 0, 1)))

// Each of two blocks writes its word, and looks at the other's behind a fence: one of them sees it.
WV_KERNEL(fence_seq_cst_sys)(u64* data, u64* flag, u64* wrong) {
  if (warm(data) == ~u64{0}) complain(wrong);
  WV_ROLLED for (u32 round = 0; round < rounds / 2; ++round) {
    u64* words = data + 2 * apart * round;
    words[apart * (block_index() & 1)] = 1;
    fence<order::seq_cst, scope::system>();
    if (words[apart * (block_index() + 1 & 1)] != 0) continue;
    if (fetch_add<order::relaxed, scope::system>(flag + apart * round, 1) != 0) complain(wrong);
  }
}

// A wave writes, and another one of the block releases, for a reader past all caches, as a NIC is one.
WV_KERNEL(block_then_release_sys)(u64* data, u64* flag, u64* wrong) {
  WV_ROLLED for (u32 round = 1; round <= rounds; ++round) {
    u64* word = data + (round - 1) * apart;
    if (block_index() == 0) {
      if (thread_index() == 64) *word = round;
      sync_block();
      if (thread_index() == 0) store<order::release, scope::system>(flag, round);
    } else if (thread_index() == 0) {
      until(wrong, [&] { return load<order::relaxed, scope::system>(flag) >= round; });
      if (load<order::relaxed, scope::system>(word) != round) complain(wrong);
    }
  }
}

// A wave acquires, and the others of its block see the same behind the barrier; and the other way round.
WV_KERNEL(acquire_then_block)(u64* data, u64* flag, u64* wrong) {
  if (block_index() != 0 && warm(data) == ~u64{0}) complain(wrong);
  WV_ROLLED for (u32 round = 1; round <= rounds; ++round) {
    u64* word = data + (round - 1) * apart;
    if (block_index() == 0) {
      if (thread_index() == 0) {
        *word = round;
        store<order::release, scope::gpu>(flag, round);
      }
    } else {
      if (thread_index() == 0) {
        until(wrong, [&] { return load<order::acquire, scope::gpu>(flag) >= round; });
      }
      sync_block();
      if (thread_index() == 64 && *word != round) complain(wrong);
      sync_block();
    }
  }
}

// Lanes write, the leader flips a bit, a combiner sees it and rings, a NIC looks.
WV_KERNEL(wqe_bit_doorbell)(u64* data, u64* flag, u64* wrong) {
  u64* doorbell = flag + apart;
  WV_ROLLED for (u32 round = 1; round <= rounds; ++round) {
    vec16* wqe = reinterpret_cast<vec16*>(data + (round - 1) * apart);
    if (block_index() == 0) {
      if (lane_id() < 4) write16(wqe + lane_id(), vec16{round, round});
      sync_warp(whole_warp());
      if (lane_id() == 0) flip<order::release, scope::gpu>(flag, u64{1} << round);
    } else if (block_index() == 1) {
      const u64 bit = u64{1} << round;
      if (lane_id() == 0) {
        until(wrong, [&] { return (load16<order::acquire, scope::gpu>(flag).lo & bit) != 0; });
        store<order::release, scope::system>(doorbell, round);
      }
    } else if (lane_id() < 8) {
      until(wrong, [&] { return load<order::relaxed, scope::system>(doorbell) >= round; });
      const u64* words = reinterpret_cast<const u64*>(wqe);
      if (load<order::relaxed, scope::system>(words + lane_id()) != round) complain(wrong);
    }
  }
}
