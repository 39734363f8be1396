// Dispatch and combine as launches of their own: both halves of one, or one half. Sizes are those of the
// channel; a launch with others does nothing. The first bad wv::Status stays in *status.
#include "warpverbs/ep.h"

using namespace wv;

constexpr u32 send_half = 1, recv_half = 2;

// Whether the arguments have the channel's sizes.
WV_DEVICE bool fits(bool same, Status* status) {
  if (!same) keep_first(status, Status::of(outcome::too_long));
  return same;
}

// halves: 1 sends, 2 receives, 3 both. given, into: u16 of a token's row and of a packed one. scaled: words of
// a token's scales, if the caller has them. in_memory: 1 if the number of tokens is in *counted.
WV_SAFE_KERNEL(moe_dispatch)(const Ep* ep, u32 halves, u32 given, u32 top_k, u32 scaled, u32 count,
                            const u16* rows WV_COUNT(count * given),
                            const i32* experts WV_COUNT(count * top_k),
                            const f32* weights WV_COUNT(count * top_k),
                            const u32* scales WV_COUNT(count * scaled), u32 in_memory,
                            const u32* counted WV_COUNT(in_memory), u32 into, u32 local, u32 ranks,
                            u64 capacity, u16* packed WV_COUNT(capacity * into),
                            u32* counts WV_COUNT(local), u32* bases WV_COUNT(local),
                            u64* ranges WV_COUNT(local * ranks), u32* tokens WV_COUNT(capacity),
                            u64 scale_room, u32* packed_scale WV_COUNT(scale_room),
                            Status* status WV_COUNT(1)) {
  const bool sends = (halves & send_half) != 0, receives = (halves & recv_half) != 0;
  const u32 words = ep->payload == ep_payload::fp8 ? ep->scale_words : 0;
  if (sends && !fits(given == given_words(*ep) && top_k == ep->top_k && scaled == words, status)) {
    return;
  }
  const bool tables = into == packed_words(*ep) && local >= experts_of(*ep, ep->rank) &&
                      ranks == ep->ranks && scale_room >= packed_scales(*ep, capacity);
  if (receives && !fits(ep->layout == ep_layout::rank_major || tables, status)) return;
  const Share share = whole_grid();
  const EpCall call = sends ? next_call(*ep, share) : this_call(*ep, share);
  if (sends) {
    const EpTokens from{rows, experts, weights, count, in_memory != 0 ? counted : nullptr, scales};
    keep_first(status, dispatch_send(call, from));
  }
  if (receives) {
    const EpPacked to{packed, capacity, counts, bases, ranges, tokens, packed_scale};
    keep_first(status, dispatch_recv(call, to));
  }
}

// `rows`: what the experts made of the rows, in the places of the dispatch.
WV_SAFE_KERNEL(moe_combine)(const Ep* ep, u32 halves, u32 hidden, u64 capacity,
                           const u16* rows WV_COUNT(capacity * hidden), u32 count,
                           u16* sums WV_COUNT(count * hidden), Status* status WV_COUNT(1)) {
  if (!fits(hidden == ep->hidden, status)) return;
  const EpCall call = this_call(*ep, whole_grid());
  if ((halves & send_half) != 0) keep_first(status, combine_send(call, rows, capacity));
  if ((halves & recv_half) != 0) keep_first(status, combine_recv(call, sums, count));
}

// Waits until nothing of this rank is on its way to another.
WV_SAFE_KERNEL(moe_quiet)(const Heap* heap, u32 rank, Status* status WV_COUNT(1)) {
  keep_first(status, quiet(block, *heap, rank));
}

// By one block, before the first call of a generation: tells the members that they may write.
WV_SAFE_KERNEL(moe_begin)(const Ep* ep, Status* status WV_COUNT(1)) {
  const EpCall call = this_call(*ep, whole_grid());
  const impl::Telling telling = impl::Telling::of(call, ep->returned);
  for (u32 rank = thread_index(); rank < ep->ranks; rank += block_size()) {
    if (!impl::has_rank(call.members, rank)) continue;
    telling.release(rank);
    keep_first(status, telling.tell(rank, 1));
  }
}

// By one block, behind the last call of a generation: tells ranks of a set, which are no members of the next one, that
// rows they may still read will be overwritten.
WV_SAFE_KERNEL(moe_part)(const Ep* ep, u64 left) {
  EpCall call = this_call(*ep, whole_grid());
  call.epoch = (call.epoch + 1) & impl::epoch_mask;
  for (u32 rank = thread_index(); rank < ep->ranks; rank += block_size()) {
    if (impl::has_rank(left, rank)) impl::leave_behind(call, rank);
  }
}
