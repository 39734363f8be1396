// Kernels of the examples on the symmetric heap: one block of each rank. The first bad wv::Status
// stays in *status. Places are offsets; signals and team blocks are zero before the first launch.
#include "warpverbs/barrier.h"

using namespace wv;

// Puts `bytes` to the next rank, signals, and waits for those of the last one.
WV_SAFE_KERNEL(shm_ring)(const Heap* heap, u64 to, u64 from, u64 bytes, u64 signal, u64 round,
                         Status* status WV_COUNT(1)) {
  if (block_index() != 0) return;
  const u32 next = (heap->rank + 1) % heap->world;
  const u32 last = (heap->rank + heap->world - 1) % heap->world;
  Signal* arrived = at_offset<Signal>(*heap, signal);
  Status result = put_signal(block, *heap, at_offset<u8>(*heap, to), at_offset<u8>(*heap, from),
                             bytes, arrived, SignalAdd{1}, next);
  if (result.ok()) result = wait_signal(block, *heap, arrived, compare::ge, round, {}, last);
  // The source may be written again.
  if (result.ok()) result = quiet(block, *heap, next);
  keep_first(status, result);
}

// `rounds` times: writes the round's number into a word of every rank, at `words` by its own rank,
// meets all of them, and looks at what they wrote. wrong[0] counts words that are not there.
WV_SAFE_KERNEL(shm_rounds)(const Heap* heap, u64 words, u64 team_block, u32 rounds,
                           u64* wrong WV_COUNT(1), Status* status WV_COUNT(1)) {
  u64* row = at_offset<u64>(*heap, words);
  if (block_index() != 0 || words % 8 != 0 || !in_heap(*heap, row, u64{heap->world} * 8)) return;
  const Team team{team_block, 0, 1, heap->world, 0};
  Status result;
  for (u64 round = 1; round <= rounds && result.ok(); ++round) {
    for (u32 pe = 0; pe < heap->world && result.ok(); ++pe) {
      result = put_value(block, *heap, row + heap->rank, round, pe);
    }
    if (result.ok()) result = barrier(block, *heap, team);
    for (u32 pe = thread_index(); pe < heap->world && result.ok(); pe += block_size()) {
      if (load<order::relaxed, scope::gpu>(row + pe) < round) {
        (void)fetch_add<order::relaxed, scope::gpu>(wrong, 1);
      }
    }
    // Nobody writes the next round's number before all have looked.
    if (result.ok()) result = barrier(block, *heap, team);
  }
  keep_first(status, result);
}

// Every rank's `bytes` at `own` to all ranks, at `all` by rank.
WV_SAFE_KERNEL(shm_allgather)(const Heap* heap, u64 all, u64 own, u64 bytes, u64 team_block,
                              Status* status WV_COUNT(1)) {
  if (block_index() != 0) return;
  Status result;
  for (u32 i = 0; i < heap->world && result.ok(); ++i) {
    // Everybody begins with its neighbour.
    const u32 pe = static_cast<u32>((u64{heap->rank} + i) % heap->world);
    result = put(block, *heap, at_offset<u8>(*heap, all + heap->rank * bytes),
                 at_offset<u8>(*heap, own), bytes, pe, unsignalled);
  }
  const Team team{team_block, 0, 1, heap->world, 0};
  if (result.ok()) result = barrier(block, *heap, team);
  keep_first(status, result);
}

// Sums of u64 over all ranks: of words [part * rank, part * (rank + 1)) each rank gathers those of
// all others into `rows`, adds them, and puts the sums to all. `data`: part * world words, both
// summands and sums; rows: part * world words.
WV_SAFE_KERNEL(shm_allreduce)(const Heap* heap, u64 data, u64 rows, u64 part, u64 team_block,
                              Status* status WV_COUNT(1)) {
  const u64 words = part * heap->world;
  u64* own = at_offset<u64>(*heap, data);
  u64* row = at_offset<u64>(*heap, rows);
  if (block_index() != 0 || (data | rows) % 8 != 0 || part > heap->bytes / 8 ||
      !in_heap(*heap, own, words * 8) || !in_heap(*heap, row, words * 8)) {
    return;
  }
  const u32 world = heap->world;
  const Team team{team_block, 0, 1, world, 0};
  Status result;
  // To each rank its part of my words.
  for (u32 i = 0; i < world && result.ok(); ++i) {
    const u32 pe = static_cast<u32>((u64{heap->rank} + i) % world);
    result = put(block, *heap, row + part * heap->rank, own + part * pe, part * 8, pe, unsignalled);
  }
  if (result.ok()) result = barrier(block, *heap, team);
  if (result.ok()) {
    for (u64 i = thread_index(); i < part; i += block_size()) {
      u64 sum = 0;
      for (u32 pe = 0; pe < world; ++pe) sum += load<order::relaxed, scope::gpu>(row + part * pe + i);
      store<order::relaxed, scope::gpu>(own + part * heap->rank + i, sum);
    }
  }
  for (u32 i = 1; i < world && result.ok(); ++i) {
    const u32 pe = static_cast<u32>((u64{heap->rank} + i) % world);
    u64* sums = own + part * heap->rank;
    result = put(block, *heap, sums, sums, part * 8, pe, unsignalled);
  }
  if (result.ok()) result = barrier(block, *heap, team);
  keep_first(status, result);
}
