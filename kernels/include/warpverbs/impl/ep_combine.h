// Bodies of ep.h: the combine.
#pragma once

#include "warpverbs/impl/ep_receive.h"

namespace wv {
namespace impl {

// A received row to which results belong.
struct Origin {
  u32 source, slot;
};

// Where a result is written: at its token's rank, or for the NIC.
WV_DEVICE u8* answer_at(const Ep& ep, const Origin& origin, bool direct, u32 answer) {
  if (!direct) return stage_back_at(ep, origin.source, origin.slot, answer);
  u8* own = result_at(ep, fixed(ep.rank), origin.slot, answer);
  return at<u8>(direct_address(ep, own, origin.source));
}

// The rows that a combine is given. `stored`: results of ranks that are reached by stores are where
// result_row says, and not read here.
struct Inputs {
  const void* rows;
  u64 capacity;
  bool stored;

  // 0 beyond the capacity.
  WV_DEVICE u64 at(const Ep& ep, u64 number) const {
    return number < capacity ? reinterpret_cast<u64>(rows) + number * fixed(ep.hidden) * 2 : 0;
  }
};

// Number of the caller's row for a choice of a received one, its local choice number `back`.
WV_DEVICE u32 input_row(const EpCall& call, const Plan& plan, const Origin& origin, u32 expert, u32 place,
                        u32 back) {
  const Ep& ep = call.ep;
  if (is_packed(ep)) return packed_row(call, plan, origin.source, expert, place);
  return (origin.source * fixed(ep.tokens) + origin.slot) * fixed(ep.backs) + back;
}

// Rows of a combine in rank-major layout.
WV_DEVICE u64 outputs_of(const Ep& ep) { return u64{fixed(ep.ranks)} * fixed(ep.tokens) * fixed(ep.backs); }

// The choices of a received row, in its header: experts, weights and places, top_k of each.
WV_DEVICE const u32* choices_of(const Ep& ep, const Origin& origin) {
  return reinterpret_cast<const u32*>(row_at(ep, origin.source, origin.slot)) + 4;
}

// The caller's rows for a received one, on the lanes of a warp: those of its local experts, which are
// `local`, by choice, or the one that is their sum.
WV_DEVICE RowList list_inputs(const EpCall& call, const Plan& plan, const Inputs& inputs,
                              const Origin& origin, lane_mask& local) {
  const Ep& ep = call.ep;
  const u32 k = fixed(ep.top_k), j = lane_id();
  RowEntry input{0, bits_of(1)};
  if (fixed(ep.combine) == ep_combine::summed) {
    local = 1;
    if (j == 0) input.at = inputs.at(ep, input_row(call, plan, origin, 0, 0, 0));
    return RowList::of(input);
  }
  // All loads are under way at a time.
  const u32* choice = choices_of(ep, origin) + (j < k ? j : 0);
  const u32 expert = peek(choice), place = peek(choice + 2 * k);
  input.weight = peek(choice + k);
  const bool mine = j < k && is_local(ep, expert);
  local = ballot(all_lanes(), mine);
  if (mine) input.at = inputs.at(ep, input_row(call, plan, origin, expert, place, rank_in(local)));
  return RowList::of(input);
}

// The choices of a received row that have a result each, as bits: with Exact the local ones, else the
// first stands for all.
WV_DEVICE u32 answering(const Ep& ep, const Origin& origin) {
  if (fixed(ep.combine) != ep_combine::exact) return 1;
  u32 choices = 0, found = 0;
  // A rank's header must not lead out of its own places.
  for (u32 j = 0; j < fixed(ep.top_k) && found < fixed(ep.answers); ++j) {
    if (!is_local(ep, peek(choices_of(ep, origin) + j))) continue;
    choices |= u32{1} << j;
    found += 1;
  }
  return choices;
}

// Stores a part of the results of a received row, by a warp.
WV_DEVICE void store_results(const EpCall& call, const Plan& plan, const Inputs& inputs,
                             const Origin& origin, u32 part, u32 parts) {
  const Ep& ep = call.ep;
  const bool direct = is_direct(ep, origin.source);
  if (direct ? inputs.stored || is_pulled(ep) : fixed(ep.back_bytes) == 0) return;
  lane_mask local = 0;
  const RowList list = list_inputs(call, plan, inputs, origin, local);
  const Packs packs = packs_of(result_cut(ep), part, parts);
  if (fixed(ep.combine) != ep_combine::exact) {
    sum_rows(list, answer_at(ep, origin, direct, 0), packs);
    return;
  }
  const u64 skip = packs.begin * pack_bytes;
  list.each([&](u64 input, u32 j) {
    const u32 answer = popcount(local & (lane_bit(j) - 1));
    // A rank's header must not lead out of its own places.
    if (answer >= fixed(ep.answers)) return;
    const AlignedPacks copied{answer_at(ep, origin, direct, answer) + skip, at<const u8>(input + skip)};
    copy_elements<8>(warp, copied, packs.end - packs.begin);
  });
}

// Posts the results of a received row, on one thread: they lie together in the stage, or one by one where
// the caller has them.
WV_DEVICE Status post_results(const EpCall& call, const Plan& plan, const Inputs& inputs,
                              const Origin& origin) {
  const Ep& ep = call.ep;
  const u32 source = origin.source;
  if (is_direct(ep, source)) return Status{};
  const bool staged = fixed(ep.back_bytes) != 0;
  Status status;
  u32 left = answering(ep, origin);
  for (u32 answer = 0; left != 0 && status.ok(); ++answer) {
    const u32 rows = staged ? popcount(left) : 1;
    const u8* from = stage_back_at(ep, source, origin.slot, answer);
    if (!staged) {
      const u32* choice = choices_of(ep, origin) + lowest_bit(left);
      const u32 expert = peek(choice), place = peek(choice + 2 * fixed(ep.top_k));
      from = at<const u8>(inputs.at(ep, input_row(call, plan, origin, expert, place, answer)));
    }
    status = put<route::rdma>(thread, heap_of(ep), result_at(ep, fixed(ep.rank), origin.slot, answer), from,
                 u64{rows} * fixed(ep.hidden) * 2, source, unsignalled, call.timeout);
    left = staged ? 0 : left & (left - 1);
  }
  if (!status.ok()) give_up_on(call, state_of(ep)->missing, source);
  return status;
}

// Posts the results of rows [begin, end) of a source, at most a tile.
WV_DEVICE Status post_tile(const EpCall& call, const Plan& plan, const Inputs& inputs, u32 source,
                           u32 begin, u32 end) {
  Status first;
  sync_block();
  for (u32 slot = begin + thread_index(); slot < end; slot += block_size()) {
    first_of(first, post_results(call, plan, inputs, Origin{source, slot}));
  }
  return first;
}

// By the warp that last_of_lane chose: tells every rank that its rows are consumed and its results there. All of a
// rank's blocks are in this call, as its words for rows have said to all blocks of dispatch_recv: before that some
// may look for the last call's word.
WV_DEVICE Status tell_results(const EpCall& call, const Telling& telling) {
  // A block of this lane that left something out said so before. Both loads are under way at a time.
  const u64 missing = missing_ranks(call);
  const bool refuses = is_incomplete(call);
  Status first;
  for (u32 rank = lane_id(); rank < fixed(call.ep.ranks); rank += warp.size()) {
    if (!has_rank(call.members, rank)) continue;
    telling.release(rank);
    const u32 refused = refuses || has_rank(missing, rank) ? ep_refused : 0;
    first_of(first, telling.tell(rank, telling.lanes | refused));
  }
  return first;
}

// Sends the results of all received rows back.
WV_DEVICE Status send_results(const EpCall& call, Inputs inputs) {
  const Ep& ep = call.ep;
  const Plan plan = plan_of(call);
  Status first = check_block();
  if (!is_aligned(inputs.rows)) first = Status::of(outcome::bad_address);
  if (is_pulled(ep) && inputs.rows != output_at(ep, 0)) first = Status::of(outcome::bad_address);
  if (is_pulled(ep) && inputs.capacity < outputs_of(ep)) first = Status::of(outcome::too_long);
  if (!first.ok()) leave_incomplete(call);
  // Rows are left out that this block has not waited for, and all of them if it left out a step.
  const auto which = [&] {
    const u64 missing = missing_ranks(call);
    return block.broadcast(is_incomplete(call) ? 0 : call.members & ~missing);
  };
  // Blocks begin with different ranks, so that memory and links are busy at a time.
  if (!is_pulled(ep) || fixed(ep.staged) != 0) received_rows(
      call, (fixed(ep.rank) + call.share.index) % fixed(ep.ranks), which, [](u32, bool) { return true; },
      [&](u32 source, u32 slot, u32 part, u32 parts) {
        store_results(call, plan, inputs, {source, slot}, part, parts);
      },
      [&](u32 source, u32 begin, u32 end) {
        first_of(first, post_tile(call, plan, inputs, source, begin, end));
      });
  WV_EP_PHASE(returned);
  const Telling telling = Telling::of(call, fixed(ep.returned));
  if (last_of_lane(call, state_of(ep)->returned)) first_of(first, tell_results(call, telling));
  return first;
}

// The results of a token, on the lanes of a warp: of ranks in their order, or of choices. `rank` of a lane gives its
// one. Whether it came is not said.
struct Results {
  RowEntry entry;
  u32 rank;

