// Bodies of ep.h: calls, and the dispatch.
#pragma once

#include "warpverbs/impl/ep_cast.h"

namespace wv {
namespace impl {

constexpr u32 tile_rows = 32;  // that a warp posts for one rank under one doorbell

// Whether rank `to` is reached by loads and stores.
WV_DEVICE bool is_direct(const Ep& ep, u32 to) {
  const Way way = way_to<route::any>(heap_of(ep), to);
  return way.status.ok() && way.direct;
}
WV_DEVICE u64 direct_address(const Ep& ep, void* own, u32 to) {
  return reinterpret_cast<u64>(way_to<route::any>(heap_of(ep), to).at(static_cast<u8*>(own)));
}

// Word i of a row's header.
WV_DEVICE u32 header_word(const Plan& plan, u32 token, u32 k, u32 i) {
  const u64 ranks = peek(plan.ranks + token);
  if (i < 4) {
    return i == 0 ? token : i == 1 ? 0 : static_cast<u32>(i == 2 ? ranks : ranks >> 32);
  }
  const u32 field = (i - 4) / k, choice = token * k + (i - 4) % k;
  return peek((field == 0 ? plan.experts : field == 1 ? plan.weights : plan.places) + choice);
}

// Stores a part of a token's row to every direct rank of `to` that it goes to, and to the stage if it
// goes to another.
WV_DEVICE void store_row(const EpCall& call, const Plan& plan, const EpTokens& tokens, u64 to,
                         u32 token, u32 part, u32 parts) {
  const Ep& ep = call.ep;
  const u32 k = fixed(ep.top_k);
  const u64 ranks = peek(plan.ranks + token) & to;
  bool by_nic = false;
  const auto target = [&](u32 j) {
    const u32 slot = peek(plan.slots + token * k + j);
    if (slot == no_key) return RowEntry{0, 0};
    const u32 owner = owner_of(ep, peek(plan.experts + token * k + j));
    if (!has_rank(ranks, owner)) return RowEntry{0, 0};
    const bool direct = is_direct(ep, owner);
    by_nic |= !direct;
    return RowEntry{direct ? direct_address(ep, row_at(ep, fixed(ep.rank), slot), owner) : 0, 0};
  };
  const RowList& list = list_rows(k, target, [&] {
    const bool any = ballot(all_lanes(), by_nic) != 0;
    return any ? reinterpret_cast<u64>(stage_at(ep, token)) : 0;
  });
  const Packs packs = packs_of(payload_cut(ep), part, parts);
  const u64 header_bytes = fixed(ep.header_bytes), payload_bytes = fixed(ep.payload_bytes);
  const bool cast = fixed(ep.payload) == ep_payload::cast;
  const u8* row = static_cast<const u8*>(tokens.rows) + token * payload_bytes * (cast ? 2 : 1);
  if (cast) spread_cast(ep, list, header_bytes, row, packs);
  else spread(list, header_bytes, row, packs);
  if (part != 0) return;
  if (fixed(ep.payload) == ep_payload::fp8) {
    const u32 words = fixed(ep.scale_words);
    for (u32 i = thread_index(); i < words; i += block_size()) {
      const u32 scale = peek(tokens.scales + u64{token} * words + i);
      for (u32 n = 0; n < list.count; ++n) {
        store<order::relaxed, scope::system>(
            at<u32>(list.at[n] + header_bytes + payload_bytes) + i, scale);
      }
    }
  }
  for (u32 i = thread_index(); i < 4 + 3 * k; i += block_size()) {
    const u32 word = header_word(plan, token, k, i);
    for (u32 n = 0; n < list.count; ++n) {
      store<order::relaxed, scope::system>(at<u32>(list.at[n]) + i, word);
    }
  }
}

// A failed put: its rank is not told that the rows have come.
WV_DEVICE void give_up_on(const EpCall& call, u64* lacking, u32 rank) {
  (void)fetch_or<order::relaxed, scope::gpu>(lacking + (call.epoch & 1), u64{1} << rank);
}

// Posts the rows of tokens [begin, end), at most a tile, that lie in the stage: by a warp for each rank.
WV_DEVICE Status post_rows(const EpCall& call, const Plan& plan, u64 to, u32 begin, u32 end) {
  const Ep& ep = call.ep;
  const u32 k = fixed(ep.top_k), warps = (block_size() + warp_size - 1) / warp_size;
  Status first;
  sync_block();
  for (u32 rank = warp_index(); rank < fixed(ep.ranks); rank += warps) {
    if (!has_rank(to, rank) || is_direct(ep, rank)) continue;
    for (u32 token = begin + lane_id(); token < end; token += warp.size()) {
      u32 slot = no_key;
      for (u32 i = token * k; i < token * k + k && slot == no_key; ++i) {
        const u32 here = peek(plan.slots + i);
        if (here != no_key && owner_of(ep, peek(plan.experts + i)) == rank) slot = here;
      }
      if (slot == no_key) continue;
      const Status status = put(thread, heap_of(ep), row_at(ep, fixed(ep.rank), slot),
                                stage_at(ep, token), fixed(ep.row_bytes), rank, unsignalled,
                                call.timeout);
      if (!status.ok()) give_up_on(call, state_of(ep)->unanswered, rank);
      first_of(first, status);
    }
  }
  return first;
}

// Stores and posts this block's share of the rows to the ranks of `to`.
WV_DEVICE Status send_rows(const EpCall& call, const Plan& plan, const EpTokens& tokens, u64 to) {
  const Units units = units_of(call, peek(plan.count), payload_cut(call.ep));
  const bool staged = fixed(call.ep.staged) != 0;
  Status first;
  u64 posted = units.begin;
  for (u64 unit = units.begin; unit < units.end; ++unit) {
    store_row(call, plan, tokens, to, static_cast<u32>(unit / units.parts),
              static_cast<u32>(unit % units.parts), units.parts);
    const u64 done = unit + 1;
    if (!staged || (done != units.end && done - posted < tile_rows)) continue;
    // A staged row has one part.
    first_of(first, post_rows(call, plan, to, static_cast<u32>(posted), static_cast<u32>(done)));
    posted = done;
  }
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
  if (payload == ep_payload::cast && block_size() < cast_team) return Status::of(outcome::too_long);
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
  }
  sync_block();
  if (thread_index() == 0) {
    const u32 align = fixed(ep.align), largest = ranks * fixed(ep.tokens);
    u32 base = 0;
    for (u32 e = 0; e < local; ++e) {
      poke(plan.bases + e, base);
      poke(packed.bases + e, base);
      const u32 rows = peek(packed.counts + e);
      const bool flat = fixed(ep.layout) == ep_layout::flat;
      base += flat ? (rows + align - 1) / align * align : largest;
    }
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

// The scales of a received row to those of its places, which the list numbers.
WV_DEVICE void unpack_scales(const Ep& ep, const EpPacked& packed, const RowList& list,
                             const u8* scales) {
  const u32 words = fixed(ep.scale_words), together = fixed(ep.scale_rows);
  for (u32 i = thread_index(); i < words; i += block_size()) {
    const u32 scale = peek(reinterpret_cast<const u32*>(scales) + i);
    for (u32 n = 0; n < list.count; ++n) {
      const u64 to = list.weight[n];
      // `scale_rows` may be a little more than the rows of a group.
      const u64 rows = fixed(ep.layout) == ep_layout::flat
                           ? together
                           : u64{fixed(ep.ranks)} * fixed(ep.tokens);
      const u64 at = together == 0 ? to * words + i
                                   : (to / rows * words + i) * together + to % rows;
      poke(packed.scales + at, scale);
    }
  }
}

// A part of a received row to each of its places.
WV_DEVICE void unpack_row(const EpCall& call, const Plan& plan, const EpPacked& packed, u32 source,
                          u32 slot, u32 part, u32 parts) {
  const Ep& ep = call.ep;
  const u8* row = row_at(ep, source, slot);
  const u64 bytes = fixed(ep.payload_bytes);
  const auto target = [&](u32 j) {
    const u32 to = packed_row(call, plan, row, source, j);
    if (to >= packed.capacity) return RowEntry{0, 0};
    if (part == 0) poke(packed.tokens + to, peek(reinterpret_cast<const u32*>(row)));
    return RowEntry{reinterpret_cast<u64>(packed.rows) + to * bytes, to};
  };
  const RowList& list = list_rows(fixed(ep.top_k), target, [] { return u64{0}; });
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

// Calls `each(source, slot, part)` for this block's share of all received rows; before the first of a
// source, by all members, `begin(source)` says whether to take its rows.
template <class Begin, class Each>
WV_DEVICE void received_rows(const EpCall& call, const Plan& plan, RowCut cut, Begin begin,
                             Each each) {
  const u32 ranks = fixed(call.ep.ranks);
  u64 all = 0;
  for (u32 source = 0; source < ranks; ++source) all += peek(plan.rows_from + source);
  const Units units = units_of(call, all, cut);
  u64 before = 0;
  for (u32 source = 0; source < ranks; ++source) {
    const u64 after = before + u64{peek(plan.rows_from + source)} * units.parts;
    const u64 from = before > units.begin ? before : units.begin, to = least(after, units.end);
    if (from < to && begin(source)) {
      for (u64 unit = from - before; unit < to - before; ++unit) {
        each(source, static_cast<u32>(unit / units.parts), static_cast<u32>(unit % units.parts),
             units.parts);
      }
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
  u32 epoch = 0;
  if (thread_index() == 0) {
    EpState* state = impl::state_of(ep);
    epoch = (load<order::relaxed, scope::gpu>(&state->epoch) + 1) & impl::epoch_mask;
    // The last block to come has seen that all others have read the word. No block comes again before:
    // at the end of a call it has waited for its own rank's results.
    if (fetch_add<order::acq_rel, scope::gpu>(&state->begun, 1) + 1 == share.count) {
      store<order::relaxed, scope::gpu>(&state->begun, 0);
      store<order::relaxed, scope::gpu>(&state->epoch, epoch);
    }
  }
  return impl::members_of({ep, share, timeout, block.broadcast(epoch), 0, 0});
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
  const u32 count = impl::count_of(tokens);
  Status first = impl::check_tokens(ep, tokens, count);
  if (call.share.index == 0) {
    impl::first_of(first, impl::plan_sends(call, tokens, first.ok() ? count : 0));
  } else {
    const Status planned = impl::await_plan(call, &impl::state_of(ep)->planned);
    if (!planned.ok()) return planned;
  }
  const impl::Plan plan = impl::plan_of(call);
  WV_EP_PHASE(planned);
  const u64 to = impl::await_credits(call, deadline, first);
  WV_EP_PHASE(credited);
  if (call.share.index == 0) impl::first_of(first, impl::announce(call, plan, to));
  impl::first_of(first, impl::send_rows(call, plan, tokens, to));
  WV_EP_PHASE(stored);
  if (impl::last_of_lane(call, impl::state_of(ep)->sent)) {
    const u64 told = call.members & ~block.broadcast(unanswered_ranks(call));
    impl::first_of(first, impl::tell_ranks(call, impl::fixed(ep.arrived), told,
                                           [&](u32) { return impl::lanes_of(call); }));
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
  if (unpack && (!impl::is_aligned(packed.rows) || lacks_scales)) {
    return Status::of(outcome::bad_address);
  }
  if (!unpack) {
    impl::await_rows(call, call.members & ~block.broadcast(missing_ranks(call)), deadline,
                     first);
    WV_EP_PHASE(arrived);
    return first;
  }
  impl::received_rows(
      call, plan, impl::payload_cut(ep),
      [&](u32 source) {
        const u64 late = impl::await_rows(call, u64{1} << source, deadline, first);
        WV_EP_PHASE(arrived);
        return !impl::has_rank(late, source);
      },
      [&](u32 source, u32 slot, u32 part, u32 parts) {
        impl::unpack_row(call, plan, packed, source, slot, part, parts);
      });
  return first;
}

}  // namespace wv
