// Words of expert parallelism by the model checker: the waits, arrivals, signals and counters of
// impl/ep_words.h and next_call, between two ranks on two GPUs that reach each other by stores. Rows and
// results are one plain word for each block. Blocks 0 and 1 are those of rank 0, 2 and 3 those of rank 1; those of
// a rank share a lane, or have one each.
#include "warpverbs/ep.h"

namespace {

// As in src/ep.rs.
constexpr wv::u64 heaps = 0x400000, stride = 0x100000;
constexpr wv::u64 state_at = 0x8000, alarms_at = 0x9000, heap_bytes = 0x8000;
constexpr wv::u64 arrived_at = 0x100, returned_at = 0x200, announced_at = 0x300, rows_at = 0x400, results_at = 0x500;
constexpr wv::u32 blocks = 2, calls = 2;

// Structures that kernels read as constants: memory of the checker's own process.
struct Rank {
  alignas(16) wv::u8 heap[sizeof(wv::Heap)];
  wv::Ep ep;

  Rank(wv::u32 rank, wv::u32 lanes) : heap{}, ep{} {
    const wv::u64 base = heaps + rank * stride;
    wv::Heap* here = reinterpret_cast<wv::Heap*>(heap);
    here->base = base;
    here->bytes = heap_bytes;
    here->state = base + state_at + 0x4000;
    here->alarms = base + alarms_at;
    here->timeout_ns = 1ull << 40;
    here->rank = rank;
    here->world = 2;
    here->stride = stride;
    ep.heap = reinterpret_cast<wv::u64>(here);
    ep.state = base + state_at;
    ep.announced = announced_at;
    ep.arrived = arrived_at;
    ep.returned = returned_at;
    ep.line = 32;
    ep.ranks = 2;
    ep.rank = rank;
    ep.lanes = lanes;
    ep.outputs = 0x800;
  }
};
const Rank ranks[][2] = {{Rank(0, 1), Rank(1, 1)}, {Rank(0, 2), Rank(1, 2)}};

wv::u64 row(wv::u64 rank, wv::u32 block) { return heaps + rank * stride + rows_at + 8 * block; }
wv::u64 result(wv::u64 rank, wv::u32 block) { return row(rank, block) - rows_at + results_at; }
wv::u64 value(const wv::EpCall& call, wv::u32 block) { return wv::u64{call.epoch} << 8 | block; }

void require_ok(wv::Status status, const char* what, wv::site where = wv::site::here()) {
  wv::check::require(status.ok(), what, where);
}

wv::EpCall begin(wv::u64 lanes, wv::u32 rank) {
  return wv::next_call(ranks[lanes - 1][rank].ep, {wv::block_index() % blocks, blocks}, {});
}
wv::impl::Beginning begun(const wv::EpCall& call) {
  const wv::impl::Beginning beginning = wv::impl::Beginning::of(call);
  beginning.end(call);
  const wv::u32 last = (call.epoch - 1) & wv::impl::epoch_mask;
  const bool ended = wv::impl::peek(&wv::impl::state_of(call.ep)->ended) == last;
  wv::check::require(beginning.before + 1 != blocks || ended, "the last call has ended");
  return beginning;
}

void await(const wv::EpCall& call, wv::u64 kind, wv::u32 from, wv::u32 epoch, const char* what) {
  wv::impl::HeapDeadline deadline = wv::impl::patience(call, wv::impl::for_results);
  wv::u32 lanes = 0;
  require_ok(wv::impl::await_lanes_of(call, kind, from, wv::wait_for::ep_results, epoch & 0xffffff,
                                      deadline, lanes),
             what);
}

void await_begun(const wv::EpCall& call, const wv::impl::Beginning& beginning) {
  wv::impl::HeapDeadline deadline = wv::impl::patience(call, wv::impl::for_credit);
  require_ok(beginning.await(call, deadline), "all blocks");
}

// The last block of the lane tells ranks of a set.
void tell(const wv::EpCall& call, wv::u64 kind, wv::u32* done, wv::u64 to) {
  const wv::impl::Telling telling = wv::impl::Telling::of(call, kind);
  if (!wv::impl::last_of_lane(call, done)) return;
  for (wv::u32 rank = wv::lane_id(); rank < 2; rank += wv::warp.size()) {
    if (!wv::impl::has_rank(to, rank)) continue;
    telling.release(rank);
    require_ok(telling.tell(rank, telling.lanes), "signal");
  }
}

}  // namespace

