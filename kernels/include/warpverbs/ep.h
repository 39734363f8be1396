// Expert parallelism: tokens go to the ranks of their experts, results come back summed, on a channel
// (layout/ep.h) of a symmetric heap. docs/ep.md says what is promised.
//
// A call is made by all threads of `share.count` blocks, in order: dispatch_send, dispatch_recv,
// combine_send, combine_recv, in one kernel or several. Blocks that wait for each other must all be
// resident, and have a warp's lanes or more: too_long of fewer. Rows are 16-byte aligned: bf16, or fp8
// e4m3 with scales, in words of 32 bits; results and sums are bf16. Results are the same, bit for bit,
// whatever the number of blocks, the routes and the order of events.
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
  u32 epoch, generation;
  u64 members;  // ranks that take part, as bits; choices of others' experts count as -1
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
  // How many there are, in memory, `count` at most; null: all of them.
  const u32* counted = nullptr;
  const u32* scales = nullptr;  // [count][scale_words], with rows that are e4m3 already
};

// Where dispatch_recv puts rows by expert. In rank-major layout there is nothing to put.
struct EpPacked {
  void* rows;    // [capacity][hidden]
  u64 capacity;  // rows beyond it are not written
  u32* counts;   // [local experts] rows of each
  u32* bases;    // [local experts] number of its first row
  u64* ranges;   // [local experts][ranks] of the rows of each rank: first << 32 | count, from the base
  u32* tokens;   // [capacity] number of the token at its rank
  u32* scales = nullptr;  // [capacity][scale_words], or in columns: docs/ep.md; with e4m3
};

// A row as it came, in the own heap.
struct EpRow {
  u32 token;
  u64 ranks;           // to which the token went
  const i32* experts;  // [top_k]
  const f32* weights;  // [top_k]
  const void* row;     // [hidden]
  const void* scales;  // [scale_words]
};
// Behind dispatch_recv and before combine_send: how many rows came from a rank, which may be any number if it is
// missing, and one of them.
WV_DEVICE u32 rows_from(const EpCall& call, u32 rank);
WV_DEVICE EpRow row_from(const EpCall& call, u32 rank, u32 slot);

// The first expert of a rank, and how many it has.
WV_DEVICE u32 first_expert(const Ep& ep, u32 rank);
WV_DEVICE u32 experts_of(const Ep& ep, u32 rank);

// Elements of u16 of a token's row and of a packed one.
WV_DEVICE u32 given_words(const Ep& ep);
WV_DEVICE u32 packed_words(const Ep& ep);
// Words of EpPacked.scales.
WV_DEVICE u64 packed_scales(const Ep& ep, u64 capacity);

// Sends the rows. Statuses: bad_routing, after which the choice counts as -1; too_long or bad_address,
// after which there are no tokens. A cast is too_long for blocks of less than 8 threads.
WV_DEVICE Status dispatch_send(const EpCall& call, const EpTokens& tokens);
// Waits for the rows of all ranks, and puts them in order: by expert, source, token.
WV_DEVICE Status dispatch_recv(const EpCall& call, const EpPacked& packed);
// Sends results back: of rows of [capacity][hidden], numbered as dispatch_recv put them, or rank-major
// [ranks][tokens][backs][hidden] with a row for each local expert of a received row in turn.
WV_DEVICE Status combine_send(const EpCall& call, const void* rows, u64 capacity);

// Where a result goes at the rank of its token, for kernels that write it there themselves: of the row
// `slot` from `rank`, for its choice with Exact, and any choice else. Null if no stores lead there: such
// a rank's results are among those that combine_send_stored is given. Not with Reduced.
WV_DEVICE void* result_row(const EpCall& call, u32 rank, u32 slot, u32 choice);
// In place of combine_send, behind the stores of this block to rows of result_row.
WV_DEVICE Status combine_send_stored(const EpCall& call, const void* rows, u64 capacity);

// Waits for the results, and adds those of each token: [tokens][hidden].
WV_DEVICE Status combine_recv(const EpCall& call, void* sums, u32 tokens);

// Sets of ranks as bits. Of dispatch_recv: whose rows are not there, though their places may be. Of
// combine_recv: whose results are not in the sums.
WV_DEVICE u64 missing_ranks(const EpCall& call);
WV_DEVICE u64 unanswered_ranks(const EpCall& call);

// Nanoseconds that the first block has waited for words of a rank, in all calls so far: more for a rank
// that is late.
WV_DEVICE u64 waited_ns(const Ep& ep, u32 rank);

}  // namespace wv

#include "warpverbs/impl/ep_combine.h"
