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

// Number of the caller's row for choice j of a received one, its local choice number `back`.
WV_DEVICE u64 input_row(const EpCall& call, const Plan& plan, const Origin& origin, u32 j,
                        u32 back) {
  const Ep& ep = call.ep;
  if (fixed(ep.layout) != ep_layout::rank_major) {
    return packed_row(call, plan, row_at(ep, origin.source, origin.slot), origin.source, j);
  }
  return (u64{origin.source} * fixed(ep.tokens) + origin.slot) * fixed(ep.backs) + back;
}

// Lists the caller's rows for a received one: those of its local experts in order of choice, or the one
// that is their sum.
WV_DEVICE const RowList& list_inputs(const EpCall& call, const Plan& plan, const Inputs& inputs,
                                     const Origin& origin) {
  const Ep& ep = call.ep;
  const u8* row = row_at(ep, origin.source, origin.slot);
  const bool summed = fixed(ep.combine) == ep_combine::summed;
  const u32 k = fixed(ep.top_k), me = fixed(ep.rank);
  const u32* header = reinterpret_cast<const u32*>(row);
  const auto input = [&](u32 j) {
    u32 weight = bits_of(1), back = 0;
    if (!summed) {
      if (owner_or_none(ep, peek(header + 4 + j)) != me) return RowEntry{0, 0};
      weight = peek(header + 4 + k + j);
      for (u32 i = 0; i < j; ++i) back += owner_or_none(ep, peek(header + 4 + i)) == me;
    }
    return RowEntry{inputs.at(ep, input_row(call, plan, origin, j, back)), weight};
  };
  return list_rows(summed ? 1 : k, input, [] { return u64{0}; });
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

// Stores a part of the results of a received row.
WV_DEVICE void store_results(const EpCall& call, const Plan& plan, const Inputs& inputs,
                             const Origin& origin, u32 part, u32 parts) {
  const Ep& ep = call.ep;
  const bool direct = is_direct(ep, origin.source);
  if (direct ? inputs.stored : fixed(ep.back_bytes) == 0) return;
  const RowList& list = list_inputs(call, plan, inputs, origin);
  const Packs packs = packs_of(result_cut(ep), part, parts);
  if (fixed(ep.combine) != ep_combine::exact) {
    sum_rows(list, answer_at(ep, origin, direct, 0, 0), packs);
    return;
  }
  u32 left = local_choices(ep, row_at(ep, origin.source, origin.slot));
  for (u32 i = 0; i < list.count && left != 0; ++i, left &= left - 1) {
    u8* to = answer_at(ep, origin, direct, lowest_bit(left), i);
    const u8* from = at<const u8>(list.at[i]);
    for (u64 n = packs.begin + thread_index(); n < packs.end; n += block_size()) {
      write16(to + n * pack_bytes, read16(from + n * pack_bytes));
    }
  }
}

// The origin of a received row; a row that names no token of its rank has none.
WV_DEVICE bool find_origin(const EpCall& call, u32 source, u32 slot, Origin& origin) {
  const EpRow row = row_from(call, source, slot);
  origin = {source, slot, row.token, row.ranks};
  const u32 answer = answer_of(call.ep, origin, 0);
  return row.token < fixed(call.ep.tokens) && answer < fixed(call.ep.answers);
}

// Posts the results of a received row that lie in the stage or where the caller has them, on one thread.
WV_DEVICE Status post_results(const EpCall& call, const Plan& plan, const Inputs& inputs, u32 source,
                              u32 slot) {
  const Ep& ep = call.ep;
  Origin origin;
  if (is_direct(ep, source) || !find_origin(call, source, slot, origin)) return Status{};
  const bool exact = fixed(ep.combine) == ep_combine::exact;
  u32 left = exact ? local_choices(ep, row_at(ep, source, slot)) : 1;
  Status status;
  for (u32 back = 0; left != 0 && status.ok(); ++back, left &= left - 1) {
    const u32 j = lowest_bit(left);
    u8* to = result_at(ep, origin.token, answer_of(ep, origin, j));
    const u8* from = stage_back_at(ep, source, slot, back);
    if (fixed(ep.back_bytes) == 0) {
      from = at<const u8>(inputs.at(ep, input_row(call, plan, origin, j, back)));
    }
    status = put(thread, heap_of(ep), to, from, u64{fixed(ep.hidden)} * 2, source, unsignalled,
                 call.timeout);
  }
  if (!status.ok()) give_up_on(call, state_of(ep)->missing, source);
  return status;
}

// Rows of one source whose results are in the stage and not yet posted.
struct Tile {
  u32 source, begin, end;
};
WV_DEVICE Status post_tile(const EpCall& call, const Plan& plan, const Inputs& inputs, Tile& tile) {
  Status first;
  sync_block();
  for (u32 slot = tile.begin + thread_index(); slot < tile.end; slot += block_size()) {
    first_of(first, post_results(call, plan, inputs, tile.source, slot));
  }
  tile.begin = tile.end;
  return first;
}

// By the last block of a lane: tells every rank that its rows are consumed and its results there; those
// that sent rows first. A rank is told once all of its blocks are in this call: until then some may look
// for the last call's word.
WV_DEVICE Status tell_results(const EpCall& call, const Plan& plan) {
  const Ep& ep = call.ep;
  HeapDeadline deadline = patience(call, for_rows);
  u64 sources = 0;
  for (u32 rank = 0; rank < fixed(ep.ranks); ++rank) {
    if (peek(plan.rows_from + rank) != 0) sources |= u64{1} << rank;
  }
  Status first;
  for (u32 turn = 0; turn < 2; ++turn) {
    const u64 to = turn == 0 ? sources : all_ranks(ep) & ~sources;
    const u64 late = block.broadcast(missing_ranks(call));
    const u64 missing = await_rows(call, to & ~late, deadline, first);
    first_of(first, tell_ranks(call, fixed(ep.returned), to, [&](u32 rank) {
               return lanes_of(call) | (has_rank(missing, rank) ? ep_refused : 0);
             }));
  }
  return first;
}

// Weighted sum of the results of a token.
WV_DEVICE void sum_results(const EpCall& call, const Plan& plan, void* sums, u64 from, u32 token,
                           u32 part, u32 parts) {
  const Ep& ep = call.ep;
  const bool exact = fixed(ep.combine) == ep_combine::exact;
  const u32 k = fixed(ep.top_k);
  const u64 ranks = peek(plan.ranks + token);
  const auto result = [&](u32 i) {
    u32 weight = bits_of(1), answer = i, rank = i;
    if (exact) {
      rank = owner_or_none(ep, peek(plan.experts + token * k + i));
      weight = peek(plan.weights + token * k + i);
    } else {
      answer = popcount(ranks & ((u64{1} << i) - 1));
    }
    if (rank >= fixed(ep.ranks) || !has_rank(ranks & from, rank)) return RowEntry{0, 0};
    return RowEntry{reinterpret_cast<u64>(result_at(ep, token, answer)), weight};
  };
  const RowList& list = list_rows(exact ? k : fixed(ep.ranks), result, [] { return u64{0}; });
  sum_rows(list, static_cast<u8*>(sums) + u64{token} * fixed(ep.hidden) * 2,
           packs_of(result_cut(ep), part, parts));
}


// Sends the results of all received rows back.
WV_DEVICE Status send_results(const EpCall& call, Inputs inputs) {
  const Ep& ep = call.ep;
  const Plan plan = plan_of(call);
  Status first = is_aligned(inputs.rows) ? Status{} : Status::of(outcome::bad_address);
  if (!first.ok()) inputs.capacity = 0;
  Tile tile{0, 0, 0};
  const auto post = [&] { first_of(first, post_tile(call, plan, inputs, tile)); };
  received_rows(
      call, plan, result_cut(ep),
      [&](u32 source) {
        if (tile.begin != tile.end) post();
        tile = {source, 0, 0};
        return !has_rank(block.broadcast(missing_ranks(call)), source);
      },
      [&](u32 source, u32 slot, u32 part, u32 parts) {
        Origin origin;
        if (tile.begin == tile.end) tile = {source, slot, slot};
        if (find_origin(call, source, slot, origin)) {
          store_results(call, plan, inputs, origin, part, parts);
        }
        if (fixed(ep.staged) == 0) return;
        tile.end = slot + 1;
        if (tile.end - tile.begin == tile_rows) post();
      });
  if (tile.begin != tile.end) post();
  if (last_of_lane(call, state_of(ep)->returned)) first_of(first, tell_results(call, plan));
  return first;
}

}  // namespace impl

