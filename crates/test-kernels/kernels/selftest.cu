// The duties of every device: identifiers, collectives, divergence, barriers, shared memory, atomics.
// tests/it/selftest.rs runs these on host SIMT and on GPUs.
#include "warpverbs/impl/mlx5.h"

using namespace wv;

// out[4 * thread in grid ..]: thread, block, lane, warp; then threads per block and blocks at the end.
WV_SAFE_KERNEL(identify)(u32* out WV_COUNT(4 * grid_threads + 2)) {
  u32* row = out + 4 * global_thread();
  row[0] = thread_index();
  row[1] = block_index();
  row[2] = lane_id();
  row[3] = warp_index();
  if (global_thread() == 0) {
    u32* tail = out + 4 * u64{block_size()} * grid_size();
    tail[0] = block_size();
    tail[1] = grid_size();
  }
}

// out[4 * thread ..]: the next lane's value, lanes with an odd value, lanes with an equal value
// modulo 3, sum over the warp. Warps may be partial.
WV_SAFE_KERNEL(collect)(u64* out WV_COUNT(4 * grid_threads)) {
  const lane_mask all = whole_warp();
  const u64 value = 1000 + global_thread();
  u64* row = out + 4 * global_thread();
  row[0] = shfl(all, value, (lane_id() + 1) % popcount(all));
  row[1] = ballot(all, value % 2 == 1);
  row[2] = match_any(all, value % 3);
  u64 sum = 0;
  for (u32 lane = 0; lane < popcount(all); ++lane) sum += shfl(all, value, lane);
  sync_warp(all);
  row[3] = sum;
}

// Each lane of one warp writes two WQEBBs into a send queue of 256, at `base` and behind. Word w of the
// WQEBB at an index is 16 * index + w.
WV_SAFE_KERNEL(fill_ring)(u8* ring WV_COUNT(16384), u64 base, u32 together) {
  Qp qp{};
  qp.sq = reinterpret_cast<u64>(ring);
  qp.log_sq = 8;
  const impl::SendQueue q(qp);
  const impl::SendRing<mlx5::Nic> out{q, together != 0, 2};
  for (u32 i = 0; i < 2; ++i) {
    const u64 index = base + 2 * u64{lane_id()} + i;
    impl::Wqebb wqebb;
    for (u32 w = 0; w < 16; ++w) wqebb.seg[w / 4].w[w % 4] = static_cast<u32>(16 * index + w);
    impl::put_wqebb(out, index, wqebb);
  }
}

// Lanes part and meet in groups of whoever is there; each group's first lane adds the group's size
// for its branch. counts: even lanes, odd lanes; groups: number of groups, for information.
WV_SAFE_KERNEL(diverge)(u64* counts WV_COUNT(2), u64* groups WV_COUNT(1), u32 rounds) {
  for (u32 round = 0; round < rounds; ++round) {
    const u32 branch = (lane_id() + round) % 2;
    if (branch == 0) {
      const lane_mask here = active_mask(WV_SITE);
      if (rank_in(here) == 0) {
        fetch_add<order::relaxed, scope::gpu>(counts, popcount(here));
        fetch_add<order::relaxed, scope::gpu>(groups, 1);
      }
      sync_warp(here);
    } else {
      with_group(lane_id() % 4, WV_SITE, [&](lane_mask group) {
        if (rank_in(group) == 0) {
          fetch_add<order::relaxed, scope::gpu>(counts + 1, popcount(group));
          fetch_add<order::relaxed, scope::gpu>(groups, 1);
        }
        return group;
      });
    }
  }
}

// A tree sum in shared memory, `rounds` times over; out[block] is wrong if any barrier leaks.
WV_SAFE_KERNEL(reduce)(u64* out WV_COUNT(grid_blocks), u32 rounds) {
  using Cells = u64[1024];
  WV_SHARED(Cells, cells);
  u64 total = 0;
  for (u32 round = 0; round < rounds; ++round) {
    cells[thread_index()] = global_thread() + round;
    sync_block();
    for (u32 width = 512; width > 0; width /= 2) {
      const u32 other = thread_index() + width;
      u64 sum = cells[thread_index()];
      if (thread_index() < width && other < block_size()) sum += cells[other];
      sync_block();
      cells[thread_index()] = sum;
      sync_block();
    }
    total += cells[0];
    sync_block();
  }
  if (thread_index() == 0) out[block_index()] = total;
}

