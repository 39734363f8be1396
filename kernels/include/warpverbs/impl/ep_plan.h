// The rank of each row and its place there: numbers that follow from the routing alone. The first
// block of a rank plans, the others wait for its plan, which is in the rank's own memory. There are
// two, so that a block that begins a call does not disturb one that ends the last.
#pragma once

#include "warpverbs/impl/ep_words.h"

namespace wv {
namespace impl {

constexpr u32 no_key = 0xffffffff;

// Of a plan, in u32.
struct PlanPlaces {
  u64 experts, weights, slots, places, ranks, counters, begins, bases, words;

  WV_HD static constexpr PlanPlaces of(u64 tokens, u64 top_k, u64 experts, u64 ranks, u64 local) {
    PlanPlaces at{};
    const u64 choices = tokens * top_k;
    at.ranks = 2 + 2 * ep_ranks;
    at.experts = at.ranks + 2 * tokens;
    at.weights = at.experts + choices;
    at.slots = at.weights + choices;
    at.places = at.slots + choices;
    at.counters = at.places + choices;
    at.begins = at.counters + ep_warps * (experts + ranks);
    at.bases = at.begins + local * ranks;
    at.words = at.bases + local;
    return at;
  }
};
WV_HD constexpr u64 ep_plan_bytes(u64 tokens, u64 top_k, u64 experts, u64 ranks, u64 local) {
  return (PlanPlaces::of(tokens, top_k, experts, ranks, local).words * 4 + 255) / 256 * 256;
}

// Fields are written by the first block, behind its word `planned` or `counted`.
struct Plan {
  u32* count;     // of tokens
  u32* rows_to;   // of each rank
  u32* rows_from; // of each rank
  u64* ranks;     // of each token
  u32* experts;   // of each choice, -1 for none
  u32* weights;   // of each choice, the bits
  u32* slots;     // of the first choice of each rank of a token: its row there; no_key of others
  u32* places;    // of each choice: rows of this rank for the expert before it
  u32* counters;  // of each warp, for each expert and then each rank
  u32* begins;    // of each local expert and source: rows of earlier sources
  u32* bases;     // of each local expert
};

WV_DEVICE Plan plan_of(const EpCall& call) {
  const Ep& ep = call.ep;
  u32* plan = at<u32>(fixed(ep.plans) + (call.epoch & 1) * fixed(ep.plan_bytes));
  const PlanPlaces at = PlanPlaces::of(fixed(ep.tokens), fixed(ep.top_k), fixed(ep.experts),
                                       fixed(ep.ranks), fixed(ep.most_experts));
  return {plan,
          plan + 2,
          plan + 2 + ep_ranks,
          reinterpret_cast<u64*>(plan + at.ranks),
          plan + at.experts,
          plan + at.weights,
          plan + at.slots,
          plan + at.places,
          plan + at.counters,
          plan + at.begins,
          plan + at.bases};
}

WV_DEVICE u32 peek(const u32* word) { return load<order::relaxed, scope::gpu>(word); }
WV_DEVICE u64 peek(const u64* word) { return load<order::relaxed, scope::gpu>(word); }
WV_DEVICE void poke(u32* word, u32 value) { store<order::relaxed, scope::gpu>(word, value); }
WV_DEVICE void poke(u64* word, u64 value) { store<order::relaxed, scope::gpu>(word, value); }

// Counts the key of each lane of a warp, no_key for none, in the warp's counters. How often the key
// came before, in earlier calls and lower lanes.
WV_DEVICE u32 count_key(u32* counters, u32 key) {
  const lane_mask same = match_any(all_lanes(), key);
  const u32 rank = rank_in(same);
  const u32 before = key == no_key ? 0 : peek(counters + key);
  sync_warp(all_lanes());
  if (key != no_key && rank == 0) poke(counters + key, before + popcount(same));
  sync_warp(all_lanes());
  return before + rank;
}

// Calls `each(i, valid)` for the choices [0, count) in order, a part of them by each warp of a block,
// all lanes of which come along.
template <class Each>
WV_DEVICE void by_warps(u32 count, Each each) {
  const u32 warps = (block_size() + warp_size - 1) / warp_size;
  const u32 part = (count + warps - 1) / warps;
  const u32 begin = warp_index() * part;
  const u32 end = begin + part < count ? begin + part : count;
  for (u32 first = begin; first < end; first += warp.size()) {
    each(first + lane_id(), first + lane_id() < end);
  }
}

// One choice of a token, as the caller gives it: what it is worth. `first`: of its rank in the token.
struct Choice {
  bool good, first;
};
WV_DEVICE Choice check_choice(const Ep& ep, const u32* experts, u32 j) {
  const u32 expert = peek(experts + j);
  if (expert >= fixed(ep.experts)) return {expert == no_key, false};
  Choice found{true, true};
  for (u32 i = 0; i < j; ++i) {
    const u32 other = peek(experts + i);
    if (other >= fixed(ep.experts)) continue;
    if (other == expert) found.good = false;
    if (owner_of(ep, other) == owner_of(ep, expert)) found.first = false;
  }
  return found;
}

// Copies the routing into the plan, without what is wrong in it.
WV_DEVICE Status take_routing(const EpCall& call, const Plan& plan, const EpTokens& tokens,
                              u32 count) {
  const u32 k = fixed(call.ep.top_k);
  const u32* experts = reinterpret_cast<const u32*>(tokens.experts);
  const u32* weights = reinterpret_cast<const u32*>(tokens.weights);
  Status status;
  for (u32 i = thread_index(); i < count * k; i += block_size()) {
    const u32 j = i % k;
    const Choice choice = check_choice(call.ep, experts + (i - j), j);
    if (!choice.good) status = Status::of(outcome::bad_routing);
    const u32 expert = peek(experts + i);
    const u32 owner = choice.good ? owner_or_none(call.ep, expert) : no_rank;
    const bool routed = owner != no_rank && has_rank(call.members, owner);
    poke(plan.experts + i, routed ? expert : no_key);
    poke(plan.weights + i, peek(weights + i));
    poke(plan.slots + i, routed && choice.first ? owner : no_key);
  }
  const u32 keys = fixed(call.ep.experts) + fixed(call.ep.ranks);
  const u32 warps = (block_size() + warp_size - 1) / warp_size;
  for (u32 i = thread_index(); i < warps * keys; i += block_size()) poke(plan.counters + i, 0);
  sync_block();
  return status;
}

// Of each warp's counters, which hold how often it meets each key: how often the warps before it do.
// Totals are what each rank is sent.
WV_DEVICE void sum_counters(const EpCall& call, const Plan& plan) {
  const Ep& ep = call.ep;
  const u32 experts = fixed(ep.experts), keys = experts + fixed(ep.ranks);
  const u32 warps = (block_size() + warp_size - 1) / warp_size;
  for (u32 key = thread_index(); key < keys; key += block_size()) {
    u32 total = 0;
    for (u32 warp = 0; warp < warps; ++warp) {
      u32* counter = plan.counters + warp * keys + key;
      const u32 mine = peek(counter);
      poke(counter, total);
      total += mine;
    }
    if (key >= experts) {
      poke(plan.rows_to + (key - experts), total);
    } else {
      const u32 owner = owner_of(ep, key);
      poke(counts_to(call, owner) + (key - first_expert(ep, owner)), total);
    }
  }
  sync_block();
}

// By the first block: plans what is sent.
WV_DEVICE Status plan_sends(const EpCall& call, const EpTokens& tokens, u32 count) {
  const Ep& ep = call.ep;
  const Plan plan = plan_of(call);
  const u32 k = fixed(ep.top_k), experts = fixed(ep.experts);
  const Status status = take_routing(call, plan, tokens, count);
  u32* counters = plan.counters + warp_index() * (experts + fixed(ep.ranks));
  const auto keys_of = [&](u32 i, bool valid, auto each) {
    const u32 owner = valid ? peek(plan.slots + i) : no_key;
    const u32 place = count_key(counters, valid ? peek(plan.experts + i) : no_key);
    const u32 slot = count_key(counters, owner == no_key ? no_key : experts + owner);
    each(place, owner == no_key ? no_key : slot);
  };
  by_warps(count * k, [&](u32 i, bool valid) { keys_of(i, valid, [](u32, u32) {}); });
  sync_block();
  sum_counters(call, plan);
  // Before slots take the place of owners.
  for (u32 t = thread_index(); t < count; t += block_size()) {
    u64 ranks = 0;
    for (u32 i = t * k; i < t * k + k; ++i) {
      const u32 owner = peek(plan.slots + i);
      if (owner != no_key) ranks |= u64{1} << owner;
    }
    poke(plan.ranks + t, ranks);
  }
  sync_block();
  by_warps(count * k, [&](u32 i, bool valid) {
    keys_of(i, valid, [&](u32 place, u32 slot) {
      if (!valid) return;
      poke(plan.places + i, place);
      poke(plan.slots + i, slot);
    });
  });
  if (thread_index() == 0) {
    EpState* state = state_of(ep);
    poke(plan.count, count);
    poke(state->missing + (call.epoch & 1), 0);
    poke(state->unanswered + (call.epoch & 1), 0);
  }
  publish_plan(call, &state_of(ep)->planned);
  return status;
}

}  // namespace impl
}  // namespace wv
