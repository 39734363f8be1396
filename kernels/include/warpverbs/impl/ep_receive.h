// Bodies of ep.h: what a dispatch receives.
#pragma once

#include "warpverbs/impl/ep_dispatch.h"

namespace wv {
namespace impl {

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

// Rows that a rank has sent. A word of this call stays until this rank has given its results.
WV_DEVICE u32 rows_of(const EpCall& call, u32 source) {
  if (is_packed(call.ep)) return peek(plan_of(call).rows_from + source);
  const vec16 words = load16<scope::system>(words_of(call.ep, fixed(call.ep.arrived), source));
  const EpWord word{words.lo + words.hi};
  const u32 rows = word.value() >> lane_bits;
  const bool now = word.epoch() == call.epoch && word.generation() == call.generation;
  return now && rows <= fixed(call.ep.tokens) ? rows : 0;
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

// Whether this rank has an expert.
WV_DEVICE bool is_local(const Ep& ep, u32 expert) {
  return expert - first_expert(ep, fixed(ep.rank)) < experts_of(ep, fixed(ep.rank));
}

// Number of the row that a received row has in the caller's packed rows for a choice: an expert and the row's place
// among those of the source. no_key if the expert is not one of this rank's.
WV_DEVICE u32 packed_row(const EpCall& call, const Plan& plan, u32 source, u32 expert, u32 place) {
  const Ep& ep = call.ep;
  if (!is_local(ep, expert)) return no_key;
  const u32 local = expert - first_expert(ep, fixed(ep.rank)), ranks = fixed(ep.ranks);
  const u32* begins = plan.begins + local * ranks + source;
  // All loads are under way at a time. Behind the last begin there are bases.
  const u32 begin = peek(begins), next = peek(begins + 1), base = peek(plan.bases + local);
  const u32 end = source + 1 < ranks ? next : no_key;
  // A rank's header must not lead out of its own places.
  return place < fixed(ep.tokens) && begin + place < end ? base + begin + place : no_key;
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
  const u32 k = fixed(ep.top_k);
  if (lane_id() < k) {
    const u32* header = reinterpret_cast<const u32*>(row);
    const u32* choice = header + 4 + lane_id();
    const u32 token = peek(header), expert = peek(choice), place = peek(choice + 2 * k);
    const u32 to = packed_row(call, plan, source, expert, place);
    if (to < packed.capacity) {
      mine = {reinterpret_cast<u64>(packed.rows) + to * bytes, to};
      if (part == 0) poke(packed.tokens + to, token);
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
    const bool came = waited.ok() && value >> lane_bits <= fixed(ep.tokens);
    if (!came) leave_behind(call, rank);
    return came;
  });
}

// Calls `each(source, slot, part, parts)` by a warp for each of this block's share of the received rows of
// every source of the set `which()`, which the block's threads agree on, and whose rows this block or a plan has
// counted. Before the first of a source, by all members, `begin(source, last)` says whether to take its rows; `last`: of
// no other source any are taken behind it. `done`: of by_warps, with the source. Rows of the source `start` come first.
template <class Which, class Begin, class Each, class Done>
WV_DEVICE void received_rows(const EpCall& call, u32 start, Which which, Begin begin, Each each, Done done) {
  const u32 ranks = fixed(call.ep.ranks);
  u64 from = 0;
  for (u32 first = 0; first < ranks; first += warp.size()) {
    // Each lane looks at a source of its own.
    const u32 i = first + lane_id(), own = start + i < ranks ? start + i : start + i - ranks;
    const u32 rows = i < ranks ? rows_of(call, own) : 0;
    if (first == 0) from = which();
    const bool takes = i < ranks && has_rank(from, own);
    const Units mine = takes ? units_of(receivers_of(call, own, rows), rows) : Units{1, 0, 0};
    for (lane_mask left = ballot(all_lanes(), mine.begin != mine.end); left != 0; left &= left - 1) {
      const u32 lane = lowest_bit(left), source = shfl(all_lanes(), own, lane);
      const u32 parts = shfl(all_lanes(), mine.parts, lane);
      const u32 units = shfl(all_lanes(), mine.begin, lane), end = shfl(all_lanes(), mine.end, lane);
      if (!begin(source, (left & (left - 1)) == 0 && first + warp.size() >= ranks)) continue;
      by_warps(
          call.ep, units, end, [&](u32 unit) { each(source, unit / parts, unit % parts, parts); },
          [&](u32 some, u32 end_of) { done(source, some, end_of); });
    }
  }
}

// By a block: waits for rows, and puts them by expert. Ranks for whose rows it has not waited are left in `of`.
WV_DEVICE Status unpack(const EpCall& call, const EpPacked& packed, HeapDeadline& deadline, u64& of) {
  const Ep& ep = call.ep;
  Status first;
  if (call.share.index == 0) {
    first = count_rows(call, deadline);
    place_experts(call, packed);
    publish_plan(call, &state_of(ep)->counted);
  } else {
    const Status counted = await_plan(call, &state_of(ep)->counted);
    if (!counted.ok()) return counted;
  }
  WV_EP_PHASE(counted);
  const Plan plan = plan_of(call);
  received_rows(
      // The own rank has its rows at once.
      call, fixed(ep.rank), [&] { return call.members; },
      [&](u32 source, bool last) {
        // With the last one the block waits for all that are left, which costs no time of its own.
        const u64 now = last ? of : u64{1} << source, late = await_rows(call, now, deadline, first);
        of &= ~now;
        WV_EP_PHASE(arrived);
        return !has_rank(late, source);
      },
      [&](u32 source, u32 slot, u32 part, u32 parts) {
        unpack_row(call, plan, packed, source, slot, part, parts);
      },
      [](u32, u32, u32) {});
  return first;
}
}  // namespace impl

WV_DEVICE u32 rows_from(const EpCall& call, u32 rank) {
  return impl::rows_of(call, rank);
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

WV_DEVICE Status dispatch_recv(const EpCall& call, const EpPacked& packed) {
  const Ep& ep = call.ep;
  impl::HeapDeadline deadline = impl::patience(call, impl::for_rows);
  Status first = impl::check_block();
  const bool lacks_scales = impl::fixed(ep.scale_words) != 0 && packed.scales == nullptr;
  if (impl::is_packed(ep) && (!impl::is_aligned(packed.rows) || lacks_scales)) {
    first = Status::of(outcome::bad_address);
  }
  u64 of = call.members;
  if (!first.ok()) impl::leave_incomplete(call);
  else if (impl::is_packed(ep)) first = impl::unpack(call, packed, deadline, of);
  // Behind that a block may tell all ranks that it has given its results.
  if (of != 0) impl::await_rows(call, of, deadline, first);
  WV_EP_PHASE(arrived);
  return first;
}

}  // namespace wv
