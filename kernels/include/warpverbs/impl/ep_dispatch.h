// Bodies of ep.h: calls, and what a dispatch sends.
#pragma once

#include "warpverbs/impl/ep_cast.h"

namespace wv {
namespace impl {

// A token's row as it leaves, by a warp.
struct Leaving {
  const EpTokens& tokens;
  const Tile& tile;
  u32 begin, token;  // of the tile; the row's
  bool packed;
};

// The words of a row's header, on the lanes of a warp those of a choice each.
struct Header {
  u32 expert, weight, place;

  WV_DEVICE static Header of(const Leaving& leaving, u32 k) {
    if (lane_id() >= k) return {0, 0, 0};
    const u32 choice = (leaving.token - leaving.begin) * k + lane_id();
    const u32* weights = reinterpret_cast<const u32*>(leaving.tokens.weights);
    const u32 place = leaving.packed ? leaving.tile.places[choice] : 0;
    return {leaving.tile.experts[choice], peek(weights + leaving.token * k + lane_id()), place};
  }
  WV_DEVICE void store_to(u32* row, const Leaving& leaving, u32 k) const {
    if (lane_id() == 0) write16(row, {leaving.token, leaving.tile.ranks[leaving.token - leaving.begin]});
    if (lane_id() >= k) return;
    u32* words = row + 4 + lane_id();
    store<order::relaxed, scope::system>(words, expert);
    store<order::relaxed, scope::system>(words + k, weight);
    store<order::relaxed, scope::system>(words + 2 * k, place);
  }
};

// A token's row, as the caller has it.
WV_DEVICE bool is_cast(const Ep& ep) { return fixed(ep.payload) == ep_payload::cast; }
WV_DEVICE const u8* given_row(const Ep& ep, const EpTokens& tokens, u32 token) {
  return static_cast<const u8*>(tokens.rows) + u64{token} * fixed(ep.payload_bytes) * (is_cast(ep) ? 2 : 1);
}

// Packs of a token's row, as they leave, behind the header of each of a list; and its scales, with the
// first of them, where the caller has them.
WV_DEVICE void store_payload(const Ep& ep, const RowList& list, const Leaving& leaving, Packs packs) {
  const u64 skip = fixed(ep.header_bytes), bytes = fixed(ep.payload_bytes);
  const u32 token = leaving.token, words = fixed(ep.scale_words);
  const u8* row = given_row(ep, leaving.tokens, token);
  if (is_cast(ep)) return spread_cast(ep, list, skip, row, packs);
  spread(list, skip, row, packs);
  if (fixed(ep.payload) != ep_payload::fp8 || packs.begin != 0) return;
  list.each([&](u64 target, u32) {
    for (u32 i = lane_id(); i < words; i += warp.size()) {
      const u32 scale = peek(leaving.tokens.scales + u64{token} * words + i);
      store<order::relaxed, scope::system>(at<u32>(target + skip + bytes) + i, scale);
    }
  });
}

// Stores a part of a token's row to every direct rank of `to` that it goes to, and to the stage if it
// goes to another. The last part brings the header.
WV_DEVICE void store_row(const EpCall& call, const Leaving& leaving, u64 to, u32 part, u32 parts) {
  const Ep& ep = call.ep;
  const u32 k = fixed(ep.top_k), token = leaving.token;
  const u32 choice = (token - leaving.begin) * k + lane_id();
  RowEntry mine{0, 0};
  bool by_nic = false;
  if (lane_id() < k && leaving.tile.owners[choice] != no_owner) {
    const u32 owner = leaving.tile.owners[choice];
    if (has_rank(to, owner)) {
      u8* row = row_at(ep, fixed(ep.rank), leaving.tile.slots[choice]);
      const Way way = way_to<route::any>(heap_of(ep), owner);
      by_nic = !way.status.ok() || !way.direct;
      if (!by_nic) mine.at = reinterpret_cast<u64>(way.at(row));
    }
  }
  // A lane that has no store lends its place to the stage.
  const lane_mask nic = ballot(all_lanes(), by_nic);
  if (by_nic && rank_in(nic) == 0) mine.at = reinterpret_cast<u64>(stage_at(ep, token));
  const RowList list = RowList::of(mine);
  const bool has_header = part + 1 == parts;
  // Its loads are under way while the payload is stored.
  Header header{0, 0, 0};
  if (has_header) header = Header::of(leaving, k);
  store_payload(ep, list, leaving, packs_of(payload_cut(ep), part, parts));
  if (!has_header) return;
  list.each([&](u64 target, u32) { header.store_to(at<u32>(target), leaving, k); });
}

// A failed put: its rank is not told that the rows have come.
WV_DEVICE void give_up_on(const EpCall& call, u64* lacking, u32 rank) {
  (void)fetch_or<order::relaxed, scope::gpu>(lacking + (call.epoch & 1), u64{1} << rank);
}

// Posts the rows of tokens [from, to), at most a tile, that lie in the stage: by a warp for each rank.
WV_DEVICE Status post_rows(const EpCall& call, const Tile& tile, u32 begin, u64 ranks, u32 from, u32 to) {
  const Ep& ep = call.ep;
  const u32 k = fixed(ep.top_k);
  Status first;
  sync_block();
  each_unit(0, fixed(ep.ranks), [&](u32 rank) {
    if (!has_rank(ranks, rank) || is_direct(ep, rank)) return;
    for (u32 token = from + lane_id(); token < to; token += warp.size()) {
      u32 slot = no_key;
      for (u32 i = (token - begin) * k; i < (token - begin) * k + k; ++i) {
        if (tile.owners[i] == rank) slot = tile.slots[i];
      }
      if (slot == no_key) continue;
      const Status status = put<route::rdma>(thread, heap_of(ep), row_at(ep, fixed(ep.rank), slot),
                                stage_at(ep, token), fixed(ep.row_bytes), rank, unsignalled,
                                call.timeout);
      if (!status.ok()) give_up_on(call, state_of(ep)->unanswered, rank);
      first_of(first, status);
    }
  });
  return first;
}

// By a warp: a rank's numbers of rows for each expert, and the word that says so.
WV_DEVICE Status announce_to(const EpCall& call, u32 rank, SignalSet word) {
  const Ep& ep = call.ep;
  const Heap& heap = heap_of(ep);
  u32* to = counts_from(ep, fixed(ep.rank));
  const u32* from = counts_to(call, rank);
  Signal* signals = words_of(ep, fixed(ep.announced), fixed(ep.rank));
  if (!is_direct(ep, rank)) {
    const u64 bytes = u64{experts_of(ep, rank)} * 4;
    return put_signal<route::rdma>(warp, heap, to, from, bytes, signals, word, rank, unsignalled, call.timeout);
  }
  u8* there = at<u8>(direct_address(ep, to, rank));
  for (u32 i = lane_id() * pack_bytes; i < counts_bytes(ep); i += warp_size * pack_bytes) {
    write16(there + i, read16(reinterpret_cast<const u8*>(from) + i));
  }
  return by_leader(warp, [&] { return signal(thread, heap, signals, word, rank, unsignalled, call.timeout); });
}

// By the first block: tells each rank of `to` how many rows it gets for each expert.
WV_DEVICE Status announce(const EpCall& call, const Plan& plan, u64 to) {
  const Ep& ep = call.ep;
  const u32 warps = (block_size() + warp_size - 1) / warp_size;
  Status first;
  for (u32 rank = warp_index(); rank < fixed(ep.ranks); rank += warps) {
    if (!has_rank(to, rank)) continue;
    first_of(first, announce_to(call, rank, word_of(call, peek(plan.rows_to + rank))));
  }
  return first;
}

// How many tokens the caller has, which may be more than there is room for.
WV_DEVICE u32 count_of(const EpTokens& tokens) {
  return tokens.counted == nullptr ? tokens.count : peek(tokens.counted);
}
// The caller's tokens, as far as they can be checked without reading them.
WV_DEVICE Status check_tokens(const Ep& ep, const EpTokens& tokens, u32 count) {
  const ep_payload payload = fixed(ep.payload);
  if (count > fixed(ep.tokens) || count > tokens.count) return Status::of(outcome::too_long);
  if (!check_block().ok()) return check_block();
  const bool lacks_scales = payload == ep_payload::fp8 && tokens.scales == nullptr;
  return is_aligned(tokens.rows) && !lacks_scales ? Status{} : Status::of(outcome::bad_address);
}

// Ranks that have consumed this rank's rows of the last call.
WV_DEVICE u64 await_credits(const EpCall& call, HeapDeadline& deadline, Status& status) {
  const Ep& ep = call.ep;
  u64* lacking = state_of(ep)->unanswered + (call.epoch & 1);
  const u64 late = await_ranks(call, call.members, lacking, [&](u32 rank) {
    u32 value = 0;
    const Status waited =
        await_lanes_of(call, fixed(ep.returned), rank, wait_for::ep_results,
                       (call.epoch - 1) & epoch_mask, deadline, value);
    first_of(status, waited);
    return waited.ok();
  });
  return call.members & ~late;
}

// By the last block that begins a call: all have ended the one before, so nobody asks for its sets any more. Says
// whether it had all rows and results, and the number of the call.
WV_DEVICE void end_last(const EpCall& call) {
  EpState* state = state_of(call.ep);
  // Acquire of what the other blocks did in the last call; pairs with the release of each in Beginning.
  fence<order::acquire, scope::gpu>();
  const u32 parity = (call.epoch - 1) & 1;
  const u32 leaving = peek(&state->leaving), left_out = load<order::relaxed, scope::gpu>(state->left_out + parity);
  const u64 lacking = peek(state->missing + parity) | peek(state->unanswered + parity);
  if (leaving == 0 && left_out == 0 && lacking == 0) poke(&state->ended, (call.epoch - 1) & epoch_mask);
  poke(state->begun + parity, 0);
  poke(&state->leaving, call.share.count);
  store<order::relaxed, scope::gpu>(state->left_out + parity, u8{0});
  poke(state->missing + parity, 0);
  poke(state->unanswered + parity, 0);
  // Other blocks read it in the next call, behind the word for results that this block has a part in.
  poke(&state->epoch, call.epoch);
}

// A block's place among those that begin a call, on one of its threads. It counts once its threads have met: all have
// read the number of the last call, and what they read in that.
struct Beginning {
  bool mine;
  u32 before;  // blocks that began before, on its way

