// Litmus tests of the symmetric heap: block b is the rank of members[b]. Rank `turn` has role 0, the
// next one role 1, and so on. Everything is repeated `rounds` times; wrong[0] counts words that were
// not what a rank must see. At `data` are `words` u64 to put to, and as many to put from.
#include "members.h"
#include "warpverbs/shm.h"

using namespace wv;

WV_DEVICE u64 word_of(u32 round, u64 i) { return (u64{round} << 40) ^ (i * 0x9e3779b97f4a7c15ull); }

template <class Coop>
WV_DEVICE void fill_words(const Coop& coop, u64* words, u64 count, u32 round) {
  for (u64 i = coop.thread_rank(); i < count; i += coop.size()) {
    store<order::relaxed, scope::gpu>(words + i, word_of(round, i));
  }
}

template <class Coop>
WV_DEVICE void check_words(const Coop& coop, const u64* words, u64 count, u32 round, u64* wrong) {
  for (u64 i = coop.thread_rank(); i < count; i += coop.size()) {
    if (load<order::relaxed, scope::gpu>(words + i) != word_of(round, i)) {
      (void)fetch_add<order::relaxed, scope::gpu>(wrong, 1);
    }
  }
}

// The words and the signal are in the heap.
WV_DEVICE bool fits(const Heap& heap, u64 data, u64 words, u64 signal) {
  return data % 8 == 0 && words < heap.bytes && in_heap(heap, at_offset<u8>(heap, data), 16 * words) &&
         in_heap(heap, at_offset<u8>(heap, signal), sizeof(Signal));
}

WV_DEVICE u32 role_of(const Heap& heap, u32 turn) {
  return (heap.rank + heap.world - turn % heap.world) % heap.world;
}
WV_DEVICE u32 rank_of(const Heap& heap, u32 turn, u32 role) { return (role + turn) % heap.world; }

// Message passing. Role 0 fills its source, puts half of it, puts the other half with a signal, and
// waits for the answer. Role 1 waits for the signal, looks at all of it, and answers. Each waits on
// its own signal.
WV_SAFE_KERNEL(shm_message)(const Member* members WV_COUNT(grid_blocks), u32 turn, u32 group,
                            u64 data, u64 words, u64 signal_at, u32 rounds, u64* wrong WV_COUNT(1),
                            Status* status WV_COUNT(1)) {
  const Heap& heap = *members[block_index()].heap;
  const u32 role = role_of(heap, turn);
  if (role > 1 || !fits(heap, data, words, signal_at)) return;
  const u32 pe = rank_of(heap, turn, 1 - role);
  u64* target = at_offset<u64>(heap, data);
  u64* source = target + words;
  Signal* word = at_offset<Signal>(heap, signal_at);
  const u64 half = words / 2;
  by_members(group, [&](const auto& coop) {
    Status result;
    for (u32 round = 1; round <= rounds && result.ok(); ++round) {
      if (role == 0) {
        fill_words(coop, source, words, round);
        result = put(coop, heap, target, source, half * 8, pe, unsignalled);
        if (result.ok()) {
          result = put_signal(coop, heap, target + half, source + half, (words - half) * 8, word,
                              SignalAdd{1}, pe);
        }
        if (result.ok()) result = wait_signal(coop, heap, word, compare::ge, round, {}, pe);
      } else {
        result = wait_signal(coop, heap, word, compare::ge, round, {}, pe);
        if (result.ok()) check_words(coop, target, words, round, wrong);
        if (result.ok()) result = signal(coop, heap, word, SignalAdd{1}, pe);
      }
    }
    keep_first(status, result);
  });
}

// Transitivity. Role 0 puts to role 2, makes sure, and signals role 1, which waits and signals role
// 2. That one waits, must see what role 0 put, and signals role 0 for the next round.
WV_SAFE_KERNEL(shm_chain)(const Member* members WV_COUNT(grid_blocks), u32 turn, u32 group, u64 data,
                          u64 words, u64 signal_at, u32 rounds, u64* wrong WV_COUNT(1),
                          Status* status WV_COUNT(1)) {
  const Heap& heap = *members[block_index()].heap;
  const u32 role = role_of(heap, turn);
  if (role > 2 || heap.world < 3 || !fits(heap, data, words, signal_at)) return;
  u64* target = at_offset<u64>(heap, data);
  Signal* word = at_offset<Signal>(heap, signal_at);
  const u32 last = rank_of(heap, turn, 2), next = rank_of(heap, turn, (role + 1) % 3);
  by_members(group, [&](const auto& coop) {
    Status result;
    for (u32 round = 1; round <= rounds && result.ok(); ++round) {
      if (role == 0) {
        fill_words(coop, target + words, words, round);
        result = put(coop, heap, target, target + words, words * 8, last);
        if (result.ok()) result = quiet(coop, heap, last);
      } else {
        result = wait_signal(coop, heap, word, compare::ge, round);
        if (role == 2 && result.ok()) check_words(coop, target, words, round, wrong);
      }
      if (result.ok()) result = signal(coop, heap, word, SignalAdd{1}, next);
      // Of the last round as well: no signal is under way when the kernel ends.
      if (role == 0 && result.ok()) result = wait_signal(coop, heap, word, compare::ge, round);
    }
    keep_first(status, result);
  });
}

// One fence, many signals: role 0 puts to every other rank and signals all of them at once; they
// wait, and look at what came.
WV_SAFE_KERNEL(shm_fan)(const Member* members WV_COUNT(grid_blocks), u32 turn, u32 group, u64 data,
                        u64 words, u64 signal_at, u64* wrong WV_COUNT(1),
                        Status* status WV_COUNT(1)) {
  const Heap& heap = *members[block_index()].heap;
  if (!fits(heap, data, words, signal_at)) return;
  u64* target = at_offset<u64>(heap, data);
  Signal* word = at_offset<Signal>(heap, signal_at);
  const u32 others = heap.world - 1;
  by_members(group, [&](const auto& coop) {
    Status result;
    if (role_of(heap, turn) == 0) {
      fill_words(coop, target + words, words, 1);
      for (u32 i = 0; i < others && result.ok(); ++i) {
        const u32 pe = rank_of(heap, turn, 1 + i);
        result = put(coop, heap, target, target + words, words * 8, pe, unsignalled);
      }
      if (result.ok()) {
        result = signal_each(coop, heap, others, [&](u32 i) {
          return SignalTo{word, rank_of(heap, turn, 1 + i)};
        }, SignalAdd{1});
      }
    } else {
      result = wait_signal(coop, heap, word, compare::ge, 1, {}, rank_of(heap, turn, 0));
      if (result.ok()) check_words(coop, target, words, 1, wrong);
    }
    keep_first(status, result);
  });
}
