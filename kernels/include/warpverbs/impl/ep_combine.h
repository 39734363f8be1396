// Bodies of ep.h: the combine.
#pragma once

#include "warpverbs/impl/ep_dispatch.h"

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

// The choices of a received row that have a result each, as bits: with Exact the local ones, else the
// first stands for all.
WV_DEVICE u32 answering(const Ep& ep, const Origin& origin) {
  if (fixed(ep.combine) != ep_combine::exact) return 1;
  const u32* header = reinterpret_cast<const u32*>(row_at(ep, origin.source, origin.slot));
  u32 choices = 0, found = 0;
  // A rank's header must not lead out of its own places.
  for (u32 j = 0; j < fixed(ep.top_k) && found < fixed(ep.answers); ++j) {
    if (owner_or_none(ep, peek(header + 4 + j)) != fixed(ep.rank)) continue;
    choices |= u32{1} << j;
    found += 1;
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
    sum_rows(list, answer_at(ep, origin, direct, 0), packs);
    return;
  }
  const u32 answers = least(list.count, fixed(ep.answers));
  for (u32 i = 0; i < answers; ++i) {
    u8* to = answer_at(ep, origin, direct, i);
    const u8* from = at<const u8>(list.at[i]);
    for (u64 n = packs.begin + thread_index(); n < packs.end; n += block_size()) {
      write16(to + n * pack_bytes, read16(from + n * pack_bytes));
    }
  }
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
      const u64 row = input_row(call, plan, origin, lowest_bit(left), answer);
      from = at<const u8>(inputs.at(ep, row));
    }
    status = put(thread, heap_of(ep), result_at(ep, fixed(ep.rank), origin.slot, answer), from,
                 u64{rows} * fixed(ep.hidden) * 2, source, unsignalled, call.timeout);
    left = staged ? 0 : left & (left - 1);
  }
  if (!status.ok()) give_up_on(call, state_of(ep)->missing, source);
  return status;
}

// Rows of one source whose results are stored and not yet posted.
struct Tile {
  u32 source, begin, end;
};
WV_DEVICE Status post_tile(const EpCall& call, const Plan& plan, const Inputs& inputs, Tile& tile) {
  Status first;
  sync_block();
  for (u32 slot = tile.begin + thread_index(); slot < tile.end; slot += block_size()) {
    first_of(first, post_results(call, plan, inputs, Origin{tile.source, slot}));
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
    const u64 to = turn == 0 ? sources : call.members & ~sources;
    const u64 late = block.broadcast(missing_ranks(call));
    const u64 missing = await_rows(call, to & ~late, deadline, first);
    first_of(first, tell_ranks(call, fixed(ep.returned), to, [&](u32 rank) {
               return lanes_of(call) | (has_rank(missing, rank) ? ep_refused : 0);
             }));
  }
  return first;
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
        if (tile.begin == tile.end) tile = {source, slot, slot};
        store_results(call, plan, inputs, {source, slot}, part, parts);
        if (fixed(ep.staged) == 0) return;
        tile.end = slot + 1;
        if (tile.end - tile.begin == tile_rows) post();
      });
  if (tile.begin != tile.end) post();
  WV_EP_PHASE(returned);
  if (last_of_lane(call, state_of(ep)->returned)) first_of(first, tell_results(call, plan));
  return first;
}

// Weighted sum of the results of a token.
WV_DEVICE void sum_results(const EpCall& call, const Plan& plan, void* sums, u64 from, u32 token,
                           u32 part, u32 parts) {
  const Ep& ep = call.ep;
  const bool exact = fixed(ep.combine) == ep_combine::exact;
  const u32 k = fixed(ep.top_k);
  const u64 ranks = peek(plan.ranks + token);
  const u32* choices = plan.experts + token * k;
  const u32* slots = plan.slots + token * k;
  // By choice, or by rank. The first choice of a rank has the row's slot.
  const auto result = [&](u32 i) {
    const u32 rank = exact ? owner_or_none(ep, peek(choices + i)) : i;
    if (rank >= fixed(ep.ranks) || !has_rank(ranks & from, rank)) return RowEntry{0, 0};
    u32 slot = no_key, before = 0;
    for (u32 j = 0; j < (exact ? i + 1 : k); ++j) {
      if (owner_or_none(ep, peek(choices + j)) != rank) continue;
      if (slot == no_key) slot = peek(slots + j);
      else before += 1;
    }
    const u8* row = result_at(ep, rank, slot, exact ? before : 0);
    return RowEntry{reinterpret_cast<u64>(row),
                    exact ? peek(plan.weights + token * k + i) : bits_of(1)};
  };
  const RowList& list = list_rows(exact ? k : fixed(ep.ranks), result, [] { return u64{0}; });
  sum_rows(list, static_cast<u8*>(sums) + u64{token} * fixed(ep.hidden) * 2,
           packs_of(result_cut(ep), part, parts));
}

// At the end of a block's part: the last one says whether the call has all rows and results.
WV_DEVICE void end_call(const EpCall& call) {
  sync_block();
  if (thread_index() != 0) return;
  EpState* state = state_of(call.ep);
  const u32 before = fetch_add<order::acq_rel, scope::gpu>(&state->leaving, 1);
  if ((before & ~incomplete) + 1 != call.share.count) return;
  poke(&state->leaving, 0);
  const bool complete = (before & incomplete) == 0 && missing_ranks(call) == 0 && unanswered_ranks(call) == 0;
  if (complete) poke(&state->ended, call.epoch);
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
  if (!impl::is_direct(call.ep, rank)) return nullptr;
  const u32 answering = impl::answering(call.ep, origin);
  const bool exact = impl::fixed(call.ep.combine) == ep_combine::exact;
  const u32 mine = exact ? u32{1} << choice : 1;
  if ((answering & mine) == 0) return nullptr;
  return impl::answer_at(call.ep, origin, true, popcount(answering & (mine - 1)));
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
  const u64 of = call.members & ~block.broadcast(unanswered_ranks(call));
  const u64 late = impl::await_ranks(call, of, lacking, [&](u32 rank) {
    if (rank != impl::fixed(ep.rank) && impl::peek(plan.rows_to + rank) == 0) return true;
    u32 value = 0;
    Status status = impl::await_lanes_of(call, impl::fixed(ep.returned), rank,
                                         wait_for::ep_results, call.epoch, deadline, value);
    if (status.ok() && (value & ep_refused) != 0) status = Status::of(outcome::peer_lost);
    impl::first_of(first, status);
    return status.ok();
  });
  WV_EP_PHASE(answered);
  const impl::Units units =
      impl::units_of(call, impl::peek(plan.count), impl::result_cut(ep));
  for (u64 unit = units.begin; unit < units.end; ++unit) {
    impl::sum_results(call, plan, sums, ~late, static_cast<u32>(unit / units.parts),
                      static_cast<u32>(unit % units.parts), units.parts);
  }
  impl::end_call(call);
  return first;
}

}  // namespace wv