  WV_DEVICE static u32* count_of(const EpCall& call) { return state_of(call.ep)->begun + (call.epoch & 1); }

  WV_DEVICE static Beginning of(const EpCall& call) {
    // A thread that waits for no other rank, and counts no choices if there are few.
    const u32 chosen = block_size() > warp_size ? block_size() - warp_size - 1 : 0;
    if (thread_index() != chosen) return {false, 0};
    // Release of what this block did in the last call; pairs with the acquire of await, and of end.
    fence<order::release, scope::gpu>();
    return {true, fetch_add<order::relaxed, scope::gpu>(count_of(call), 1)};
  }
  // The last block to begin ends the call before.
  WV_DEVICE void end(const EpCall& call) const {
    if (mine && before + 1 == call.share.count) end_last(call);
  }
  // Waits until all blocks of the rank have begun: before that they may read results of the last call, which ranks
  // overwrite once they are told that rows have come. If it fails nobody is told.
  WV_DEVICE Status await(const EpCall& call, HeapDeadline& deadline) const {
    if (!mine) return Status{};
    const Status begun = await_own(call, count_of(call), call.share.count, deadline);
    if (!begun.ok()) give_up_on(call, state_of(call.ep)->unanswered, fixed(call.ep.rank));
    return begun;
  }
};

// By the warp that last_of_lane chose: tells every rank that it has its rows, and in rank-major layout how many.
WV_DEVICE Status tell_rows(const EpCall& call, const Telling& telling, bool counts) {
  const Ep& ep = call.ep;
  const Plan plan = plan_of(call);
  Status first;
  for (u32 rank = lane_id(); rank < fixed(ep.ranks); rank += warp.size()) {
    const u32 rows = counts ? peek(plan.rows_to + rank) << lane_bits : 0;
    const u64 lacking = unanswered_ranks(call);
    telling.release(rank);
    const bool told = has_rank(call.members & ~lacking, rank) && !has_rank(lacking, fixed(ep.rank));
    if (told) first_of(first, telling.tell(rank, rows | telling.lanes));
  }
  return first;
}

// Plans, stores and posts this block's share of the rows, once `begin()` has said to which ranks. All of
// the block call that after the first plan, and wait for each other in it.
template <class Begin>
WV_DEVICE Status send_rows(const EpCall& call, const EpTokens& tokens, u32 count, Begin begin) {
  const Ep& ep = call.ep;
  const Units units = units_of(call, count);
  const u32 parts = units.parts, most = tile_tokens(ep);
  Tile& tile = shared_tile();
  Status first;
  u32 counted = no_key;
  u64 to = 0;
  u32 from = units.begin;
  do {
    const u32 token = from / parts, last = (units.end + parts - 1) / parts;
    const u32 after = last > token + most ? token + most : last;
    const u32 end = after * parts < units.end ? after * parts : units.end;
    if (from < end) first_of(first, plan_tile(call, tokens, tile, token, after, counted));
    if (from == units.begin) to = begin();
    else sync_block();
    by_warps(
        ep, from, end,
        [&](u32 unit) {
          const Leaving leaving{tokens, tile, token, unit / parts, is_packed(ep)};
          store_row(call, leaving, to, unit % parts, parts);
        },
        // A staged row has one part.
        [&](u32 some, u32 end_of) {
          first_of(first, post_rows(call, tile, token, to, some, end_of));
        });
    from = end;
  } while (from < units.end);
  return first;
}

}  // namespace impl

WV_DEVICE EpCall next_call(const Ep& ep, Share share, Timeout timeout) {
  EpCall call = this_call(ep, share, timeout);
  call.epoch = (call.epoch + 1) & impl::epoch_mask;
  return call;
}

WV_DEVICE EpCall this_call(const Ep& ep, Share share, Timeout timeout) {
  // The host changes who takes part between calls.
  const EpState* state = impl::state_of(ep);
  const u32 epoch = impl::peek(&state->epoch), generation = impl::peek(&state->generation);
  return {ep, share, timeout, epoch, generation, impl::peek(&state->members)};
}

WV_DEVICE u32 first_expert(const Ep& ep, u32 rank) {
  const u32 more = impl::larger_ranks(ep);
  return rank * impl::fixed(ep.least_experts) + (rank < more ? rank : more);
}
WV_DEVICE u32 experts_of(const Ep& ep, u32 rank) {
  return first_expert(ep, rank + 1) - first_expert(ep, rank);
}

WV_DEVICE u32 packed_words(const Ep& ep) { return impl::fixed(ep.payload_bytes) / 2; }
WV_DEVICE u32 given_words(const Ep& ep) {
  return packed_words(ep) * (impl::fixed(ep.payload) == ep_payload::cast ? 2 : 1);
}
WV_DEVICE u64 packed_scales(const Ep& ep, u64 capacity) {
  const u64 words = impl::fixed(ep.scale_words), together = impl::fixed(ep.scale_rows);
  if (impl::fixed(ep.layout) == ep_layout::rank_major) return 0;
  if (together == 0) return capacity * words;
  const bool flat = impl::fixed(ep.layout) == ep_layout::flat;
  return words * together * (flat ? 1 : experts_of(ep, impl::fixed(ep.rank)));
}

WV_DEVICE u64 missing_ranks(const EpCall& call) {
  return impl::peek(impl::state_of(call.ep)->missing + (call.epoch & 1));
}
WV_DEVICE u64 unanswered_ranks(const EpCall& call) {
  return impl::peek(impl::state_of(call.ep)->unanswered + (call.epoch & 1));
}

WV_DEVICE u64 waited_ns(const Ep& ep, u32 rank) {
  return rank < ep_ranks ? impl::peek(impl::state_of(ep)->waited + rank) : 0;
}

WV_DEVICE Status dispatch_send(const EpCall& call, const EpTokens& tokens) {
  const Ep& ep = call.ep;
  impl::HeapDeadline deadline = impl::patience(call, impl::for_credit);
  const u32 given = impl::count_of(tokens);
  Status first = impl::check_tokens(ep, tokens, given);
  const u32 count = first.ok() ? given : 0;
  const impl::Plan plan = impl::plan_of(call);
  const EpCall sending = impl::senders_of(call, count);
  const Share share = sending.share;
  const bool announces = impl::is_packed(ep) && call.share.index == 0, sends = share.index < share.count;
  sync_block();
  const impl::Beginning beginning = impl::Beginning::of(call);
  if (!announces && !sends) {
    beginning.end(call);
    return first;
  }
  if (announces) impl::first_of(first, impl::count_sends(call, tokens, impl::shared_tile(), count));
  const auto begin = [&] {
    WV_EP_PHASE(planned);
    beginning.end(call);
    if (sends) impl::first_of(first, beginning.await(call, deadline));
    const u64 to = impl::await_credits(call, deadline, first);
    WV_EP_PHASE(credited);
    if (announces) impl::first_of(first, impl::announce(call, plan, to));
    return to;
  };
  if (!sends) {
    begin();
    return first;
  }
  impl::first_of(first, impl::send_rows(sending, tokens, count, begin));
  // The last block has counted up to the last token.
  if (!impl::is_packed(ep) && share.index + 1 == share.count) impl::keep_counts(call, impl::shared_tile(), count);
  WV_EP_PHASE(stored);
  const impl::Telling telling = impl::Telling::of(sending, impl::fixed(ep.arrived));
  // The first lane has the last block, and says how many rows there are.
  const bool counts = !impl::is_packed(ep) && impl::lane_of(sending) == 0;
  if (impl::last_of_lane(sending, impl::state_of(ep)->sent)) {
    impl::first_of(first, impl::tell_rows(call, telling, counts));
  }
  return first;
}

}  // namespace wv