  WV_DEVICE RowList of_ranks(u64 from) const {
    return RowList::of(has_rank(from, rank) ? entry : RowEntry{0, 0});
  }
};
WV_DEVICE u64 result_of(const Ep& ep, u32 rank, u32 slot, u32 answer) {
  if (!is_pulled(ep) || !is_direct(ep, rank)) return reinterpret_cast<u64>(result_at(ep, rank, slot, answer));
  const u64 row = (u64{fixed(ep.rank)} * fixed(ep.tokens) + slot) * fixed(ep.backs) + answer;
  return direct_address(ep, output_at(ep, row), rank);
}
WV_DEVICE Results list_results(const EpCall& call, const Plan& plan, u32 token) {
  const Ep& ep = call.ep;
  const bool exact = fixed(ep.combine) == ep_combine::exact;
  const u32 k = fixed(ep.top_k), j = lane_id(), choice = token * k + (j < k ? j : 0);
  // All loads are under way at a time.
  const u64 ranks = peek(plan.ranks + token);
  const u32 expert = peek(plan.experts + choice), first_slot = peek(plan.slots + choice);
  const u32 weight = exact ? peek(plan.weights + choice) : bits_of(1);
  const u32 rank = j < k ? owner_or_none(ep, expert) : no_rank;
  // The first choice of a rank has the row's slot.
  const lane_mask same = match_any(all_lanes(), rank);
  const u32 slot = shfl(all_lanes(), first_slot, lowest_bit(same)), answer = rank_in(same);
  const bool mine = rank < fixed(ep.ranks) && has_rank(ranks, rank) && (exact || answer == 0);
  Results found{{0, weight}, 0};
  if (mine) found = {{result_of(ep, rank, slot, answer), weight}, rank};
  if (exact) return found;
  const u32 place = mine ? popcount(ranks & ((u64{1} << rank) - 1)) : no_key;
  Results sorted{{0, weight}, 0};
  for (lane_mask left = ballot(all_lanes(), mine); left != 0; left &= left - 1) {
    const u32 lane = lowest_bit(left);
    const u64 at = shfl(all_lanes(), found.entry.at, lane);
    const u32 of = shfl(all_lanes(), rank, lane);
    if (shfl(all_lanes(), place, lane) == j) sorted = {{at, weight}, of};
  }
  return sorted;
}

// By each warp that has read results: a rank that no longer waited for this one may have written others there.
WV_DEVICE Status check_sources(const EpCall& call, u64 late, u64* lacking) {
  const u64 left = left_behind(call) & call.members & ~late;
  if (left == 0) return Status{};
  if (lane_id() == 0) (void)fetch_or<order::relaxed, scope::gpu>(lacking, left);
  return Status::of(outcome::peer_lost);
}

// At the end of a block's part. The next call asks whether all blocks have come here.
WV_DEVICE void end_call(const EpCall& call) {
  sync_block();
  if (thread_index() == 0) (void)fetch_add<order::relaxed, scope::gpu>(&state_of(call.ep)->leaving, ~u32{0});
}

}  // namespace impl

WV_DEVICE Status combine_send(const EpCall& call, const void* rows, u64 capacity) {
  return impl::send_results(call, {rows, capacity, false});
}
WV_DEVICE Status combine_send_stored(const EpCall& call, const void* rows, u64 capacity) {
  return impl::send_results(call, {rows, capacity, true});
}

WV_DEVICE void* result_row(const EpCall& call, u32 rank, u32 slot, u32 choice) {
  const impl::Origin origin{rank, slot};
  if (!impl::is_direct(call.ep, rank) || impl::is_pulled(call.ep)) return nullptr;
  const u32 answering = impl::answering(call.ep, origin);
  const bool exact = impl::fixed(call.ep.combine) == ep_combine::exact;
  const u32 mine = exact ? u32{1} << choice : 1;
  if ((answering & mine) == 0) return nullptr;
  return impl::answer_at(call.ep, origin, true, popcount(answering & (mine - 1)));
}

WV_DEVICE Status combine_recv(const EpCall& call, void* sums, u32 tokens) {
  const Ep& ep = call.ep;
  const impl::Plan plan = impl::plan_of(call);
  const u32 count = impl::peek(plan.count);
  Status first = impl::check_block();
  if (count > tokens) first = Status::of(outcome::too_long);
  if (!impl::is_aligned(sums)) first = Status::of(outcome::bad_address);
  const bool adds = first.ok();
  impl::HeapDeadline deadline = impl::patience(call, impl::for_results);
  u64* lacking = impl::state_of(ep)->unanswered + (call.epoch & 1);
  // Those that took rows; and this rank, so that all of its blocks are in this call when one ends it.
  const u64 missing = missing_ranks(call), lost = block.broadcast(unanswered_ranks(call));
  const impl::RowCut cut = impl::result_cut(ep);
  const impl::Units units = impl::units_of(call, adds ? count : 0);
  // In rank-major layout all blocks have seen the own rank's rows, and with them the plan: a warp reads of its first
  // token while results are under way.
  const u32 unit = units.begin + warp_index();
  const bool planned = !impl::is_packed(ep) && !impl::has_rank(missing, impl::fixed(ep.rank));
  const bool ahead = planned && unit < units.end && warp_index() < impl::warps_of_block();
  impl::Results next{{0, 0}, 0};
  if (ahead) next = impl::list_results(call, plan, unit / units.parts);
  const u64 late = lost | impl::await_ranks(call, call.members & ~lost, lacking, [&](u32 rank) {
    if (rank != impl::fixed(ep.rank) && impl::peek(plan.rows_to + rank) == 0) return true;
    u32 value = 0;
    Status status = impl::await_lanes_of(call, impl::fixed(ep.returned), rank,
                                         wait_for::ep_results, call.epoch, deadline, value);
    if (status.ok() && (value & ep_refused) != 0) status = Status::of(outcome::peer_lost);
    impl::first_of(first, status);
    return status.ok();
  });
  WV_EP_PHASE(answered);
  // Now all blocks have given their results.
  if (!adds) impl::leave_incomplete(call);
  impl::each_unit(units.begin, units.end, [&](u32 at) {
    const u32 token = at / units.parts;
    if (at != unit || !ahead) next = impl::list_results(call, plan, token);
    u8* sum = static_cast<u8*>(sums) + u64{token} * impl::fixed(ep.hidden) * 2;
    impl::sum_rows(next.of_ranks(~late), sum, impl::packs_of(cut, at % units.parts, units.parts));
  });
  if (warp_index() < impl::warps_of_block()) impl::first_of(first, impl::check_sources(call, late, lacking));
  impl::end_call(call);
  return first;
}

}  // namespace wv
