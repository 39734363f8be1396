// Whole layers by all ranks at once, as blocks of one launch, for tests: dispatch and combine, `calls`
// times. The results of the experts are given. Rank `stops` stops before step `at` of the last call.
#include "warpverbs/ep.h"

using namespace wv;

// A rank's channel.
struct EpMember {
  const Ep* ep;
};

// Steps of a call: nothing of it, its rows, its receiving, its results.
constexpr u32 at_counts = 1, at_rows = 2, at_results = 3;

// Says how many rows there are, and sends none.
WV_DEVICE Status announce_alone(const EpCall& call, const EpTokens& tokens) {
  if (call.share.index != 0) return Status{};
  impl::HeapDeadline deadline = impl::patience(call, impl::for_credit);
  Status first = impl::count_sends(call, tokens, impl::shared_tile(), tokens.count);
  const u64 to = impl::await_credits(call, deadline, first);
  impl::first_of(first, impl::announce(call, impl::plan_of(call), to));
  return first;
}

// By call, rank and then as each part has it. tokens, local: most of any rank. capacity: rows of a
// rank's packed ones; inputs: of what experts give. absent: sets of missing and unanswered ranks.
WV_SAFE_KERNEL(ep_layers)(const EpMember* members WV_COUNT(ranks), u32 ranks, u32 blocks, u32 calls,
                          u32 stops, u32 at, u64 timeout_ns, u32 hidden, u32 top_k, u32 tokens,
                          u32 local, u32 capacity, u32 inputs,
                          const u32* counts WV_COUNT(calls * ranks),
                          const u16* rows WV_COUNT(calls * ranks * tokens * hidden),
                          const i32* experts WV_COUNT(calls * ranks * tokens * top_k),
                          const f32* weights WV_COUNT(calls * ranks * tokens * top_k),
                          u16* packed WV_COUNT(calls * ranks * capacity * hidden),
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
  const Share share{block_index() % blocks, blocks};
  // Nothing is touched outside, whatever the sizes of the channel are.
  if (ep.hidden != hidden || ep.top_k != top_k || ep.ranks != ranks || ep.most_experts > local) return;
  Status* mine = status + rank;
  for (u64 i = rank, n = 0; n < calls; i += ranks, ++n) {
    const u32 stop = stops == rank && n + 1 == calls ? at : 0;
    if (stop == at_counts) return;
    const EpCall call = next_call(ep, share, within_ns(timeout_ns));
    const EpTokens given{rows + i * tokens * hidden, experts + i * tokens * top_k,
                         weights + i * tokens * top_k, counts[i] < tokens ? counts[i] : tokens};
    if (stop == at_rows) {
      keep_first(mine, announce_alone(call, given));
      return;
    }
    keep_first(mine, dispatch_send(call, given));
    if (stop == at_results) return;
    const EpPacked into{packed + i * capacity * hidden, capacity, of_expert + i * local,
                        bases + i * local, ranges + i * local * ranks, of_token + i * capacity};
    keep_first(mine, dispatch_recv(call, into));
    keep_first(mine, combine_send(call, outputs + i * inputs * hidden, inputs));
    keep_first(mine, combine_recv(call, sums + i * tokens * hidden, given.count));
    if (thread_index() != 0) continue;
    (void)fetch_or<order::relaxed, scope::gpu>(absent + 2 * rank, missing_ranks(call));
    (void)fetch_or<order::relaxed, scope::gpu>(absent + 2 * rank + 1, unanswered_ranks(call));
  }
}
