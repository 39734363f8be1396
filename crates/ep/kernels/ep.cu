// Dispatch and combine as launches of their own: both halves of one, or one half. Sizes are those of the
// channel; a launch with others does nothing. The first bad wv::Status stays in *status.
#include "warpverbs/ep.h"

using namespace wv;

constexpr u32 send_half = 1, recv_half = 2;

WV_DEVICE bool fits(const Ep& ep, u32 hidden, Status* status) {
  if (hidden == ep.hidden) return true;
  keep_first(status, Status::of(outcome::too_long));
  return false;
}

// halves: 1 sends, 2 receives, 3 both.
WV_SAFE_KERNEL(moe_dispatch)(const Ep* ep, u32 halves, u32 hidden, u32 top_k, u32 count,
                            const u16* rows WV_COUNT(count * hidden),
                            const i32* experts WV_COUNT(count * top_k),
                            const f32* weights WV_COUNT(count * top_k), u32 local, u32 ranks,
                            u64 capacity, u16* packed WV_COUNT(capacity * hidden),
                            u32* counts WV_COUNT(local), u32* bases WV_COUNT(local),
                            u64* ranges WV_COUNT(local * ranks), u32* tokens WV_COUNT(capacity),
                            Status* status WV_COUNT(1)) {
  if (!fits(*ep, hidden, status)) return;
  const bool tables = (halves & recv_half) == 0 || ep->layout == ep_layout::rank_major ||
                      (local >= experts_of(*ep, ep->rank) && ranks == ep->ranks);
  if (top_k != ep->top_k || !tables) {
    keep_first(status, Status::of(outcome::too_long));
    return;
  }
  const Share share = whole_grid();
  const EpCall call = (halves & send_half) != 0 ? next_call(*ep, share) : this_call(*ep, share);
  if ((halves & send_half) != 0) {
    keep_first(status, dispatch_send(call, EpTokens{rows, experts, weights, count}));
  }
  if ((halves & recv_half) != 0) {
    const EpPacked into{packed, capacity, counts, bases, ranges, tokens};
    keep_first(status, dispatch_recv(call, into));
  }
}

// `rows`: what the experts made of the rows, in the places of the dispatch.
WV_SAFE_KERNEL(moe_combine)(const Ep* ep, u32 halves, u32 hidden, u64 capacity,
                           const u16* rows WV_COUNT(capacity * hidden), u32 count,
                           u16* sums WV_COUNT(count * hidden), Status* status WV_COUNT(1)) {
  if (!fits(*ep, hidden, status)) return;
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
  keep_first(status, impl::tell_ranks(call, ep->returned, call.members, [](u32) { return 1u; }));
}
