// Litmus tests of the symmetric heap: ranks are blocks of one launch, so that a seed may interleave
// them in any way. Everything is repeated `rounds` times; wrong[0] counts words that were not what
// a rank must see.
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

// `words` u64 at `data`, as many behind them as source, and the signal.
WV_DEVICE bool fits(const Heap& heap, u64 data, u64 words, u64 signal) {
  return data % 8 == 0 && words < heap.bytes && in_heap(heap, at_offset<u8>(heap, data), 16 * words) &&
         in_heap(heap, at_offset<u8>(heap, signal), sizeof(Signal));
}

// Message passing. Block 0 is rank `a.rank`: it fills its source, puts half of it, puts the other
// half with a signal, and waits for the answer. Block 1 is rank `b.rank`: it waits for the signal,
// looks at all of it, and answers. Each waits on its own signal.
WV_SAFE_KERNEL(shm_message)(const Heap* a, const Heap* b, u32 group, u64 data, u64 words,
                            u64 signal_at, u32 rounds, u64* wrong WV_COUNT(1),
                            Status* status WV_COUNT(1)) {
  if (block_index() > 1 || !fits(*a, data, words, signal_at)) return;
  const Heap& heap = block_index() == 0 ? *a : *b;
  const u32 pe = block_index() == 0 ? b->rank : a->rank;
  u64* target = at_offset<u64>(heap, data);
  u64* source = target + words;
  Signal* word = at_offset<Signal>(heap, signal_at);
  const u64 half = words / 2;
  by_members(group, [&](const auto& coop) {
    Status result;
    for (u32 round = 1; round <= rounds && result.ok(); ++round) {
      if (block_index() == 0) {
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

// Transitivity. Block 0 puts to c, makes sure, and signals b; block 1 waits and signals c; block 2
// waits, must see what block 0 put, and signals a for the next round.
WV_SAFE_KERNEL(shm_chain)(const Heap* a, const Heap* b, const Heap* c, u32 group, u64 data,
                          u64 words, u64 signal_at, u32 rounds, u64* wrong WV_COUNT(1),
                          Status* status WV_COUNT(1)) {
  if (block_index() > 2 || !fits(*a, data, words, signal_at)) return;
  const u32 role = block_index();
  const Heap& heap = role == 0 ? *a : role == 1 ? *b : *c;
  u64* target = at_offset<u64>(heap, data);
  Signal* word = at_offset<Signal>(heap, signal_at);
  const u32 next = role == 0 ? b->rank : role == 1 ? c->rank : a->rank;
  by_members(group, [&](const auto& coop) {
    Status result;
    for (u32 round = 1; round <= rounds && result.ok(); ++round) {
      if (role == 0) {
        if (round > 1) result = wait_signal(coop, heap, word, compare::ge, round - 1);
        fill_words(coop, target + words, words, round);
        if (result.ok()) result = put(coop, heap, target, target + words, words * 8, c->rank);
        if (result.ok()) result = quiet(coop, heap, c->rank);
      } else {
        result = wait_signal(coop, heap, word, compare::ge, round);
        if (role == 2 && result.ok()) check_words(coop, target, words, round, wrong);
      }
      if (result.ok()) result = signal(coop, heap, word, SignalAdd{1}, next);
    }
    keep_first(status, result);
  });
}

// One fence, many signals: block 0 puts to every other rank and signals all of them at once;
// blocks 1 and 2 wait, and look at what came.
WV_SAFE_KERNEL(shm_fan)(const Heap* a, const Heap* b, const Heap* c, u32 group, u64 data, u64 words,
                        u64 signal_at, u64* wrong WV_COUNT(1), Status* status WV_COUNT(1)) {
  if (block_index() > 2 || !fits(*a, data, words, signal_at)) return;
  const u32 role = block_index();
  const Heap& heap = role == 0 ? *a : role == 1 ? *b : *c;
  u64* target = at_offset<u64>(heap, data);
  Signal* word = at_offset<Signal>(heap, signal_at);
  by_members(group, [&](const auto& coop) {
    Status result;
    if (role == 0) {
      fill_words(coop, target + words, words, 1);
      for (u32 i = 0; i < 2 && result.ok(); ++i) {
        const u32 pe = i == 0 ? b->rank : c->rank;
        result = put(coop, heap, target, target + words, words * 8, pe, unsignalled);
      }
      if (result.ok()) {
        result = signal_each(coop, heap, 2, [&](u32 i) {
          return SignalTo{word, i == 0 ? b->rank : c->rank};
        }, SignalAdd{1});
      }
    } else {
      result = wait_signal(coop, heap, word, compare::ge, 1, {}, a->rank);
      if (result.ok()) check_words(coop, target, words, 1, wrong);
    }
    keep_first(status, result);
  });
}
