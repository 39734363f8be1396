// Bodies of ep.h: calls, and the dispatch.
#pragma once

#include "warpverbs/impl/ep_cast.h"

namespace wv {
namespace impl {

// Whether rank `to` is reached by loads and stores.
WV_DEVICE bool is_direct(const Ep& ep, u32 to) {
  const Way way = way_to<route::any>(heap_of(ep), to);
  return way.status.ok() && way.direct;
}
WV_DEVICE u64 direct_address(const Ep& ep, void* own, u32 to) {
  return reinterpret_cast<u64>(way_to<route::any>(heap_of(ep), to).at(static_cast<u8*>(own)));
}

// A token's row as it leaves, by a warp.
struct Leaving {
  const EpTokens& tokens;
  const Tile& tile;
  u32 begin, token;  // of the tile; the row's

  // Word i of the header.
  WV_DEVICE u32 header_word(u32 k, u32 i) const {
    const u64 ranks = tile.ranks[token - begin];
    if (i < 4) return i == 0 ? token : i == 1 ? 0 : static_cast<u32>(i == 2 ? ranks : ranks >> 32);
    const u32 field = i < 4 + k ? 0 : i < 4 + 2 * k ? 1 : 2, j = i - 4 - field * k;
    if (j >= k) return 0;
    const u32 choice = (token - begin) * k + j;
    if (field == 1) return peek(reinterpret_cast<const u32*>(tokens.weights) + token * k + j);
    return field == 0 ? tile.experts[choice] : tile.places[choice];
  }
};

// Packs of a token's row, as they leave, behind the header of each of a list; and its scales, with the
// first of them, where the caller has them.
WV_DEVICE void store_payload(const Ep& ep, const RowList& list, const Leaving& leaving, Packs packs) {
  const u64 skip = fixed(ep.header_bytes), bytes = fixed(ep.payload_bytes);
  const u32 token = leaving.token, words = fixed(ep.scale_words);
  const bool cast = fixed(ep.payload) == ep_payload::cast;
  const u8* row = static_cast<const u8*>(leaving.tokens.rows) + token * bytes * (cast ? 2 : 1);
  if (cast) return spread_cast(ep, list, skip, row, packs);
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
// goes to another.
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
  store_payload(ep, list, leaving, packs_of(payload_cut(ep), part, parts));
  if (part != 0) return;
  const u32 packs = fixed(ep.header_bytes) / pack_bytes;
  for (u32 first = 0; first < packs; first += warp.size()) {
    const u32 i = first + lane_id();
    vec16 pack{0, 0};
    if (i < packs) {
      const auto word = [&](u32 n) { return u64{leaving.header_word(k, 4 * i + n)}; };
      pack = {word(0) | word(1) << 32, word(2) | word(3) << 32};
    }
    list.each([&](u64 target, u32) {
      if (i < packs) write16(at<u8>(target) + u64{i} * pack_bytes, pack);
    });
  }
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
      const Status status = put(thread, heap_of(ep), row_at(ep, fixed(ep.rank), slot),
                                stage_at(ep, token), fixed(ep.row_bytes), rank, unsignalled,
                                call.timeout);
      if (!status.ok()) give_up_on(call, state_of(ep)->unanswered, rank);
      first_of(first, status);
    }
  });
  return first;
}

