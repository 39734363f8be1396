// Places of a channel, and waiting for the words of other ranks.
#pragma once

#include "warpverbs/ep.h"

// A kernel that measures defines it before it includes ep.h: how far a block is in a call.
#ifndef WV_EP_PHASE
#define WV_EP_PHASE(phase) static_cast<void>(0)
#endif

namespace wv {
namespace impl {

WV_DEVICE const Heap& heap_of(const Ep& ep) { return *at<const Heap>(fixed(ep.heap)); }
WV_DEVICE EpState* state_of(const Ep& ep) { return at<EpState>(fixed(ep.state)); }

// Words of one kind that `writer` writes, a signal for each lane.
WV_DEVICE Signal* words_of(const Ep& ep, u64 kind, u32 writer) {
  return at_offset<Signal>(heap_of(ep), kind + u64{writer} * fixed(ep.line));
}
// Whether rank `to` is reached by loads and stores.
WV_DEVICE bool is_direct(const Ep& ep, u32 to) {
  const Way way = way_to<route::any>(heap_of(ep), to);
  return way.status.ok() && way.direct;
}
WV_DEVICE u64 direct_address(const Ep& ep, void* own, u32 to) {
  return reinterpret_cast<u64>(way_to<route::any>(heap_of(ep), to).at(static_cast<u8*>(own)));
}

// Row `slot` of those that `source` sends to one rank.
WV_DEVICE u8* row_at(const Ep& ep, u32 source, u32 slot) {
  const u64 row = u64{source} * fixed(ep.tokens) + slot;
  return at_offset<u8>(heap_of(ep), fixed(ep.rows) + row * fixed(ep.row_bytes));
}
// Result `answer` of row `slot` that was sent to `from`. Each rank writes its own places alone, so that one
// that is not heard any more harms nobody.
WV_DEVICE u8* result_at(const Ep& ep, u32 from, u32 slot, u32 answer) {
  const u64 row = (u64{from} * fixed(ep.tokens) + slot) * fixed(ep.answers) + answer;
  return at_offset<u8>(heap_of(ep), fixed(ep.results) + row * fixed(ep.hidden) * 2);
}
// The same of row `slot` from `source` as it leaves by a NIC.
WV_DEVICE u8* stage_back_at(const Ep& ep, u32 source, u32 slot, u32 answer) {
  const u64 row = (u64{source} * fixed(ep.tokens) + slot) * fixed(ep.back_bytes);
  return at_offset<u8>(heap_of(ep), fixed(ep.stage_back) + row + u64{answer} * fixed(ep.hidden) * 2);
}
WV_DEVICE u8* stage_at(const Ep& ep, u32 token) {
  return at_offset<u8>(heap_of(ep), fixed(ep.stage) + u64{token} * fixed(ep.row_bytes));
}
// Rows of `source` for each local expert, u32; and the same as they leave for `target`, where those of
// the last call may still be on their way.
WV_DEVICE u32 counts_bytes(const Ep& ep) { return (fixed(ep.most_experts) * 4 + 15) / 16 * 16; }
WV_DEVICE u32* counts_from(const Ep& ep, u32 source) {
  return at_offset<u32>(heap_of(ep), fixed(ep.counts) + u64{source} * counts_bytes(ep));
}
WV_DEVICE u32* counts_to(const EpCall& call, u32 target) {
  const Ep& ep = call.ep;
  const u64 row = (call.epoch & 1) * u64{fixed(ep.ranks)} + target;
  return at_offset<u32>(heap_of(ep), fixed(ep.counts_out) + row * counts_bytes(ep));
}

// Ranks that have one expert more than the others, the first ones.
WV_DEVICE u32 larger_ranks(const Ep& ep) {
  return fixed(ep.experts) - fixed(ep.least_experts) * fixed(ep.ranks);
}
// Owner of an expert; of what is no expert, any number. A division takes a microsecond of a call's few, and so do
// branches with loads of their own: experts of the first ranks have the larger of both quotients in one way, those of
// the others in the other.
WV_DEVICE u32 owner_of(const Ep& ep, u32 expert) {
  const u32 more = larger_ranks(ep), behind = expert > more ? expert - more : 0;
  const u32 among_larger = static_cast<u32>(expert * fixed(ep.owner_scales[0]) >> 32);
  const u32 among_least = static_cast<u32>(behind * fixed(ep.owner_scales[1]) >> 32);
  return among_larger > among_least ? among_larger : among_least;
}

// no_rank for -1 and for what is no expert.
WV_DEVICE u32 owner_or_none(const Ep& ep, u32 expert) {
  const u32 owner = owner_of(ep, expert);
  return expert < fixed(ep.experts) ? owner : no_rank;
}

WV_DEVICE bool has_rank(u64 ranks, u32 rank) { return (ranks >> rank & 1) != 0; }

// A call's lanes: queue pairs in use, blocks that share one, and that of this block. The last block's is the
// first.
WV_DEVICE u32 lanes_of(const EpCall& call) {
  const u32 all = fixed(call.ep.lanes);
  return call.share.count < all ? call.share.count : all;
}
WV_DEVICE u32 lane_of(const EpCall& call) { return (call.share.count - 1 - call.share.index) % lanes_of(call); }
WV_DEVICE u32 blocks_of_lane(const EpCall& call) {
  return (call.share.count - lane_of(call) - 1) / lanes_of(call) + 1;
}

WV_DEVICE SignalSet word_of(const EpCall& call, u32 value) {
  return SignalSet{EpWord::of(value, call.epoch, call.generation).raw};
}

constexpr u32 epoch_mask = 0xffffff;
constexpr u32 lane_bits = 8;            // of the value of a word that counts lanes

// Fourths of a call's timeout that a wait may take. Waits for results are longer than those for rows,
// which come before a result can be given, so that a rank that is lost is named, and no other.
constexpr u32 for_credit = 1, for_rows = 2, for_results = 4;

WV_DEVICE u64 timeout_of(const EpCall& call) {
  return call.timeout.ns != 0 ? call.timeout.ns : fixed(heap_of(call.ep).timeout_ns);
}
WV_DEVICE HeapDeadline patience(const EpCall& call, u32 fourths) {
  return HeapDeadline::of(timeout_of(call) / 4 * fourths, Timeout{});
}

// How far `seen` is ahead of `expected`; negative if it is behind.
WV_DEVICE i32 epochs_ahead(u32 seen, u32 expected) {
  return static_cast<i32>((seen - expected) << 8) >> 8;
}

WV_DEVICE void first_of(Status& first, Status next) {
  if (first.ok()) first = next;
}

// Counts for how long the first block waits for a rank, of which one thread at a time does so.
struct Stopwatch {
  u64* waited;
  u64 before, begun;  // read before the wait, behind which nothing more is loaded

