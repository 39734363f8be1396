// Whole layers by all ranks at once, as blocks of one launch, for tests: dispatch and combine, `calls`
// times. The results of the experts are given. Rank `stops` stops before step `at` of the last call; rank `lags`
// is `lag_ns` late for each step.
#include "warpverbs/ep.h"
#include "warpverbs/fp8.h"

using namespace wv;

// A rank's channel.
struct EpMember {
  const Ep* ep;
};

// Steps of a call: nothing of it, its rows, its receiving, its results.
constexpr u32 at_counts = 1, at_rows = 2, at_results = 3;

// Says how many rows there are, and sends none. In rank-major layout that is said behind them.
WV_DEVICE Status announce_alone(const EpCall& call, const EpTokens& tokens) {
  if (call.share.index != 0 || call.ep.layout == ep_layout::rank_major) return Status{};
  impl::HeapDeadline deadline = impl::patience(call, impl::for_credit);
  Status first = impl::count_sends(call, tokens, impl::shared_tile(), tokens.count);
  const u64 to = impl::await_credits(call, deadline, first);
  impl::first_of(first, impl::announce(call, impl::plan_of(call), to));
  return first;
}

// Writes results, which the caller has as [ranks][tokens][backs][hidden], to where they go, as far as stores
// lead there.
WV_DEVICE void store_results_directly(const EpCall& call, const u16* rows, u64 capacity) {
  const Ep& ep = call.ep;
  const bool exact = ep.combine == ep_combine::exact;
  for (u32 source = 0; source < ep.ranks; ++source) {
    for (u32 slot = call.share.index; slot < rows_from(call, source); slot += call.share.count) {
      const EpRow row = row_from(call, source, slot);
      u64 number = (u64{source} * ep.tokens + slot) * ep.backs;
      for (u32 j = 0; j < (exact ? ep.top_k : 1); ++j) {
        const u32 local = impl::peek(reinterpret_cast<const u32*>(row.experts) + j) -
                          first_expert(ep, ep.rank);
        if (exact && local >= experts_of(ep, ep.rank)) continue;
        void* to = result_row(call, source, slot, j);
        if (to != nullptr && number < capacity) {
          impl::copy(block, to, rows + number * ep.hidden, u64{ep.hidden} * 2);
        }
        number += 1;
      }
    }
  }
}

// Memory of a call of one rank.
struct CallData {
  EpTokens tokens;
  EpPacked packed;
  const u16* outputs;
  u64 inputs;  // rows of `outputs`
  u16* sums;
};

// The second half of a call. `stores`: results are stored by the caller where that can be.
WV_DEVICE Status combine(const EpCall& call, const CallData& data, u32 tokens, bool stores) {
  Status first;
  if (stores) {
    store_results_directly(call, data.outputs, data.inputs);
    first = combine_send_stored(call, data.outputs, data.inputs);
  } else {
    first = combine_send(call, data.outputs, data.inputs);
  }
  impl::first_of(first, combine_recv(call, data.sums, tokens));
  return first;
}

