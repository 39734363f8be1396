// The kernels of `warpverbs perf ep`: calls in a loop by resident blocks, each rank as a launch of its
// own, and an all-gather of as many bytes. report[0]: the first bad wv::Status; what else is in it, each
// kernel says. times: of each measured call, nanoseconds of the rank's clock.
#include "target.h"
#include "warpverbs/barrier.h"

using namespace wv;

// Of a call, in `times`. `begin_dispatch` and `begin_combine` are complements, the earliest of all
// blocks; the others are the latest of all blocks, 0 where no block was there.
enum class ep_phase : u32 {
  begin_dispatch,
  planned,   // knows what it sends
  credited,  // may write to the other ranks
  stored,    // has stored and posted its rows
  sent,      // dispatch_send is over
  counted,   // knows what it receives
  arrived,   // has seen a source's rows
  received,  // dispatch_recv is over
  begin_combine,
  returned,  // has stored and posted its results
  told,      // combine_send is over
  answered,  // has seen all results
  summed,    // combine_recv is over
};
constexpr u32 ep_phases = 13;

struct PhaseTimes {
  u64* of_call;  // null where nothing is measured
};
WV_DEVICE PhaseTimes& phase_times() {
  WV_SHARED(PhaseTimes, shared_times);
  return shared_times;
}
WV_DEVICE void raise_phase(ep_phase phase, u64 ns) {
  u64* times = phase_times().of_call;
  if (times != nullptr) raise<order::relaxed, scope::gpu>(times + static_cast<u32>(phase), ns);
}
// By all threads of a block: it has come to this phase.
WV_DEVICE void note_phase(ep_phase phase) {
  if (thread_index() == 0) raise_phase(phase, now_ns());
}

// On a GPU an image is a program of its own. On the host ep.h's bodies are those of all kernels, and there is
// only one of each.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WV_EP_PHASE(phase) ::note_phase(::ep_phase::phase)
#endif
#include "warpverbs/ep.h"

// Where the blocks of a rank meet, and all ranks with them: words of the own memory, zero before a launch.
struct Gate {
  const Heap& heap;
  u64 team_block;
  u64* come;    // blocks that have come, in all
  u64* opened;  // how often it was opened
  u64 turn = 0;

  WV_DEVICE Status await(const u64* word, u64 least) const {
    impl::HeapDeadline deadline = impl::HeapDeadline::of(heap, {});
    return impl::await_word_together(
        block, heap, impl::HeapWait{wait_for::barrier, heap.rank, word, least}, deadline,
        [&] { return load<order::acquire, scope::gpu>(word); },
        [&](u64 seen) { return seen >= least; });
  }
  // Returns once all blocks of all ranks have called.
  WV_DEVICE Status pass() {
    turn += 1;
    sync_block();
    if (thread_index() == 0) (void)fetch_add<order::acq_rel, scope::gpu>(come, u64{1});
    if (block_index() != 0) return await(opened, turn);
    Status status = await(come, turn * grid_size());
    if (status.ok()) status = sync(block, heap, Team{team_block, 0, 1, heap.world, 0});
    sync_block();
    if (thread_index() == 0) store<order::release, scope::gpu>(opened, turn);
    return status;
  }
};

// Calls that are measured.
struct EpLoop {
  u64 team_block;
  u32 warmup, iters;
  u32 aligned;  // 1: all ranks meet before each dispatch and each combine
  u32 count;    // tokens of this rank
};