  WV_DEVICE Stopwatch(const EpCall& call, u32 rank)
      : waited(call.share.index == 0 ? state_of(call.ep)->waited + rank : nullptr),
        before(waited != nullptr ? load<order::relaxed, scope::gpu>(waited) : 0),
        begun(waited != nullptr ? now_ns() : 0) {}
  WV_DEVICE ~Stopwatch() {
    if (waited != nullptr) store<order::relaxed, scope::gpu>(waited, before + (now_ns() - begun));
  }
};

// Waits for `word` of rank `from` in `epoch`, on one thread. `value` is the word's.
WV_DEVICE Status await_word_of(const EpCall& call, const Signal* word, u32 from, wait_for what,
                               u32 epoch, HeapDeadline& deadline, u32& value) {
  const Heap& heap = heap_of(call.ep);
  const HeapWait wait{what, from, word, EpWord::of(0, epoch, call.generation).raw};
  EpWord seen{};
  const auto look = [&] { return read_signal(word); };
  const auto holds = [&](u64 raw) {
    seen = EpWord{raw};
    return seen.generation() == call.generation && epochs_ahead(seen.epoch(), epoch) >= 0;
  };
  Status status;
  if (!holds(look())) {
    const Stopwatch time(call, from);
    status = await_word(heap, wait, deadline, look, holds);
  }
  if (status.ok() && seen.epoch() != epoch) {
    status = Status::of(outcome::skew);
    record_fault(heap, wait, status, seen.raw);
  }
  value = seen.value();
  return status;
}

// The same for as many lanes as the first of them says. `value` is the first's, refused if any is.
WV_DEVICE Status await_lanes_of(const EpCall& call, u64 kind, u32 from, wait_for what, u32 epoch,
                                HeapDeadline& deadline, u32& value) {
  const Signal* words = words_of(call.ep, kind, from);
  Status status = await_word_of(call, words, from, what, epoch, deadline, value);
  const u32 lanes = value & ((u32{1} << lane_bits) - 1);
  for (u32 lane = 1; lane < lanes && lane < fixed(call.ep.lanes) && status.ok(); ++lane) {
    u32 others = 0;
    status = await_word_of(call, words + lane, from, what, epoch, deadline, others);
    value |= others & ep_refused;
  }
  return status;
}

// Waits, by a block, for all ranks of the set `of`: `one(rank)` on any thread says whether it came.
// Those that did not are added to *lacking; if there are some, its content is returned. The last threads
// wait, for what the first ones of the block may do before.
template <class One>
WV_DEVICE u64 await_ranks(const EpCall& call, u64 of, u64* lacking, One one) {
  bool late = false;
  for (u32 rank = block_size() - 1 - thread_index(); rank < fixed(call.ep.ranks);
       rank += block_size()) {
    if (!has_rank(of, rank) || one(rank)) continue;
    (void)fetch_or<order::relaxed, scope::gpu>(lacking, u64{1} << rank);
    late = true;
  }
  if (!block.any(late)) return 0;
  return block.broadcast(load<order::relaxed, scope::gpu>(lacking));
}

// A block that does not do its part: there are no results for anyone, and the call will not count as one that
// has ended.
WV_DEVICE void leave_incomplete(const EpCall& call) {
  store<order::relaxed, scope::gpu>(state_of(call.ep)->left_out + (call.epoch & 1), u8{1});
}
WV_DEVICE bool is_incomplete(const EpCall& call) {
  return load<order::relaxed, scope::gpu>(state_of(call.ep)->left_out + (call.epoch & 1)) != 0;
}

// Waits, on one thread, until a word of the state that blocks of this rank write is `value`.
template <class T>
WV_DEVICE Status await_own(const EpCall& call, const T* word, u64 value, HeapDeadline& deadline) {
  const HeapWait wait{wait_for::ep_plan, fixed(call.ep.rank), word, value};
  return await_word(
      heap_of(call.ep), wait, deadline,
      // Acquire, pairs with the release of publish_plan and of Beginning.
      [&] { return u64{load<order::acquire, scope::gpu>(word)}; },
      [&](u64 seen) { return seen == value; });
}

// Waits, by a block, for a plan that the first block of this launch makes: *word is then its epoch. One
// thread looks: all that look at a word hold up who works in that memory.
WV_DEVICE Status await_plan(const EpCall& call, const u64* word) {
  HeapDeadline deadline = patience(call, 2 * for_results);
  const Status status = once(block, [&] { return await_own(call, word, call.epoch, deadline); });
  if (!status.ok()) leave_incomplete(call);
  return status;
}
// Behind what the members of the block wrote.
WV_DEVICE void publish_plan(const EpCall& call, u64* word) {
  sync_block();
  if (thread_index() == 0) store<order::release, scope::gpu>(word, u64{call.epoch});
}

// Results that are read where they were made, by ranks that loads lead to: in rank-major layout, where they lie in the
// channel. In its word for counts, of which that layout has none, a rank says that it no longer waits for one that may
// still read.
WV_DEVICE bool is_pulled(const Ep& ep) { return fixed(ep.outputs) != 0; }
WV_DEVICE u64* left_word(const Ep& ep, u32 writer) { return &words_of(ep, fixed(ep.announced), writer)->direct; }
// Row `number` of the own results.
WV_DEVICE u8* output_at(const Ep& ep, u64 number) {
  return at_offset<u8>(heap_of(ep), fixed(ep.outputs) + number * fixed(ep.hidden) * 2);
}

// Tells a rank that rows it may still read will be overwritten.
WV_DEVICE void leave_behind(const EpCall& call, u32 rank) {
  const Ep& ep = call.ep;
  if (!is_pulled(ep) || !is_direct(ep, rank)) return;
  u64* word = at<u64>(direct_address(ep, left_word(ep, fixed(ep.rank)), rank));
  store<order::relaxed, scope::system>(word, word_of(call, 1).value);
  // Release, before what the caller writes behind this call; pairs with end_reads.
  fence<order::release, scope::system>();
}
// Whether a rank had left this one behind when all was read that was read before the fence.
WV_DEVICE bool is_left_by(const EpCall& call, u32 rank) {
  const EpWord word{load<order::relaxed, scope::system>(left_word(call.ep, rank))};
  return word.value() != 0 && word.generation() == call.generation && epochs_ahead(word.epoch(), call.epoch) > 0;
}
// Acquire: a row that was overwritten has brought the word before it.
WV_DEVICE void end_reads() { fence<order::acquire, scope::system>(); }
// Ranks that have left this one behind, on the lanes of a warp.
WV_DEVICE u64 left_behind(const EpCall& call) {
  if (!is_pulled(call.ep)) return 0;
  end_reads();
  u64 left = 0;
  for (u32 first = 0; first < fixed(call.ep.ranks); first += warp_size) {
    const u32 rank = first + lane_id();
    const bool now = rank < fixed(call.ep.ranks) && is_left_by(call, rank);
    left |= u64{ballot(all_lanes(), now)} << first;
  }
  return left;
}

// By a block that has done its part: on its first warp, whether it is the last one of its lane. All that
// the others of the lane wrote and posted is then before what this warp signals.
WV_DEVICE bool last_of_lane(const EpCall& call, u32* done) {
  sync_block();
  if (warp_index() != 0) return false;
  bool last = false;
  if (lane_id() == 0) {
    u32* count = done + lane_of(call);
    const u32 blocks = blocks_of_lane(call);
    // Release of what this block wrote; acquire of what the others did.
    last = blocks == 1 || fetch_add<order::acq_rel, scope::gpu>(count, 1) + 1 == blocks;
    if (last && blocks != 1) store<order::relaxed, scope::gpu>(count, 0);
  }
  return warp.any(last);
}

// A lane's words of `kind` to ranks. It is made before last_of_lane: behind an acquire all that kernels read as
// constants is far away once more. A lane tells a rank by `release`, then `tell`.
struct Telling {
  const EpCall& call;
  u64 kind;
  u32 lanes;
  u64* near;  // to the rank of the lane's number, if stores lead there

