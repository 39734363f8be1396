// Bodies of ep.h: the combine.
#pragma once

#include "warpverbs/impl/ep_dispatch.h"

namespace wv {
namespace impl {

// A received row to which results belong.
struct Origin {
  u32 source, slot, token;
  u64 ranks;
};

// Number of the result of a token that this rank sends, or of its choice j.
WV_DEVICE u32 answer_of(const Ep& ep, const Origin& origin, u32 j) {
  if (fixed(ep.combine) == ep_combine::exact) return j;
  return popcount(origin.ranks & ((u64{1} << fixed(ep.rank)) - 1));
}
// Where a result is written: at its token's rank, or for the NIC.
WV_DEVICE u8* answer_at(const Ep& ep, const Origin& origin, bool direct, u32 j, u32 back) {
  if (!direct) return stage_back_at(ep, origin.source, origin.slot, back);
  u8* own = result_at(ep, origin.token, answer_of(ep, origin, j));
  return at<u8>(direct_address(ep, own, origin.source));
}

// The caller's rows for a received one, on the lanes of a warp: those of its local experts, which are
// `local`, by choice, or the one that is their sum.
WV_DEVICE RowList list_inputs(const EpCall& call, const Plan& plan, const void* rows, u64 capacity,
                              const Origin& origin, lane_mask& local) {
  const Ep& ep = call.ep;
  const u8* row = row_at(ep, origin.source, origin.slot);
  const bool summed = fixed(ep.combine) == ep_combine::summed;
  const bool packed = fixed(ep.layout) != ep_layout::rank_major;
  const u32 k = summed ? 1 : fixed(ep.top_k), me = fixed(ep.rank), j = lane_id();
  const u32* header = reinterpret_cast<const u32*>(row);
  const bool mine = j < k && (summed || owner_or_none(ep, peek(header + 4 + j)) == me);
  local = ballot(all_lanes(), mine);
  RowEntry input{0, bits_of(1)};
  if (mine) {
    u64 number = (u64{origin.source} * fixed(ep.tokens) + origin.slot) * fixed(ep.backs);
    if (packed) number = packed_row(call, plan, row, origin.source, j);
    else number += rank_in(local);
    if (!summed) input.weight = peek(header + 4 + fixed(ep.top_k) + j);
    if (number < capacity) {
      input.at = reinterpret_cast<u64>(rows) + number * fixed(ep.hidden) * 2;
    }
  }
  return RowList::of(input);
}

// The choices of a received row that are local ones, as bits.
WV_DEVICE u32 local_choices(const Ep& ep, const u8* row) {
  const u32* header = reinterpret_cast<const u32*>(row);
  u32 choices = 0;
  for (u32 j = 0; j < fixed(ep.top_k); ++j) {
    if (owner_or_none(ep, peek(header + 4 + j)) == fixed(ep.rank)) choices |= u32{1} << j;
  }
  return choices;
}

// Stores a part of the results of a received row, by a warp.
WV_DEVICE void store_results(const EpCall& call, const Plan& plan, const void* rows, u64 capacity,
                             const Origin& origin, u32 part, u32 parts) {
  const Ep& ep = call.ep;
  lane_mask local = 0;
  const RowList list = list_inputs(call, plan, rows, capacity, origin, local);
  const Packs packs = packs_of(ep, part, parts);
  const bool direct = is_direct(ep, origin.source);
  if (fixed(ep.combine) != ep_combine::exact) {
    sum_rows(list, answer_at(ep, origin, direct, 0, 0), packs);
    return;
  }
  const u64 skip = packs.begin * pack_bytes;
  list.each([&](u64 input, u32 j) {
    const u32 back = popcount(local & (lane_bit(j) - 1));
    const AlignedPacks copied{answer_at(ep, origin, direct, j, back) + skip, at<const u8>(input + skip)};
    copy_elements<8>(warp, copied, packs.end - packs.begin);
  });
}

// The origin of a received row; a row that names no token of its rank has none.
WV_DEVICE bool find_origin(const EpCall& call, u32 source, u32 slot, Origin& origin) {
  const EpRow row = row_from(call, source, slot);
  origin = {source, slot, row.token, row.ranks};
  const u32 answer = answer_of(call.ep, origin, 0);
  return row.token < fixed(call.ep.tokens) && answer < fixed(call.ep.answers);
}

// Posts the results of a received row that lie in the stage, on one thread.
WV_DEVICE Status post_results(const EpCall& call, u32 source, u32 slot) {
  const Ep& ep = call.ep;
  Origin origin;
  if (is_direct(ep, source) || !find_origin(call, source, slot, origin)) return Status{};
  const bool exact = fixed(ep.combine) == ep_combine::exact;
  u32 left = exact ? local_choices(ep, row_at(ep, source, slot)) : 1;
  Status status;
  for (u32 back = 0; left != 0 && status.ok(); ++back, left &= left - 1) {
    u8* to = result_at(ep, origin.token, answer_of(ep, origin, lowest_bit(left)));
    status = put(thread, heap_of(ep), to, stage_back_at(ep, source, slot, back),
                 u64{fixed(ep.hidden)} * 2, source, unsignalled, call.timeout);
  }
  if (!status.ok()) give_up_on(call, state_of(ep)->missing, source);
  return status;
}

// Posts the results of rows [begin, end) of a source, at most a tile, that lie in the stage.
WV_DEVICE Status post_tile(const EpCall& call, u32 source, u32 begin, u32 end) {
  Status first;
  sync_block();
  for (u32 slot = begin + thread_index(); slot < end; slot += block_size()) {
    first_of(first, post_results(call, source, slot));
  }
  return first;
}

// By the warp that last_of_lane chose: tells every rank that its rows are consumed and its results there;
// those that sent rows first. A rank is told once all of its blocks are in this call: until then some may
// look for the last call's word.
WV_DEVICE Status tell_results(const EpCall& call, const Plan& plan) {
  const Ep& ep = call.ep;
  HeapDeadline deadline = patience(call, for_rows);
  u64* lacking = state_of(ep)->missing + (call.epoch & 1);
  Status first;
  for (u32 turn = 0; turn < 2; ++turn) {
    for (u32 rank = lane_id(); rank < fixed(ep.ranks); rank += warp.size()) {
      if ((peek(plan.rows_from + rank) != 0) != (turn == 0)) continue;
      bool refused = has_rank(peek(lacking), rank);
      if (!refused) {
        u32 value = 0;
        const Status waited = await_lanes_of(call, fixed(ep.arrived), rank, wait_for::ep_rows,
                                             call.epoch, deadline, value);
        first_of(first, waited);
        refused = !waited.ok();
        if (refused) (void)fetch_or<order::relaxed, scope::gpu>(lacking, u64{1} << rank);
      }
      const u32 lanes = lanes_of(call) | (refused ? ep_refused : 0);
      first_of(first, tell_rank(call, fixed(ep.returned), rank, lanes));
    }
  }
  return first;
}

// Weighted sum of the results of a token, by a warp.
WV_DEVICE void sum_results(const EpCall& call, const Plan& plan, void* sums, u64 from, u32 token,
                           u32 part, u32 parts) {
  const Ep& ep = call.ep;
  const bool exact = fixed(ep.combine) == ep_combine::exact;
  const u32 k = fixed(ep.top_k);
  const u64 ranks = peek(plan.ranks + token);
  // Ranks, of which there may be more than lanes, or choices, of which there are at most as many.
  const Packs packs = packs_of(ep, part, parts);
  RowEntry mine{0, bits_of(1)};
  if (exact) {
    const u32 j = lane_id();
    const u32 rank = j < k ? owner_or_none(ep, peek(plan.experts + token * k + j)) : no_rank;
    if (rank < fixed(ep.ranks) && has_rank(ranks & from, rank)) {
      mine = {reinterpret_cast<u64>(result_at(ep, token, j)), peek(plan.weights + token * k + j)};
    }
  } else {
    // The results of a token lie in the order of its ranks: those of the lowest that are left.
    u32 answer = 0, found = 0;
    for (u64 left = ranks; left != 0 && answer < fixed(ep.answers); left &= left - 1, ++answer) {
      if (!has_rank(from, lowest_bit(left))) continue;
      if (found == lane_id()) mine.at = reinterpret_cast<u64>(result_at(ep, token, answer));
      found += 1;
    }
  }
  sum_rows(RowList::of(mine), static_cast<u8*>(sums) + u64{token} * fixed(ep.hidden) * 2, packs);
}

}  // namespace impl

WV_DEVICE Status combine_send(const EpCall& call, const void* rows, u64 capacity) {
  const Ep& ep = call.ep;
  const impl::Plan plan = impl::plan_of(call);
  Status first = impl::check_block();
  if (!impl::is_aligned(rows)) first = Status::of(outcome::bad_address);
  const u64 inputs = first.ok() ? capacity : 0;
  impl::received_rows(
      call, plan,
      [&](u32 source) { return !impl::has_rank(block.broadcast(missing_ranks(call)), source); },
      [&](u32 source, u32 slot, u32 part, u32 parts) {
        impl::Origin origin;
        if (impl::find_origin(call, source, slot, origin)) {
          impl::store_results(call, plan, rows, inputs, origin, part, parts);
        }
      },
      [&](u32 source, u32 begin, u32 end) {
        impl::first_of(first, impl::post_tile(call, source, begin, end));
      });
  WV_EP_PHASE(returned);
  if (impl::last_of_lane(call, impl::state_of(ep)->returned)) {
    impl::first_of(first, impl::tell_results(call, plan));
  }
  return first;
}

WV_DEVICE Status combine_recv(const EpCall& call, void* sums, u32 tokens) {
  const Ep& ep = call.ep;
  const impl::Plan plan = impl::plan_of(call);
  if (impl::peek(plan.count) > tokens) return Status::of(outcome::too_long);
  if (!impl::is_aligned(sums)) return Status::of(outcome::bad_address);
  impl::HeapDeadline deadline = impl::patience(call, impl::for_results);
  Status first;
  u64* lacking = impl::state_of(ep)->unanswered + (call.epoch & 1);
  // Those that took rows; and this rank, so that all of its blocks are in this call when one ends it.
  const u64 lost = block.broadcast(unanswered_ranks(call));
  const u64 late = lost | impl::await_ranks(call, impl::all_ranks(ep) & ~lost, lacking, [&](u32 rank) {
    if (rank != impl::fixed(ep.rank) && impl::peek(plan.rows_to + rank) == 0) return true;
    u32 value = 0;
    Status status = impl::await_lanes_of(call, impl::fixed(ep.returned), rank,
                                         wait_for::ep_results, call.epoch, deadline, value);
    if (status.ok() && (value & ep_refused) != 0) status = Status::of(outcome::peer_lost);
    impl::first_of(first, status);
    return status.ok();
  });
  WV_EP_PHASE(answered);
  const impl::Units units = impl::units_of(call, impl::peek(plan.count));
  impl::each_unit(units.begin, units.end, [&](u32 unit) {
    impl::sum_results(call, plan, sums, ~late, unit / units.parts, unit % units.parts, units.parts);
  });
  impl::first_of(first, impl::check_block());
  return first;
}

}  // namespace wv