// By call, rank and then as each part has it. tokens, local: most of any rank. given, into: u16 of a token's
// row and of a packed one; scaled: words of a token's scales. capacity: rows of a rank's packed ones, room:
// words of their scales; inputs: rows of what experts give, which lie in the heap from `in_heap_at` on if that
// is not 0. in_memory, stores: 1 if numbers of tokens are read in memory, if results are stored directly.
// absent: sets of missing and unanswered ranks.
WV_SAFE_KERNEL(ep_layers)(const EpMember* members WV_COUNT(ranks), u32 ranks, u32 blocks, u32 calls,
                          u32 stops, u32 at, u32 lags, u32 lag_ns, u64 timeout_ns, u32 hidden, u32 top_k, u32 tokens,
                          u32 local, u32 given, u32 into, u32 scaled, u32 capacity, u32 room,
                          u32 inputs, u64 in_heap_at, u32 in_memory, u32 stores,
                          const u32* counts WV_COUNT(calls * ranks),
                          const u16* rows WV_COUNT(calls * ranks * tokens * given),
                          const u32* scales WV_COUNT(calls * ranks * tokens * scaled),
                          const i32* experts WV_COUNT(calls * ranks * tokens * top_k),
                          const f32* weights WV_COUNT(calls * ranks * tokens * top_k),
                          u16* packed WV_COUNT(calls * ranks * capacity * into),
                          u32* packed_scale WV_COUNT(calls * ranks * room),
                          u32* of_token WV_COUNT(calls * ranks * capacity),
                          u32* of_expert WV_COUNT(calls * ranks * local),
                          u32* bases WV_COUNT(calls * ranks * local),
                          u64* ranges WV_COUNT(calls * ranks * ranks * local),
                          const u16* outputs WV_COUNT(calls * ranks * inputs * hidden),
                          u16* sums WV_COUNT(calls * ranks * tokens * hidden),
                          u64* absent WV_COUNT(2 * ranks), Status* status WV_COUNT(ranks)) {
  const u32 rank = block_index() / blocks;
  if (rank >= ranks) return;
  const Ep& ep = *members[rank].ep;
  const Heap& heap = impl::heap_of(ep);
  const Share share{block_index() % blocks, blocks};
  // Nothing is touched outside, whatever the sizes of the channel are.
  if (ep.hidden != hidden || ep.top_k != top_k || ep.ranks != ranks || ep.most_experts > local) return;
  if (given_words(ep) != given || packed_words(ep) != into || packed_scales(ep, capacity) > room) return;
  if (ep.payload == ep_payload::fp8 && ep.scale_words != scaled) return;
  Status* mine = status + rank;
  for (u64 i = rank, n = 0; n < calls; i += ranks, ++n) {
    const u32 stop = stops == rank && n + 1 == calls ? at : 0;
    if (stop == at_counts) return;
    const EpCall call = next_call(ep, share, within_ns(timeout_ns));
    const u32 count = counts[i] < tokens ? counts[i] : tokens;
    // Rows that ranks read in place are the same in each call.
    const u64 here = in_heap_at + (ep.outputs != 0 ? 0 : n * inputs * hidden * 2);
    CallData data{{rows + i * tokens * given, experts + i * tokens * top_k,
                   weights + i * tokens * top_k, in_memory != 0 ? tokens : count,
                   in_memory != 0 ? counts + i : nullptr, scales + i * tokens * scaled},
                  {packed + i * capacity * into, capacity, of_expert + i * local, bases + i * local,
                   ranges + i * local * ranks, of_token + i * capacity, packed_scale + i * room},
                  outputs + i * inputs * hidden, inputs, sums + i * tokens * hidden};
    if (in_heap_at != 0) data.outputs = at_offset<u16>(heap, here);
    if (!in_heap(heap, data.outputs, u64{inputs} * hidden * 2) && in_heap_at != 0) return;
    if (stop == at_rows) {
      keep_first(mine, announce_alone(call, data.tokens));
      return;
    }
    keep_first(mine, dispatch_send(call, data.tokens));
    if (stop == at_results) return;
    if (lags == rank) pause(lag_ns);
    keep_first(mine, dispatch_recv(call, data.packed));
    if (lags == rank) pause(lag_ns);
    keep_first(mine, combine(call, data, count, stores != 0));
    if (thread_index() != 0) continue;
    (void)fetch_or<order::relaxed, scope::gpu>(absent + 2 * rank, missing_ranks(call));
    (void)fetch_or<order::relaxed, scope::gpu>(absent + 2 * rank + 1, unanswered_ranks(call));
  }
}

// A rank's outputs of one call, which each call writes anew.
struct RankOutputs {
  EpPacked packed;
  u16* sums;
};

// By all blocks of a rank: where they meet. *come is zero before a launch.
struct Meeting {
  const Heap& heap;
  u64* come;
  u32 blocks;
  u64 turn = 0;

  WV_DEVICE Status pass() {
    turn += 1;
    sync_block();
    if (thread_index() == 0) (void)fetch_add<order::acq_rel, scope::gpu>(come, u64{1});
    impl::HeapDeadline deadline = impl::HeapDeadline::of(heap, {});
    const impl::HeapWait wait{wait_for::barrier, heap.rank, come, turn * blocks};
    return impl::await_word_together(
        block, heap, wait, deadline, [&] { return load<order::acquire, scope::gpu>(come); },
        [&](u64 seen) { return seen >= turn * blocks; });
  }
};