  WV_DEVICE static Telling of(const EpCall& call, u64 kind) {
    const Heap& heap = heap_of(call.ep);
    Telling telling{call, kind, lanes_of(call), nullptr};
    Signal* word = words_of(call.ep, kind, fixed(call.ep.rank)) + lane_of(call);
    const Way way = way_to_signal<route::any>(heap, word, 0, lane_id());
    const bool stores = way.status.ok() && way.direct && !signals_by_rdma(way.peer);
    if (stores) telling.near = &way.at(word)->direct;
    return telling;
  }
  // All that this lane did or synchronised with before is there for who sees the rank's word. Loads that the word's
  // value needs may be under way meanwhile.
  WV_DEVICE void release(u32 rank) const {
    // Release, pairs with the acquire of read_signal.
    if (rank == lane_id() && near != nullptr) fence<order::release, scope::system>();
  }
  WV_DEVICE Status tell(u32 rank, u32 value) const {
    if (rank == lane_id() && near != nullptr) {
      signal_word<order::relaxed>(near, word_of(call, value));
      return Status{};
    }
    Signal* word = words_of(call.ep, kind, fixed(call.ep.rank)) + lane_of(call);
    return signal(thread, heap_of(call.ep), word, word_of(call, value), rank, unsignalled, call.timeout);
  }
};

}  // namespace impl
}  // namespace wv
