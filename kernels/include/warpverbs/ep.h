// Expert parallelism: tokens go to the ranks of their experts, results come back summed, on a channel
// (layout/ep.h) of a symmetric heap. docs/ep.md says what is promised.
//
// A call is made by all threads of `share.count` blocks, in order: dispatch_send, dispatch_recv,
// combine_send, combine_recv, in one kernel or several. Blocks that wait for each other must all be
// resident, and have a warp's lanes or more: too_long of fewer. Rows are bf16, 16-byte aligned. Results are the same, bit for bit, whatever the number of
// blocks, the routes and the order of events.
//
// Each thread gets the status of its own first failure: keep_first. A call always ends and has all its
// effects, but for ranks that were waited for in vain, which missing_ranks and unanswered_ranks name.
#pragma once

#include "warpverbs/layout/ep.h"
#include "warpverbs/shm.h"

namespace wv {

// The blocks that make a call together: this is number `index` of `count`.
struct Share {
  u32 index, count;
};
// All blocks of the launch.
WV_DEVICE Share whole_grid() { return {block_index(), grid_size()}; }

// One dispatch and its combine. `timeout`, the heap's unless it is given, is how long results are waited
// for; what must come before them, half or a fourth as long.
struct EpCall {
  const Ep& ep;
  Share share;
  Timeout timeout;
  u32 epoch;
};

// Before dispatch_send, by all threads of all blocks: a new call.
WV_DEVICE EpCall next_call(const Ep& ep, Share share, Timeout = {});
// In kernels launched behind that one: the same call.
WV_DEVICE EpCall this_call(const Ep& ep, Share share, Timeout = {});

// The tokens of this rank. They are not read after dispatch_send.
struct EpTokens {
  const void* rows;    // [count][hidden]
  const i32* experts;  // [count][top_k], -1 for none; no expert twice in a token
  const f32* weights;  // [count][top_k]
  u32 count;
};

// Where dispatch_recv puts rows by expert. In rank-major layout there is nothing to put.
struct EpPacked {
  void* rows;    // [capacity][hidden]
  u64 capacity;  // rows beyond it are not written
  u32* counts;   // [local experts] rows of each
  u32* bases;    // [local experts] number of its first row
  u64* ranges;   // [local experts][ranks] of the rows of each rank: first << 32 | count, from the base
  u32* tokens;   // [capacity] number of the token at its rank
};

// A row as it came, in the own heap.
struct EpRow {
  u32 token;
  u64 ranks;           // to which the token went
  const i32* experts;  // [top_k]
  const f32* weights;  // [top_k]
  const void* row;     // [hidden]
};
// Behind dispatch_recv: how many rows came from a rank, and one of them.
WV_DEVICE u32 rows_from(const EpCall& call, u32 rank);
WV_DEVICE EpRow row_from(const EpCall& call, u32 rank, u32 slot);

// The first expert of a rank, and how many it has.
WV_DEVICE u32 first_expert(const Ep& ep, u32 rank);
WV_DEVICE u32 experts_of(const Ep& ep, u32 rank);

// Sends the rows. Statuses: bad_routing, after which the choice counts as -1; too_long or bad_address,
// after which there are no tokens.
WV_DEVICE Status dispatch_send(const EpCall& call, const EpTokens& tokens);
// Waits for the rows of all ranks, and puts them in order: by expert, source, token.
WV_DEVICE Status dispatch_recv(const EpCall& call, const EpPacked& packed);
// Sends results back: of rows of [capacity][hidden], numbered as dispatch_recv put them, or rank-major
// [ranks][tokens][backs][hidden] with a row for each local expert of a received row in turn.
WV_DEVICE Status combine_send(const EpCall& call, const void* rows, u64 capacity);
// Waits for the results, and adds those of each token: [tokens][hidden].
WV_DEVICE Status combine_recv(const EpCall& call, void* sums, u32 tokens);

// Sets of ranks as bits. Of dispatch_recv: whose rows are not there, though their places may be. Of
// combine_recv: whose results are not in the sums.
WV_DEVICE u64 missing_ranks(const EpCall& call);
WV_DEVICE u64 unanswered_ranks(const EpCall& call);

}  // namespace wv

#include "warpverbs/impl/ep_combine.h"
#include "warpverbs/impl/ep_dispatch.h"