WV_DEVICE u64 mixed(u64 value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

// Adds numbers [first, first + count) of an array to a sum that does not depend on their order.
template <class T>
WV_DEVICE u64 hash_of(const Share& share, u64 kind, const T* values, u64 first, u64 count) {
  u64 sum = 0;
  const u64 step = u64{share.count} * block_size();
  for (u64 i = u64{share.index} * block_size() + thread_index(); i < count; i += step) {
    sum += mixed(mixed(kind << 56 | (first + i)) + values[first + i]);
  }
  return sum;
}

// Of all that a call gave a rank: tables, the rows that it says there are, and sums.
WV_DEVICE u64 hash_of_call(const EpCall& call, const RankOutputs& out, u32 tokens) {
  const Ep& ep = call.ep;
  const EpPacked& packed = out.packed;
  u64 sum = hash_of(call.share, 5, out.sums, 0, u64{tokens} * ep.hidden);
  if (ep.layout == ep_layout::rank_major) return sum;
  const u32 local = experts_of(ep, ep.rank), words = packed_words(ep);
  sum += hash_of(call.share, 0, packed.counts, 0, local);
  sum += hash_of(call.share, 1, packed.bases, 0, local);
  sum += hash_of(call.share, 2, packed.ranges, 0, u64{local} * ep.ranks);
  for (u32 e = 0; e < local; ++e) {
    const u64 base = packed.bases[e], rows = packed.counts[e];
    sum += hash_of(call.share, 3, packed.tokens, base, rows);
    sum += hash_of(call.share, 4, static_cast<const u16*>(packed.rows), base * words, rows * words);
  }
  return sum;
}

// The same layers again and again, `calls` times, the inputs of `batches` calls in turn. expected: of each
// batch and rank, hash_of_call. come, hashes: zero. wrong: of each rank the first call, counted from 1, whose hash
// is another or that failed; 0 if there is none.
WV_SAFE_KERNEL(ep_again)(const EpMember* members WV_COUNT(ranks), u32 ranks, u32 blocks, u32 calls,
                         u32 batches, u32 hidden, u32 top_k, u32 tokens, u32 local, u32 capacity,
                         const u32* counts WV_COUNT(batches * ranks),
                         const u16* rows WV_COUNT(batches * ranks * tokens * hidden),
                         const i32* experts WV_COUNT(batches * ranks * tokens * top_k),
                         const f32* weights WV_COUNT(batches * ranks * tokens * top_k),
                         const u16* outputs WV_COUNT(batches * ranks * capacity * hidden),
                         u16* packed WV_COUNT(ranks * capacity * hidden),
                         u32* of_token WV_COUNT(ranks * capacity),
                         u32* of_expert WV_COUNT(ranks * local), u32* bases WV_COUNT(ranks * local),
                         u64* ranges WV_COUNT(ranks * ranks * local),
                         u16* sums WV_COUNT(ranks * tokens * hidden),
                         const u64* expected WV_COUNT(batches * ranks), u64* come WV_COUNT(ranks),
                         u64* hashes WV_COUNT(ranks), u32* wrong WV_COUNT(ranks),
                         Status* status WV_COUNT(ranks)) {
  const u32 rank = block_index() / blocks;
  if (rank >= ranks) return;
  const Ep& ep = *members[rank].ep;
  if (ep.hidden != hidden || ep.top_k != top_k || ep.ranks != ranks || ep.most_experts > local ||
      ep.payload != ep_payload::bf16) {
    return;
  }
  const Share share{block_index() % blocks, blocks};
  Meeting meeting{impl::heap_of(ep), come + rank, blocks};
  const RankOutputs out{{packed + u64{rank} * capacity * hidden, capacity, of_expert + rank * local,
                         bases + rank * local, ranges + rank * local * ranks, of_token + rank * capacity},
                        sums + u64{rank} * tokens * hidden};
  for (u32 n = 0; n < calls; ++n) {
    const u64 i = u64{n % batches} * ranks + rank;
    const u32 count = counts[i] < tokens ? counts[i] : tokens;
    const EpTokens from{rows + i * tokens * hidden, experts + i * tokens * top_k,
                        weights + i * tokens * top_k, count};
    const EpCall call = next_call(ep, share);
    Status first = dispatch_send(call, from);
    impl::first_of(first, dispatch_recv(call, out.packed));
    impl::first_of(first, combine_send(call, outputs + i * capacity * hidden, capacity));
    impl::first_of(first, combine_recv(call, out.sums, count));
    impl::first_of(first, meeting.pass());
    if (!first.ok()) {
      keep_first(status + rank, first);
      (void)fetch_or<order::relaxed, scope::gpu>(wrong + rank, n + 1);
    }
    const u64 hash = hash_of_call(call, out, count);
    (void)fetch_add<order::relaxed, scope::gpu>(hashes + rank, hash);
    impl::first_of(first, meeting.pass());
    if (share.index == 0 && thread_index() == 0) {
      const u64 all = impl::peek(hashes + rank);
      if (all != expected[i]) (void)fetch_or<order::relaxed, scope::gpu>(wrong + rank, n + 1);
      impl::poke(hashes + rank, u64{0});
    }
    impl::first_of(first, meeting.pass());
    if (block.any(!first.ok() || impl::peek(wrong + rank) != 0)) return;
  }
}

// Experts that change the sign of every element.
WV_SAFE_KERNEL(ep_negate)(const u16* rows WV_COUNT(elements), u64 elements,
                          u16* outputs WV_COUNT(elements)) {
  for (u64 i = global_thread(); i < elements; i += u64{grid_size()} * block_size()) {
    outputs[i] = static_cast<u16>(rows[i] ^ 0x8000);
  }
}

// By each thread for numbers in turn: e4m3 of pairs of f32, the first in the lower byte, as a device does it and
// as others do.
WV_SAFE_KERNEL(ep_e4m3)(const f32* numbers WV_COUNT(2 * pairs), u32 pairs, u32* fast WV_COUNT(pairs),
                        u32* slow WV_COUNT(pairs)) {
  for (u64 i = global_thread(); i < pairs; i += u64{grid_size()} * block_size()) {
    const f32 first = numbers[2 * i], second = numbers[2 * i + 1];
    fast[i] = to_e4m3(first, second);
    slow[i] = to_e4m3(first) | to_e4m3(second) << 8;
  }
}
