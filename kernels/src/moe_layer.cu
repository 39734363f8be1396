// Kernels of the example moe_layer: a mixture-of-experts layer but for what moves its rows. Experts are
// small networks whose weights are made from their numbers. Rows are bf16 [rows][hidden]. Sums are made
// in one order, so that every device and every number of ranks gives the same bits.
#include "warpverbs/bf16.h"
#include "warpverbs/layout/ep.h"

using namespace wv;

// Units of an expert's inner layer.
constexpr u32 units = 32;
using Inner = f32[units];
using InnerOfAll = f32[ep_top_k][units];

// One of the weights of matrix `matrix`, from -1 to 1.
WV_DEVICE f32 weight_of(u32 matrix, u32 row, u32 column) {
  u32 mixed = (matrix * 0x9e3779b1u ^ row) * 0x85ebca6bu ^ column;
  mixed = (mixed ^ mixed >> 15) * 0xc2b2ae35u;
  return static_cast<f32>(static_cast<i32>(mixed >> 25) - 64) * (1.0f / 64);
}

// Unit i of the inner layer of an expert, of the row x.
WV_DEVICE f32 inner_unit(u32 expert, u32 i, const u16* x, u32 hidden) {
  f32 sum = 0;
  for (u32 h = 0; h < hidden; ++h) {
    sum = multiply_add(weight_of(2 * expert + 2, i, h), from_bf16(x[h]), sum);
  }
  return sum > 0 ? sum : 0;
}
// Element h of what an expert makes of a row, bf16.
WV_DEVICE u32 output_of(u32 expert, u32 h, const f32* inner) {
  f32 sum = 0;
  for (u32 i = 0; i < units; ++i) {
    sum = multiply_add(weight_of(2 * expert + 3, h, i), inner[i], sum);
  }
  return to_bf16(sum);
}

// By each thread for a token: the `top_k` experts with the largest logits, the lower of two first, and
// their weights, from 0 to 2.
WV_SAFE_KERNEL(moe_router)(const u16* rows WV_COUNT(tokens * hidden), u32 tokens, u32 hidden,
                           u32 experts, u32 top_k, i32* chosen WV_COUNT(tokens * top_k),
                           f32* weights WV_COUNT(tokens * top_k)) {
  const u64 token = global_thread();
  if (token >= tokens) return;
  const u16* x = rows + token * hidden;
  i32* best = chosen + token * top_k;
  f32* logits = weights + token * top_k;
  u32 found = 0;
  for (u32 e = 0; e < experts; ++e) {
    f32 logit = 0;
    for (u32 h = 0; h < hidden; ++h) logit = multiply_add(weight_of(1, e, h), from_bf16(x[h]), logit);
    u32 at = found < top_k ? found++ : top_k;
    for (; at > 0 && logits[at - 1] < logit; --at) {
      if (at == top_k) continue;
      best[at] = best[at - 1];
      logits[at] = logits[at - 1];
    }
    if (at == top_k) continue;
    best[at] = static_cast<i32>(e);
    logits[at] = logit;
  }
  for (u32 j = 0; j < top_k; ++j) {
    const f32 size = logits[j] < 0 ? -logits[j] : logits[j];
    logits[j] = logits[j] / (1 + size) + 1;
  }
}

// By each block for rows in turn: what the local experts, from number `first` on, make of their rows.
WV_SAFE_KERNEL(moe_experts)(const u16* packed WV_COUNT(capacity * hidden), u64 capacity, u32 hidden,
                            u32 first, u32 local, const u32* counts WV_COUNT(local),
                            const u32* bases WV_COUNT(local), u16* outputs WV_COUNT(capacity * hidden)) {
  WV_SHARED(Inner, inner);
  for (u32 e = 0; e < local; ++e) {
    for (u64 n = block_index(); n < counts[e] && bases[e] + n < capacity; n += grid_size()) {
      const u64 at = (bases[e] + n) * hidden;
      for (u32 i = thread_index(); i < units; i += block_size()) {
        inner[i] = inner_unit(first + e, i, packed + at, hidden);
      }
      sync_block();
      for (u32 h = thread_index(); h < hidden; h += block_size()) {
        outputs[at + h] = static_cast<u16>(output_of(first + e, h, inner));
      }
      sync_block();
    }
  }
}

// The whole layer for one rank's tokens without any other rank, and without choices of -1: by each block
// for tokens in turn.
WV_SAFE_KERNEL(moe_alone)(const u16* rows WV_COUNT(tokens * hidden), u32 tokens, u32 hidden, u32 top_k,
                          const i32* chosen WV_COUNT(tokens * top_k),
                          const f32* weights WV_COUNT(tokens * top_k),
                          u16* sums WV_COUNT(tokens * hidden)) {
  WV_SHARED(InnerOfAll, inner);
  if (top_k > ep_top_k) return;
  for (u64 token = block_index(); token < tokens; token += grid_size()) {
    const u64 choice = token * top_k;
    for (u32 i = thread_index(); i < units * top_k; i += block_size()) {
      const i32 expert = chosen[choice + i / units];
      if (expert < 0) continue;
      inner[i / units][i % units] =
          inner_unit(static_cast<u32>(expert), i % units, rows + token * hidden, hidden);
    }
    sync_block();
    for (u32 h = thread_index(); h < hidden; h += block_size()) {
      f32 sum = 0;
      for (u32 j = 0; j < top_k; ++j) {
        if (chosen[choice + j] < 0) continue;
        const u32 output = output_of(static_cast<u32>(chosen[choice + j]), h, inner[j]);
        sum = multiply_add(weights[choice + j], from_bf16(output), sum);
      }
      sums[token * hidden + h] = static_cast<u16>(to_bf16(sum));
    }
    sync_block();
  }
}