// By the first block: tells each rank of `to` how many rows it gets for each expert.
WV_DEVICE Status announce(const EpCall& call, const Plan& plan, u64 to) {
  const Ep& ep = call.ep;
  const u32 me = fixed(ep.rank), warps = (block_size() + warp_size - 1) / warp_size;
  const bool packed = fixed(ep.layout) != ep_layout::rank_major;
  Status first;
  for (u32 rank = warp_index(); rank < fixed(ep.ranks); rank += warps) {
    if (!has_rank(to, rank)) continue;
    const u64 bytes = packed ? u64{experts_of(ep, rank)} * 4 : 0;
    const Status status = put_signal(
        warp, heap_of(ep), counts_from(ep, me), counts_to(call, rank), bytes,
        words_of(ep, fixed(ep.announced), me), word_of(call, peek(plan.rows_to + rank)), rank,
        unsignalled, call.timeout);
    first_of(first, status);
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
          const Leaving leaving{tokens, tile, token, unit / parts};
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

// By the first block: how many rows have been announced, and where those of each expert begin.
WV_DEVICE Status count_rows(const EpCall& call, HeapDeadline& deadline) {
  const Ep& ep = call.ep;
  const Plan plan = plan_of(call);
  Status first;
  for (u32 rank = thread_index(); rank < fixed(ep.ranks); rank += block_size()) {
    if (!has_rank(call.members, rank)) poke(plan.rows_from + rank, 0);
  }
  await_ranks(call, call.members, state_of(ep)->missing + (call.epoch & 1), [&](u32 rank) {
    u32 rows = 0;
    const Status status =
        await_word_of(call, words_of(ep, fixed(ep.announced), rank), rank, wait_for::ep_counts,
                      call.epoch, deadline, rows);
    first_of(first, status);
    const bool good = status.ok() && rows <= fixed(ep.tokens);
    poke(plan.rows_from + rank, good ? rows : 0);
    return good;
  });
  return first;
}

// Begins and bases of each local expert, and the caller's tables of them.
WV_DEVICE void place_experts(const EpCall& call, const EpPacked& packed) {
  const Ep& ep = call.ep;
  const Plan plan = plan_of(call);
  const u32 ranks = fixed(ep.ranks), local = experts_of(ep, fixed(ep.rank));
  const bool flat = fixed(ep.layout) == ep_layout::flat;
  const auto place = [&](u32 e, u32 base) {
    poke(plan.bases + e, base);
    poke(packed.bases + e, base);
  };
  for (u32 e = thread_index(); e < local; e += block_size()) {
    u32 total = 0;
    for (u32 source = 0; source < ranks; ++source) {
      // A rank cannot have more rows for an expert than it has rows.
      const u32 rows = peek(plan.rows_from + source), said = peek(counts_from(ep, source) + e);
      const u32 count = said < rows ? said : rows;
      poke(plan.begins + e * ranks + source, total);
      poke(packed.ranges + e * ranks + source, u64{total} << 32 | count);
      total += count;
    }
    poke(packed.counts + e, total);
    if (!flat) place(e, e * ranks * fixed(ep.tokens));
  }
  if (!flat) return;
  sync_block();
  if (warp_index() != 0) return;
  const u32 align = fixed(ep.align);
  u32 base = 0;
  for (u32 first = 0; first < local; first += warp.size()) {
    const u32 e = first + lane_id();
    const u32 mine = e < local ? (peek(packed.counts + e) + align - 1) / align * align : 0;
    u32 end = mine;
    for (u32 apart = 1; apart < warp.size(); apart *= 2) {
      const u32 lane = lane_id() >= apart ? lane_id() - apart : lane_id();
      const u32 before = shfl(all_lanes(), end, lane);
      if (lane_id() >= apart) end += before;
    }
    if (e < local) place(e, base + end - mine);
    base += shfl(all_lanes(), end, warp.size() - 1);
  }
}

// Number of the row that a received row has for choice j, in the caller's packed rows; no_key if the
// choice is not one of this rank's.
WV_DEVICE u32 packed_row(const EpCall& call, const Plan& plan, const u8* row, u32 source, u32 j) {
  const Ep& ep = call.ep;
  const u32 k = fixed(ep.top_k), me = fixed(ep.rank), ranks = fixed(ep.ranks);
  const u32* header = reinterpret_cast<const u32*>(row);
  const u32 expert = peek(header + 4 + j) - first_expert(ep, me);
  if (expert >= experts_of(ep, me)) return no_key;
  const u32 place = peek(header + 4 + 2 * k + j);
  const u32 end = source + 1 < ranks ? peek(plan.begins + expert * ranks + source + 1) : no_key;
  const u32 at = peek(plan.begins + expert * ranks + source) + place;
  // A rank's header must not lead out of its own places.
  if (place >= fixed(ep.tokens) || at >= end) return no_key;
  return peek(plan.bases + expert) + at;
}

// The scales of a received row to those of its places, which the list numbers; by a warp.
WV_DEVICE void unpack_scales(const Ep& ep, const EpPacked& packed, const RowList& list,
                             const u8* scales) {
  const u32 words = fixed(ep.scale_words), together = fixed(ep.scale_rows);
  // `scale_rows` may be a little more than the rows of a group.
  const u64 rows = fixed(ep.layout) == ep_layout::flat ? together
                                                       : u64{fixed(ep.ranks)} * fixed(ep.tokens);
  list.each([&](u64, u32 lane) {
    const u64 to = shfl(all_lanes(), list.mine.weight, lane);
    for (u32 i = lane_id(); i < words; i += warp.size()) {
      const u64 at = together == 0 ? to * words + i
                                   : (to / rows * words + i) * together + to % rows;
      poke(packed.scales + at, peek(reinterpret_cast<const u32*>(scales) + i));
    }
  });
}

// A part of a received row to each of its places, by a warp.
WV_DEVICE void unpack_row(const EpCall& call, const Plan& plan, const EpPacked& packed, u32 source,
                          u32 slot, u32 part, u32 parts) {
  const Ep& ep = call.ep;
  const u8* row = row_at(ep, source, slot);
  const u64 bytes = fixed(ep.payload_bytes);
  RowEntry mine{0, 0};
  if (lane_id() < fixed(ep.top_k)) {
    const u32 to = packed_row(call, plan, row, source, lane_id());
    if (to < packed.capacity) {
      mine = {reinterpret_cast<u64>(packed.rows) + to * bytes, to};
      if (part == 0) poke(packed.tokens + to, peek(reinterpret_cast<const u32*>(row)));
    }
  }
  const RowList list = RowList::of(mine);
  spread(list, 0, row + fixed(ep.header_bytes), packs_of(payload_cut(ep), part, parts));
  if (part == 0) unpack_scales(ep, packed, list, row + fixed(ep.header_bytes) + bytes);
}

// Ranks whose rows have not come, of a set.
WV_DEVICE u64 await_rows(const EpCall& call, u64 of, HeapDeadline& deadline, Status& status) {
  const Ep& ep = call.ep;
  return await_ranks(call, of, state_of(ep)->missing + (call.epoch & 1), [&](u32 rank) {
    u32 value = 0;
    const Status waited = await_lanes_of(call, fixed(ep.arrived), rank, wait_for::ep_rows,
                                         call.epoch, deadline, value);
    first_of(status, waited);
    return waited.ok();
  });
}

// Calls `each(source, slot, part, parts)` by a warp for each of this block's share of all received rows;
// before the first of a source, by all members, `begin(source)` says whether to take its rows. `done`: of
// by_warps, with the source.
template <class Begin, class Each, class Done>
WV_DEVICE void received_rows(const EpCall& call, const Plan& plan, Begin begin, Each each,
                             Done done) {
  const u32 ranks = fixed(call.ep.ranks);
  u32 all = 0;
  for (u32 source = 0; source < ranks; ++source) all += peek(plan.rows_from + source);
  const Units units = units_of(call, all);
  u32 before = 0;
  for (u32 source = 0; source < ranks; ++source) {
    const u32 after = before + peek(plan.rows_from + source) * units.parts;
    const u32 from = before > units.begin ? before : units.begin;
    const u32 to = after < units.end ? after : units.end;
    if (from < to && begin(source)) {
      by_warps(
          call.ep, from - before, to - before,
          [&](u32 unit) { each(source, unit / units.parts, unit % units.parts, units.parts); },
          [&](u32 some, u32 end) { done(source, some, end); });
    }
    before = after;
  }
}

// A call of the ranks that take part now. The host changes them between calls.
WV_DEVICE EpCall members_of(EpCall call) {
  const EpState* state = state_of(call.ep);
  return {call.ep, call.share, call.timeout, call.epoch, peek(&state->generation),
          peek(&state->members)};
}

}  // namespace impl

WV_DEVICE EpCall next_call(const Ep& ep, Share share, Timeout timeout) {
  EpState* state = impl::state_of(ep);
  const u32 epoch = (impl::peek(&state->epoch) + 1) & impl::epoch_mask;
  sync_block();
  // On the last thread, for what the first ones do meanwhile. The last block to come has seen that all
  // others have read the word. No block comes again before: at the end of a call it has waited for its own
  // rank's results.
  if (thread_index() == block_size() - 1 &&
      fetch_add<order::acq_rel, scope::gpu>(&state->begun, 1) + 1 == share.count) {
    store<order::relaxed, scope::gpu>(&state->begun, 0);
    // All blocks have ended the last call, so nobody asks for its sets any more.
    impl::poke(state->missing + ((epoch + 1) & 1), 0);
    impl::poke(state->unanswered + ((epoch + 1) & 1), 0);
    store<order::relaxed, scope::gpu>(&state->epoch, epoch);
  }
  return impl::members_of({ep, share, timeout, epoch, 0, 0});
}

WV_DEVICE EpCall this_call(const Ep& ep, Share share, Timeout timeout) {
  const u32 epoch = impl::peek(&impl::state_of(ep)->epoch);
  return impl::members_of({ep, share, timeout, epoch, 0, 0});
}

WV_DEVICE u32 first_expert(const Ep& ep, u32 rank) {
  const u32 each = impl::fixed(ep.experts) / impl::fixed(ep.ranks);
  const u32 more = impl::fixed(ep.experts) % impl::fixed(ep.ranks);
  return rank * each + (rank < more ? rank : more);
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

WV_DEVICE u32 rows_from(const EpCall& call, u32 rank) {
  return impl::peek(impl::plan_of(call).rows_from + rank);
}
WV_DEVICE EpRow row_from(const EpCall& call, u32 rank, u32 slot) {
  const u32 k = impl::fixed(call.ep.top_k);
  const u8* row = impl::row_at(call.ep, rank, slot);
  const u32* header = reinterpret_cast<const u32*>(row);
  const u64 ranks = u64{impl::peek(header + 3)} << 32 | impl::peek(header + 2);
  return {impl::peek(header), ranks, reinterpret_cast<const i32*>(header + 4),
          reinterpret_cast<const f32*>(header + 4 + k), row + impl::fixed(call.ep.header_bytes),
          row + impl::fixed(call.ep.header_bytes) + impl::fixed(call.ep.payload_bytes)};
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
  const bool announces = call.share.index == 0;
  if (announces) impl::first_of(first, impl::count_sends(call, tokens, impl::shared_tile(), count));
  const auto begin = [&] {
    WV_EP_PHASE(planned);
    const u64 to = impl::await_credits(call, deadline, first);
    WV_EP_PHASE(credited);
    if (announces) impl::first_of(first, impl::announce(call, impl::plan_of(call), to));
    return to;
  };
  impl::first_of(first, impl::send_rows(call, tokens, count, begin));
  WV_EP_PHASE(stored);
  if (!impl::last_of_lane(call, impl::state_of(ep)->sent)) return first;
  const u64 told = call.members & ~unanswered_ranks(call);
  for (u32 rank = lane_id(); rank < impl::fixed(ep.ranks); rank += warp.size()) {
    if (!impl::has_rank(told, rank)) continue;
    impl::first_of(first, impl::tell_rank(call, impl::fixed(ep.arrived), rank, impl::lanes_of(call)));
  }
  return first;
}

WV_DEVICE Status dispatch_recv(const EpCall& call, const EpPacked& packed) {
  const Ep& ep = call.ep;
  const bool unpack = impl::fixed(ep.layout) != ep_layout::rank_major;
  impl::HeapDeadline deadline = impl::patience(call, impl::for_rows);
  Status first;
  if (call.share.index == 0) {
    first = impl::count_rows(call, deadline);
    if (unpack) impl::place_experts(call, packed);
    impl::publish_plan(call, &impl::state_of(ep)->counted);
  } else {
    const Status counted = impl::await_plan(call, &impl::state_of(ep)->counted);
    if (!counted.ok()) return counted;
  }
  WV_EP_PHASE(counted);
  const impl::Plan plan = impl::plan_of(call);
  const bool lacks_scales = impl::fixed(ep.scale_words) != 0 && packed.scales == nullptr;
  Status fits = impl::check_block();
  if (unpack && (!impl::is_aligned(packed.rows) || lacks_scales)) {
    fits = Status::of(outcome::bad_address);
  }
  if (!fits.ok()) {
    impl::leave_incomplete(call);
    return fits;
  }
  if (!unpack) {
    impl::await_rows(call, call.members & ~block.broadcast(missing_ranks(call)), deadline,
                     first);
    WV_EP_PHASE(arrived);
    return first;
  }
  impl::received_rows(
      call, plan,
      [&](u32 source) {
        const u64 late = impl::await_rows(call, u64{1} << source, deadline, first);
        WV_EP_PHASE(arrived);
        return !impl::has_rank(late, source);
      },
      [&](u32 source, u32 slot, u32 part, u32 parts) {
        impl::unpack_row(call, plan, packed, source, slot, part, parts);
      },
      [](u32, u32, u32) {});
  return first;
}

}  // namespace wv