// Dispatch and combine, again and again. `given`, `into`: u16 of a token's row and of a packed one; `scaled`: words
// of a token's scales, if the caller has them. `outputs`: what the experts make of the rows, given. gate[2] and
// gate[3]: the complement of the begin of the measured calls, and their end.
WV_SAFE_KERNEL(ep_calls)(const Ep* ep, EpLoop loop, u32 hidden, u32 top_k, u32 tokens, u32 given,
                         const u16* rows WV_COUNT(tokens * given), u32 scaled,
                         const u32* scales WV_COUNT(tokens * scaled),
                         const i32* experts WV_COUNT(tokens * top_k),
                         const f32* weights WV_COUNT(tokens * top_k), u32 local, u32 ranks,
                         u64 capacity, u32 into, u16* packed WV_COUNT(capacity * into),
                         u64 scale_room, u32* packed_scale WV_COUNT(scale_room),
                         u32* of_token WV_COUNT(capacity), u32* counts WV_COUNT(local),
                         u32* bases WV_COUNT(local), u64* ranges WV_COUNT(local * ranks), u64 inputs,
                         const u16* outputs WV_COUNT(inputs * hidden),
                         u16* sums WV_COUNT(tokens * hidden), u32 measured,
                         u64* times WV_COUNT(measured * 13), u64* gate WV_COUNT(4),
                         u64* report WV_COUNT(1)) {
  const u32 words = ep->payload == ep_payload::fp8 ? ep->scale_words : 0;
  if (ep->hidden != hidden || ep->top_k != top_k || ep->tokens < loop.count ||
      tokens < loop.count || experts_of(*ep, ep->rank) > local || ep->ranks != ranks ||
      given != given_words(*ep) || into != packed_words(*ep) || scaled != words ||
      (capacity != 0 && scale_room < packed_scales(*ep, capacity)) ||
      (loop.aligned != 0 && measured < loop.iters)) {
    return;
  }
  const EpTokens from{rows, experts, weights, loop.count, nullptr, scales};
  const EpPacked to{packed, capacity, counts, bases, ranges, of_token, packed_scale};
  Gate meeting{impl::heap_of(*ep), loop.team_block, gate, gate + 1};
  Status first = meeting.pass();
  for (u32 i = 0; i < loop.warmup + loop.iters && first.ok(); ++i) {
    const bool measures = i >= loop.warmup, aligned = loop.aligned != 0;
    if (thread_index() == 0) {
      u64* of_call = times + u64{i - loop.warmup} * ep_phases;
      phase_times().of_call = measures && aligned ? of_call : nullptr;
      if (i == loop.warmup) raise<order::relaxed, scope::gpu>(gate + 2, ~now_ns());
    }
    const auto step = [&](Status status, ep_phase phase) {
      impl::first_of(first, status);
      sync_block();
      note_phase(phase);
    };
    const auto begin = [&](ep_phase phase) {
      if (!aligned) return;
      impl::first_of(first, meeting.pass());
      if (thread_index() == 0) raise_phase(phase, ~now_ns());
    };
    begin(ep_phase::begin_dispatch);
    const EpCall call = next_call(*ep, whole_grid());
    step(dispatch_send(call, from), ep_phase::sent);
    step(dispatch_recv(call, to), ep_phase::received);
    begin(ep_phase::begin_combine);
    step(combine_send(call, outputs, inputs), ep_phase::told);
    step(combine_recv(call, sums, loop.count), ep_phase::summed);
    first = impl::worst_of(block, first);
  }
  if (thread_index() == 0) raise<order::relaxed, scope::gpu>(gate + 3, now_ns());
  note(report, first);
}

// The bytes that an all-gather moves: `bytes` of this rank, a multiple of 16, to every other rank.
struct Gathering {
  u64 team_block, from, to, signals, bytes;
  u32 warmup, iters;
};

// The yardstick of a dispatch: the same bytes to all other ranks, which are reached by loads and stores,
// by all blocks, and one signal behind them. times: of each measured turn the complement of its begin,
// and its end. gate[2]: blocks that are done with a turn.
WV_SAFE_KERNEL(ep_gather)(const Heap* heap, Gathering what, u32 measured,
                          u64* times WV_COUNT(measured * 2), u64* gate WV_COUNT(4),
                          u64* report WV_COUNT(1)) {
  const u32 me = heap->rank, world = heap->world;
  u8* from = at_offset<u8>(*heap, what.from);
  u8* to = at_offset<u8>(*heap, what.to + me * what.bytes);
  Signal* signals = at_offset<Signal>(*heap, what.signals);
  if (!in_heap(*heap, from, what.bytes) || !in_heap(*heap, to, what.bytes) ||
      !in_heap(*heap, signals, u64{world} * sizeof(Signal)) || measured < what.iters) {
    return;
  }
  const u64 packs = what.bytes / 16;
  const u64 begin = packs * block_index() / grid_size() * 16;
  const u64 end = packs * (block_index() + 1) / grid_size() * 16;
  Gate meeting{*heap, what.team_block, gate, gate + 1};
  Status first;
  for (u32 i = 0; i < what.warmup + what.iters && first.ok(); ++i) {
    impl::first_of(first, meeting.pass());
    u64* of_turn = i < what.warmup ? nullptr : times + u64{i - what.warmup} * 2;
    if (thread_index() == 0 && of_turn != nullptr) {
      raise<order::relaxed, scope::gpu>(of_turn, ~now_ns());
    }
    for (u32 n = 1; n < world; ++n) {
      const u32 peer = (me + n) % world;
      const Status status =
          put<route::direct>(block, *heap, to + begin, from + begin, end - begin, peer);
      impl::first_of(first, status);
    }
    sync_block();
    bool last = false;
    if (thread_index() == 0) {
      const u64 done = u64{i + 1} * grid_size();
      last = fetch_add<order::acq_rel, scope::gpu>(gate + 2, u64{1}) + 1 == done;
    }
    if (block.any(last)) {
      for (u32 n = thread_index(); n < world; n += block_size()) {
        if (n == me) continue;
        const SignalSet turn{u64{i} + 1};
        impl::first_of(first, signal<route::direct>(thread, *heap, signals + me, turn, n));
        impl::first_of(first, wait_signal(thread, *heap, signals + n, compare::ge, turn.value));
      }
      sync_block();
      if (thread_index() == 0 && of_turn != nullptr) {
        raise<order::relaxed, scope::gpu>(of_turn + 1, now_ns());
      }
    }
    first = impl::worst_of(block, first);
  }
  note(report, first);
}
