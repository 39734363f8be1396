// The rank of each row and its place there: numbers that follow from the routing alone. Each block plans
// its own tokens and counts the choices before them, so that no block waits for another to send.
#pragma once

#include "warpverbs/impl/ep_words.h"

namespace wv {
namespace impl {

constexpr u32 no_key = 0xffffffff;
constexpr u32 counted_experts = 1024;  // that are counted at a time, if rows are put in order by expert
constexpr u32 tile_choices = 1024;     // that are planned at a time

// Of a plan, in u32.
struct PlanPlaces {
  u64 experts, weights, slots, ranks, begins, bases, words;

  WV_HD static constexpr PlanPlaces of(u64 tokens, u64 top_k, u64 ranks, u64 local) {
    PlanPlaces at{};
    const u64 choices = tokens * top_k;
    at.ranks = 2 + 2 * ep_ranks;
    at.experts = at.ranks + 2 * tokens;
    at.weights = at.experts + choices;
    at.slots = at.weights + choices;
    at.begins = at.slots + choices;
    at.bases = at.begins + local * ranks;
    at.words = at.bases + local;
    return at;
  }
};
WV_HD constexpr u64 ep_plan_bytes(u64 tokens, u64 top_k, u64 ranks, u64 local) {
  return (PlanPlaces::of(tokens, top_k, ranks, local).words * 4 + 255) / 256 * 256;
}

// The part of a dispatch that its combine needs. Fields of tokens are written by all blocks that send them;
// `count` and `rows_to` by the last one in rank-major layout, else by the first block, as are the others. There
// are two, so that a block that begins a call does not disturb one that ends the last.
struct Plan {
  u32* count;      // of tokens
  u32* rows_to;    // of each rank
  u32* rows_from;  // of each rank; not in rank-major layout
  u64* ranks;      // of each token
  u32* experts;    // of each choice, no_key for none
  u32* weights;    // of each choice, the bits
  u32* slots;      // of the first choice of each rank of a token: its row there; no_key of others
  u32* begins;     // of each local expert and source: rows of earlier sources
  u32* bases;      // of each local expert
};

WV_DEVICE Plan plan_of(const EpCall& call) {
  const Ep& ep = call.ep;
  u32* plan = at<u32>(fixed(ep.plans) + (call.epoch & 1) * fixed(ep.plan_bytes));
  const PlanPlaces at = PlanPlaces::of(fixed(ep.tokens), fixed(ep.top_k), fixed(ep.ranks),
                                       fixed(ep.most_experts));
  return {plan,
          plan + 2,
          plan + 2 + ep_ranks,
          reinterpret_cast<u64*>(plan + at.ranks),
          plan + at.experts,
          plan + at.weights,
          plan + at.slots,
          plan + at.begins,
          plan + at.bases};
}

// Whether received rows are put in order by expert.
WV_DEVICE bool is_packed(const Ep& ep) { return fixed(ep.layout) != ep_layout::rank_major; }

WV_DEVICE u32 peek(const u32* word) { return load<order::relaxed, scope::gpu>(word); }
WV_DEVICE u64 peek(const u64* word) { return load<order::relaxed, scope::gpu>(word); }
WV_DEVICE void poke(u32* word, u32 value) { store<order::relaxed, scope::gpu>(word, value); }
WV_DEVICE void poke(u64* word, u64 value) { store<order::relaxed, scope::gpu>(word, value); }

// Warps that work on rows and choices: those that have all their lanes.
WV_DEVICE u32 warps_of_block() { return block_size() / warp_size; }
WV_DEVICE Status check_block() {
  return warps_of_block() != 0 ? Status{} : Status::of(outcome::too_long);
}

// A block's plan of some tokens, and what comes before them.
struct Tile {
  u64 ranks[tile_choices];    // of each token
  u32 experts[tile_choices];  // of each choice, no_key for none
  u32 slots[tile_choices];    // of each choice that is the first of its rank: its row there
  u32 places[tile_choices];   // of each choice: rows of this rank for the expert before it
  u8 owners[tile_choices];    // of each choice that is the first of its rank: that rank; no_owner
  u32 rows[counted_experts];  // of each expert
  u32 rows_to[ep_ranks];
};
constexpr u8 no_owner = 0xff;

WV_DEVICE Tile& shared_tile() {
  WV_SHARED(Tile, tile);
  return tile;
}

// The lanes of a warp as choices of some tokens, side by side.
struct ChoiceLanes {
  u32 top_k, tokens;  // of the warp
  u32 token, choice;  // of the lane; token is `tokens` of lanes that are left over
  lane_mask before;   // lower lanes of the same token