WV_DEVICE Status combine_send(const EpCall& call, const void* rows, u64 capacity) {
  return impl::send_results(call, {rows, capacity, false});
}
WV_DEVICE Status combine_send_stored(const EpCall& call, const void* rows, u64 capacity) {
  return impl::send_results(call, {rows, capacity, true});
}

WV_DEVICE void* result_row(const EpCall& call, u32 rank, u32 slot, u32 choice) {
  impl::Origin origin;
  if (!impl::is_direct(call.ep, rank) || !impl::find_origin(call, rank, slot, origin)) return nullptr;
  return impl::answer_at(call.ep, origin, true, choice, 0);
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
  u64 of = impl::all_ranks(ep) & ~block.broadcast(unanswered_ranks(call));
  const u64 late = impl::await_ranks(call, of, lacking, [&](u32 rank) {
    if (rank != impl::fixed(ep.rank) && impl::peek(plan.rows_to + rank) == 0) return true;
    u32 value = 0;
    Status status = impl::await_lanes_of(call, impl::fixed(ep.returned), rank,
                                         wait_for::ep_results, call.epoch, deadline, value);
    if (status.ok() && (value & ep_refused) != 0) status = Status::of(outcome::peer_lost);
    impl::first_of(first, status);
    return status.ok();
  });
  const impl::Units units =
      impl::units_of(call, impl::peek(plan.count), impl::result_cut(ep));
  for (u64 unit = units.begin; unit < units.end; ++unit) {
    impl::sum_results(call, plan, sums, ~late, static_cast<u32>(unit / units.parts),
                      static_cast<u32>(unit % units.parts), units.parts);
  }
  return first;
}

}  // namespace wv