// Every read-modify-write there is, `rounds` times by every thread. cells: sum, xor, or, max, count
// by compare-and-swap, count under a lock taken by exchange, 32-bit sum.
WV_SAFE_KERNEL(atomics)(u64* cells WV_COUNT(7), u32* lock WV_COUNT(1), u32 rounds) {
  for (u32 round = 0; round < rounds; ++round) {
    const u64 id = global_thread();
    fetch_add<order::relaxed, scope::gpu>(cells, id);
    fetch_xor<order::relaxed, scope::gpu>(cells + 1, id);
    fetch_or<order::relaxed, scope::gpu>(cells + 2, id);
    fetch_max<order::relaxed, scope::gpu>(cells + 3, id);
    u64 seen = load<order::relaxed, scope::gpu>(cells + 4);
    for (;;) {
      const u64 was = compare_exchange<order::relaxed, scope::gpu>(cells + 4, seen, seen + 1);
      if (was == seen) break;
      seen = was;
    }
    // Taken and given back in one turn: lanes in lockstep that got it must not wait for the others.
    repeat(0, 0, WV_SITE, [&](bool) {
      if (exchange<order::acquire, scope::gpu>(lock, 1) != 0) {
        pause(200);
        return false;
      }
      const u64 count = load<order::relaxed, scope::gpu>(cells + 5);
      store<order::relaxed, scope::gpu>(cells + 5, count + 1);
      store<order::release, scope::gpu>(lock, 0);
      return true;
    });
    fetch_add<order::relaxed, scope::gpu>(reinterpret_cast<u32*>(cells + 6), 3);
  }
}

// A token goes through all threads in order; `data` is handed on with it. *late counts threads that
// did not see it within `patience` ns.
WV_SAFE_KERNEL(relay)(u64* token WV_COUNT(1), u64* data WV_COUNT(1), u32* late WV_COUNT(1),
                      u64 patience) {
  const u64 id = global_thread();
  const u64 start = now_ns();
  // Lanes leave the loop together, so none that had the token waits for those that have not.
  bool waits = true;
  while (ballot(whole_warp(), waits) != 0) {
    if (!waits) continue;
    if (load<order::acquire, scope::gpu>(token) == id) {
      *data += id;
      store<order::release, scope::gpu>(token, id + 1);
      waits = false;
    } else if (now_ns() - start > patience) {
      fetch_add<order::relaxed, scope::gpu>(late, 1);
      waits = false;
    } else {
      pause(100);
    }
  }
}

// Counts without atomics: the result tells how turns were taken.
WV_SAFE_KERNEL(lose_updates)(u64* count WV_COUNT(1), u32 rounds) {
  for (u32 round = 0; round < rounds; ++round) {
    const u64 seen = load<order::relaxed, scope::gpu>(count);
    store<order::relaxed, scope::gpu>(count, seen + 1);
  }
}

// Thread 0 writes pairs of equal halves, the others count pairs that they saw torn.
WV_SAFE_KERNEL(tear)(vec16* pair WV_COUNT(1), u64* torn WV_COUNT(1), u32 rounds) {
  for (u32 round = 1; round <= rounds; ++round) {
    if (global_thread() == 0) {
      store16<scope::gpu>(pair, vec16{round, round});
    } else {
      const vec16 seen = load16<scope::gpu>(pair);
      if (seen.lo != seen.hi) fetch_add<order::relaxed, scope::gpu>(torn, 1);
    }
  }
}

// Waits until *flag, which the host or another kernel raises, and answers.
WV_SAFE_KERNEL(answer)(u64* flag WV_COUNT(1), u64* reply WV_COUNT(1), u64 value) {
  while (load<order::acquire, scope::system>(flag) != value) pause(1000);
  store<order::release, scope::system>(reply, value + 1);
}

// Cost of what the scheduler does, in memory operations of one thread.
WV_SAFE_KERNEL(churn)(u64* cell WV_COUNT(grid_threads), u32 rounds, u32 pause_every) {
  for (u32 round = 1; round <= rounds; ++round) {
    fetch_add<order::relaxed, scope::gpu>(cell + global_thread(), 1);
    if (pause_every != 0 && round % pause_every == 0) pause(0);
  }
}