  WV_DEVICE static ChoiceLanes of(const Ep& ep) {
    const u32 k = fixed(ep.top_k), token = lane_id() / k, choice = lane_id() % k;
    const lane_mask lower = lane_bit(lane_id()) - 1;
    return {k, warp_size / k, token, choice, lower & ~(lane_bit(token * k) - 1)};
  }
};

// A lane's choice: no_key or no_rank if it is none, or not the first of its rank. And the lanes that
// count for the same expert or rank.
struct Choice {
  u32 expert, owner;
  lane_mask same_expert, same_owner;
};
WV_DEVICE Choice choice_of(const EpCall& call, const ChoiceLanes& lanes, u32 expert, Status& status) {
  bool routed = expert < fixed(call.ep.experts);
  const lane_mask same = match_any(all_lanes(), expert);
  const bool twice = routed && (same & lanes.before) != 0;
  if (twice || (!routed && expert != no_key)) status = Status::of(outcome::bad_routing);
  u32 owner = owner_of(call.ep, expert);
  if (!routed || twice) owner = no_rank;
  routed = owner != no_rank && has_rank(call.members, owner);
  if (!routed) owner = no_rank;
  const lane_mask kept = ballot(all_lanes(), routed);
  const lane_mask owners = match_any(all_lanes(), owner);
  const bool first = routed && (owners & lanes.before) == 0;
  const lane_mask firsts = ballot(all_lanes(), first);
  return {routed ? expert : no_key, first ? owner : no_rank, same & kept, owners & firsts};
}

// Calls `each(token, choice)` for tokens [begin, end) in order, a few at a time on the lanes of a warp, by
// every warp of `warps` that is number `warp`. All lanes come along; tokens of some are not below `end`.
template <class Each>
WV_DEVICE void each_choice(const EpCall& call, const EpTokens& tokens, u32 begin, u32 end, u32 warp,
                           u32 warps, Status& status, Each each) {
  const ChoiceLanes lanes = ChoiceLanes::of(call.ep);
  const u32* experts = reinterpret_cast<const u32*>(tokens.experts);
  const u32 step = warps * lanes.tokens;
  const auto expert_at = [&](u32 first) {
    const u32 token = first + lanes.token;
    const bool mine = lanes.token < lanes.tokens && token < end;
    return mine ? experts[token * lanes.top_k + lanes.choice] : no_key;
  };
  const u32 from = begin + warp * lanes.tokens;
  u32 expert = from < end ? expert_at(from) : no_key;
  for (u32 first = from; first < end; first += step) {
    // The next load is under way meanwhile.
    const u32 next = first + step < end ? expert_at(first + step) : no_key;
    each(lanes, first + lanes.token, choice_of(call, lanes, expert, status));
    expert = next;
  }
}

// The ranks to which a token goes, by one lane.
WV_DEVICE u64 ranks_of_token(const EpCall& call, const EpTokens& tokens, u32 token) {
  constexpr u32 n = 8;  // loads that are under way at a time
  const u32 k = fixed(call.ep.top_k);
  const u32* experts = reinterpret_cast<const u32*>(tokens.experts) + token * k;
  u64 ranks = 0;
  WV_ROLLED
  for (u32 from = 0; from < k; from += n) {
    u32 held[n];
    WV_UNROLL
    for (u32 j = 0; j < n; ++j) held[j] = experts[from + j < k ? from + j : k - 1];
    WV_UNROLL
    for (u32 j = 0; j < n; ++j) {
      const u32 owner = owner_or_none(call.ep, held[j]);
      if (owner != no_rank) ranks |= u64{1} << owner;
    }
  }
  return ranks & call.members;
}

// By warp `warp` of `warps`: how many rows tokens [0, end) have for each rank, a token on each lane.
WV_DEVICE void count_by_rank(const EpCall& call, const EpTokens& tokens, Tile& tile, u32 end, u32 warp, u32 warps) {
  for (u32 first = warp * warp_size; first < end; first += warps * warp_size) {
    const u32 token = first + lane_id();
    const u64 to = token < end ? ranks_of_token(call, tokens, token) : 0;
    for (u32 rank = 0; rank < fixed(call.ep.ranks); ++rank) {
      const lane_mask rows = ballot(all_lanes(), has_rank(to, rank));
      if (lane_id() == rank % warp_size && rows != 0) add_shared(&tile.rows_to[rank], popcount(rows));
    }
  }
}

// By a block: how many rows tokens [0, end) have for each rank and, if rows are put in order by expert, for each of
// counted_experts experts from `first` on.
WV_DEVICE Status count_before(const EpCall& call, const EpTokens& tokens, Tile& tile, u32 end,
                              u32 first) {
  Status status;
  const bool packed = is_packed(call.ep);
  const u32 warps = warps_of_block(), experts = packed ? counted_experts : 0;
  for (u32 i = thread_index(); i < experts; i += block_size()) tile.rows[i] = 0;
  for (u32 i = thread_index(); i < ep_ranks; i += block_size()) tile.rows_to[i] = 0;
  sync_block();
  const auto count = [&](const ChoiceLanes&, u32, Choice choice) {
    if (choice.expert - first < counted_experts && rank_in(choice.same_expert) == 0) {
      add_shared(&tile.rows[choice.expert - first], popcount(choice.same_expert));
    }
    if (choice.owner != no_rank && rank_in(choice.same_owner) == 0) {
      add_shared(&tile.rows_to[choice.owner], popcount(choice.same_owner));
    }
  };
  if (warp_index() < warps && packed) each_choice(call, tokens, 0, end, warp_index(), warps, status, count);
  if (warp_index() < warps && !packed) count_by_rank(call, tokens, tile, end, warp_index(), warps);
  sync_block();
  return status;
}

// Ranks of a lane's token.
WV_DEVICE u64 ranks_of(const ChoiceLanes& lanes, u32 owner) {
  u64 ranks = 0;
  for (u32 j = 0; j < lanes.top_k; ++j) {
    const u32 other = shfl(all_lanes(), owner, (lanes.token * lanes.top_k + j) % warp_size);
    if (other != no_rank) ranks |= u64{1} << other;
  }
  return ranks;
}

// By a warp: the places of choices of experts from `first` on; with the first of them also everything
// else of a tile, and the call's plan of its tokens.
WV_DEVICE Status number_tile(const EpCall& call, const EpTokens& tokens, Tile& tile, u32 begin,
                             u32 end, u32 first) {
  const Ep& ep = call.ep;
  const Plan plan = plan_of(call);
  const bool exact = fixed(ep.combine) == ep_combine::exact;
  const u32 experts = is_packed(ep) ? counted_experts : 0;
  Status status;
  each_choice(call, tokens, begin, end, 0, 1, status, [&](const ChoiceLanes& lanes, u32 token, Choice choice) {
    const bool mine = lanes.token < lanes.tokens && token < end;
    const u32 number = token * lanes.top_k + lanes.choice, i = number - begin * lanes.top_k;
    const bool counts = choice.expert - first < experts;
    const u32 rank = rank_in(choice.same_expert);
    const u32 place = counts ? tile.rows[choice.expert - first] : 0;
    const u32 slot = choice.owner != no_rank ? tile.rows_to[choice.owner] : 0;
    const u64 ranks = first == 0 ? ranks_of(lanes, choice.owner) : 0;
    sync_warp(all_lanes());
    if (counts) {
      tile.places[i] = place + rank;
      if (rank == 0) tile.rows[choice.expert - first] = place + popcount(choice.same_expert);
    }
    if (first == 0 && mine) {
      const u32 row = choice.owner != no_rank ? slot + rank_in(choice.same_owner) : no_key;
      if (row == slot) tile.rows_to[choice.owner] = slot + popcount(choice.same_owner);
      tile.experts[i] = choice.expert;
      tile.slots[i] = row;
      tile.owners[i] = choice.owner != no_rank ? static_cast<u8>(choice.owner) : no_owner;
      poke(plan.experts + number, choice.expert);
      poke(plan.slots + number, row);
      if (exact) {
        poke(plan.weights + number, peek(reinterpret_cast<const u32*>(tokens.weights) + number));
      }
      if (lanes.choice == 0) {
        tile.ranks[token - begin] = ranks;
        poke(plan.ranks + token, ranks);
      }
    }
    sync_warp(all_lanes());
  });
  return status;
}

// By a block: plans tokens [begin, end), at most tile_tokens. `counted` is how many tokens have been
// counted. The first warp may be behind the others: they wait for it before they read the tile.
WV_DEVICE u32 tile_tokens(const Ep& ep) { return tile_choices / fixed(ep.top_k); }
WV_DEVICE Status plan_tile(const EpCall& call, const EpTokens& tokens, Tile& tile, u32 begin, u32 end,
                           u32& counted) {
  // No place in a group is asked for in rank-major layout.
  const u32 experts = is_packed(call.ep) ? fixed(call.ep.experts) : 1;
  Status first;
  // The last tile's readers are done; of the first one, those of what the block announces.
  if (counted != no_key || is_packed(call.ep)) sync_block();
  // A warp counts few tokens alone: no other waits for it, or for one that is busy otherwise.
  if (!is_packed(call.ep) && begin <= warp_size) {
    if (warp_index() == 0) {
      for (u32 rank = lane_id(); rank < ep_ranks; rank += warp.size()) tile.rows_to[rank] = 0;
      sync_warp(all_lanes());
      count_by_rank(call, tokens, tile, begin, 0, 1);
      sync_warp(all_lanes());
      first = number_tile(call, tokens, tile, begin, end, 0);
    }
    counted = end;
    return first;
  }
  for (u32 expert = 0; expert < experts; expert += counted_experts) {
    if (expert != 0) sync_block();
    if (counted != begin || experts > counted_experts) {
      first_of(first, count_before(call, tokens, tile, begin, expert));
    }
    if (warp_index() == 0) {
      first_of(first, number_tile(call, tokens, tile, begin, end, expert));
    }
  }
  counted = end;
  return first;
}

// By a block: how many rows each rank is sent, as counted in a tile.
WV_DEVICE void keep_counts(const EpCall& call, const Tile& tile, u32 count) {
  const Plan plan = plan_of(call);
  for (u32 rank = thread_index(); rank < fixed(call.ep.ranks); rank += block_size()) {
    poke(plan.rows_to + rank, count != 0 ? tile.rows_to[rank] : 0);
  }
  if (thread_index() == 0) poke(plan.count, count);
}

// By the first block: the same, and how many for each expert.
WV_DEVICE Status count_sends(const EpCall& call, const EpTokens& tokens, Tile& tile, u32 count) {
  const Ep& ep = call.ep;
  const u32 experts = fixed(ep.experts);
  Status first;
  for (u32 from = 0; from < experts; from += counted_experts) {
    sync_block();
    first_of(first, count_before(call, tokens, tile, count, from));
    for (u32 i = thread_index(); i < counted_experts && from + i < experts; i += block_size()) {
      const u32 owner = owner_of(ep, from + i);
      poke(counts_to(call, owner) + (from + i - first_expert(ep, owner)), tile.rows[i]);
    }
  }
  keep_counts(call, tile, count);
  return first;
}

}  // namespace impl
}  // namespace wv
