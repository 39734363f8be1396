// Kernel of the example shmem_pipeline: a chain of ranks, each of which transforms the items that it
// gets from the previous one and puts them to the next. Block b works on stream `first` + b. Places
// are offsets; signals are zero before the first launch.
#include "warpverbs/shm.h"

using namespace wv;

// Word i of item `item` of a stream as rank 0 makes it, and what every rank makes of a word.
WV_DEVICE u64 first_word(u64 stream, u64 item, u64 i) {
  return (stream << 48 ^ item << 32 ^ i) * 0x9e3779b97f4a7c15ull;
}
WV_DEVICE u64 next_word(u64 word, u32 rank) {
  const u64 mixed = (word ^ word >> 29) * 0xbf58476d1ce4e5b9ull;
  return mixed + rank;
}

// Places of one stream: two items that come, two that go, all `items` results (of the last rank).
struct Stream {
  u64* in;
  u64* out;
  u64* results;
  Signal* arrived;
  Signal* taken;
};

WV_DEVICE Stream stream_at(const Heap& heap, u64 base, u64 signals, u64 stream, u64 words, u64 items) {
  u64* in = at_offset<u64>(heap, base) + stream * (4 + items) * words;
  Signal* arrived = at_offset<Signal>(heap, signals) + 2 * stream;
  return {in, in + 2 * words, in + 4 * words, arrived, arrived + 1};
}

// Items before + 1 to before + items of the stream. Up to two of them are in flight to each rank.
WV_DEVICE Status pipeline(const Heap& heap, const Stream& s, u64 stream, u64 words, u64 items,
                          u64 before) {
  const bool is_first = heap.rank == 0, is_last = heap.rank + 1 == heap.world;
  const u32 from = heap.rank - 1, to = heap.rank + 1;
  Status status;
  for (u64 n = 1; n <= items && status.ok(); ++n) {
    const u64* in = s.in + n % 2 * words;
    u64* out = is_last ? s.results + (n - 1) * words : s.out + n % 2 * words;
    if (!is_first) status = wait_signal(block, heap, s.arrived, compare::ge, before + n, {}, from);
    // The next rank has taken the item that was in these places.
    if (status.ok() && !is_last && n > 2) {
      status = wait_signal(block, heap, s.taken, compare::ge, before + n - 2, {}, to);
    }
    if (!status.ok()) break;
    for (u64 i = thread_index(); i < words; i += block_size()) {
      const u64 word = is_first ? first_word(stream, before + n, i)
                                : load<order::relaxed, scope::gpu>(in + i);
      store<order::relaxed, scope::gpu>(out + i, next_word(word, heap.rank));
    }
    if (!is_last) {
      status = put_signal(block, heap, s.in + n % 2 * words, out, words * 8, s.arrived,
                          SignalAdd{1}, to);
    }
    if (status.ok() && !is_first) status = signal(block, heap, s.taken, SignalAdd{1}, from);
  }
  // Nothing of this launch is under way when it ends.
  if (status.ok() && !is_last) {
    status = wait_signal(block, heap, s.taken, compare::ge, before + items, {}, to);
  }
  return status;
}

// `words` u64 of each item; `before`: items of each stream in earlier launches. base: for each of
// `streams`, 4 + items times `words`; signals: two for each. The blocks of a launch must all be
// resident if there are several: those of other ranks wait for each of them.
WV_SAFE_KERNEL(shm_pipeline)(const Heap* heap, u64 base, u64 signals, u64 streams, u64 first,
                             u64 words, u64 items, u64 before, Status* status WV_COUNT(1)) {
  const u64 stream = first + block_index();
  const u64 most = heap->bytes / 8;
  if (stream >= streams || words > most || items > most || base % 8 != 0 || signals % 16 != 0) return;
  const Stream places = stream_at(*heap, base, signals, stream, words, items);
  const u64 own = (4 + items) * words;
  if (own > most || !in_heap(*heap, reinterpret_cast<const u8*>(places.in), own * 8) ||
      !in_heap(*heap, reinterpret_cast<const u8*>(places.arrived), 2 * sizeof(Signal))) {
    keep_first(status, Status::of(outcome::bad_address));
    return;
  }
  keep_first(status, pipeline(*heap, places, stream, words, items, before));
}