extern "C" {

// Waits for credit, writes its row to rank 1, and takes its result; a fast block begins the next call
// while the other ends the last. In the first call both send, in the second only one: the other one's row is
// written by it, too.
void wv_ep_sends(const void*, wv::u64 lanes) {
  const wv::u32 b = wv::block_index() % blocks;
  for (wv::u32 n = 0; n < calls; ++n) {
    const wv::EpCall call = begin(lanes, 0);
    const wv::impl::Beginning beginning = begun(call);
    const wv::u32 senders = n == 0 ? blocks : 1;
    const wv::EpCall sending = wv::impl::shared_by(call, b - (blocks - senders), senders);
    if (sending.share.index < senders) {
      await_begun(call, beginning);
      await(call, returned_at, 1, call.epoch - 1, "credit");
      if (senders == 1) wv::check::write(row(1, 0), value(call, 0));
      wv::check::write(row(1, b), value(call, b));
      tell(sending, arrived_at, wv::impl::state_of(call.ep)->sent, 2);
    }
    await(call, returned_at, 1, call.epoch, "results");
    wv::check::require(wv::check::read(result(0, b)) == value(call, b), "the result of this call");
    wv::impl::end_call(call);
  }
}

// Takes all rows of rank 0, and gives a result for its own.
void wv_ep_receives(const void*, wv::u64 lanes) {
  const wv::u32 b = wv::block_index() % blocks;
  for (wv::u32 n = 0; n < calls; ++n) {
    const wv::EpCall call = begin(lanes, 1);
    const wv::impl::Beginning beginning = begun(call);
    await(call, arrived_at, 0, call.epoch, "rows");
    for (wv::u32 i = 0; i < blocks; ++i) {
      wv::check::require(wv::check::read(row(1, i)) == value(call, i), "the row of this call");
    }
    wv::check::write(result(0, b), value(call, b));
    // As the own rank's word for rows says, which it does not send here.
    await_begun(call, beginning);
    // To itself as well, so that all of its blocks are in this call when one begins the next.
    tell(call, returned_at, wv::impl::state_of(call.ep)->returned, 3);
    await(call, returned_at, 1, call.epoch, "the own word");
    wv::impl::end_call(call);
  }
}

// No longer waits for rank 1, in the next call, and overwrites the result that it may still read.
void wv_ep_leaves(const void*, wv::u64 lanes) {
  wv::EpCall call = wv::this_call(ranks[lanes - 1][0].ep, {0, 1}, {});
  call.epoch = (call.epoch + 1) & wv::impl::epoch_mask;
  wv::impl::leave_behind(call, 1);
  wv::store<wv::order::relaxed, wv::scope::system>(reinterpret_cast<wv::u64*>(row(0, 0)), wv::u64{1});
}

// Reads rank 0's result where it was made, and takes it if that still was the one of this call.
void wv_ep_reads(const void*, wv::u64 lanes) {
  const wv::EpCall call = wv::this_call(ranks[lanes - 1][1].ep, {0, 1}, {});
  const wv::u64 seen = wv::load<wv::order::relaxed, wv::scope::system>(reinterpret_cast<const wv::u64*>(row(0, 0)));
  wv::impl::end_reads();
  const bool left = wv::impl::is_left_by(call, 0);
  wv::check::require(seen == 0 || left, "a result of this call, or word that it is none");
}

// The first block plans, and the other reads the plan.
void wv_ep_plans(const void*, wv::u64 lanes) {
  const wv::EpCall call = begin(lanes, 0);
  wv::u32* word = reinterpret_cast<wv::u32*>(row(0, 0));
  wv::u64* counted = &wv::impl::state_of(call.ep)->counted;
  if (call.share.index == 0) {
    wv::impl::poke(word, 7);
    wv::impl::publish_plan(call, counted);
    return;
  }
  require_ok(wv::impl::await_plan(call, counted), "a plan");
  wv::check::require(wv::impl::peek(word) == 7, "the plan is there");
}

}  // extern "C"
