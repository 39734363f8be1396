// Transfers between this rank and one other, given addresses and keys alone: no heap is known here,
// and no view of registered memory (nixl.h). Direct: the peer's memory is mapped, and lanes store to
// it. RDMA: a queue pair's.
#pragma once

#include "warpverbs/heap.h"
#include "warpverbs/impl/atomic.h"
#include "warpverbs/impl/copy.h"
#include "warpverbs/impl/signal.h"

namespace wv {
namespace impl {

// Part of a range that lies under one key.
struct Piece {
  u64 addr;
  u32 key;
  u64 bytes;
};

// A range under one key.
struct OneKey {
  u64 addr;
  u32 key;

  WV_DEVICE Piece piece(u64 done) const { return {addr + done, key, ~u64{0}}; }
};

// Messages of long transfers; a multiple of every path MTU.
constexpr u64 max_piece = u64{1} << 30;

WV_DEVICE u64 least(u64 a, u64 b) { return a < b ? a : b; }

WV_DEVICE constexpr bool allows(route::any, reach r) { return r != reach::none; }
WV_DEVICE constexpr bool allows(route::direct, reach r) { return r == reach::direct; }
WV_DEVICE constexpr bool allows(route::rdma, reach r) { return r == reach::rdma; }

// `body` by one thread of the group, after what the members did; its status for all.
template <class Coop, class Body>
WV_DEVICE Status by_leader(const Coop& coop, Body body) {
  coop.assemble();
  return once(coop, body);
}

// ---- direct

// The members' earlier writes are part of it, and on return all have read the source.
template <class Coop>
WV_DEVICE void copy_together(const Coop& coop, void* to, const void* from, u64 bytes) {
  coop.assemble();
  copy(coop, to, from, bytes);
  coop.sync();
}

// Release: all that the caller did or synchronised with before is visible to a reader of the signal.
template <order O>
WV_DEVICE void signal_word(u64* word, SignalAdd what) {
  increase<O, scope::system>(word, what.value);
}
template <order O>
WV_DEVICE void signal_word(u64* word, SignalSet what) {
  store<O, scope::system>(word, what.value);
}

// Acquire, pairs with the release of kernels' signals and with the NIC's write of its own.
WV_DEVICE u64 value_of(const Signal* at) {
  const vec16 words = load16<order::acquire, scope::system>(at);
  return words.lo + words.hi;
}

// Copies `bytes`, 0 for none, and signals: who sees the signal, by the acquire of read_signal, sees
// them and what the members did before.
template <class Coop, class Op>
WV_DEVICE void copy_and_signal(const Coop& coop, void* to, const void* from, u64 bytes, u64* word,
                               Op what) {
  coop.assemble();
  if (bytes != 0) {
    copy(coop, to, from, bytes);
    coop.sync();
  }
  if (coop.thread_rank() == 0) signal_word<order::release>(word, what);
  go_on_together(coop);
}

// ---- RDMA

// The queue pair at `index` of a table of addresses.
WV_DEVICE const Qp& qp_of(u64 table, u32 index) { return *at<const Qp>(at<const u64>(table)[index]); }

// By lanes each for itself, or by one lane for its group.
template <bool Each, class Op>
WV_DEVICE Posted post_one(const Qp& qp, const Op& op, Flags flags, Deadline deadline) {
  if constexpr (Each) return post_each(qp, op, flags, deadline);
  else return post_fitting(qp, Alone{}, op, flags, deadline);
}

// As many messages as keys and max_piece make necessary; `last(op)` posts the last one, and what it
// returns is returned. Nothing is posted for 0 bytes: 0 WQEBBs.
template <bool Each, class Near, class Far, class Last>
WV_DEVICE Posted post_pieces(const Qp& qp, mlx5::opcode what, const Near& near,
                             const Far& far, u64 bytes, Flags flags, Deadline deadline, Last last) {
  Posted posted{};
  for (u64 done = 0; done < bytes;) {
    const Piece here = near.piece(done), there = far.piece(done);
    const u64 n = least(least(here.bytes, there.bytes), least(bytes - done, max_piece));
    done += n;
    const Rdma op{{here.addr, here.key}, {there.addr, there.key}, static_cast<u32>(n), what};
    posted = done == bytes ? last(op) : post_one<Each>(qp, op, flags | unsignalled, deadline);
    if (!posted.ok()) return posted;
  }
  return posted;
}

// WRITE or READ of a range.
template <bool Each, class Near, class Far>
WV_DEVICE Posted post_range(const Qp& qp, mlx5::opcode what, const Near& near,
                            const Far& far, u64 bytes, Flags flags, Deadline deadline) {
  return post_pieces<Each>(qp, what, near, far, bytes, flags, deadline, [&](const Rdma& op) {
    return post_one<Each>(qp, op, flags, deadline);
  });
}

// WRITE of a range, then a signal, which is the only one of 0 bytes.
template <bool Each, class Near, class Far, class Op>
WV_DEVICE Posted post_range_signal(const Qp& qp, const Near& near,
                                   const Far& far, u64 bytes, Remote signal_at, Op what,
                                   Flags flags, Deadline deadline) {
  const auto signal = signal_op(qp, signal_at, what);
  if (bytes == 0) return post_one<Each>(qp, signal, flags, deadline);
  constexpr auto write = mlx5::opcode::rdma_write;
  return post_pieces<Each>(qp, write, near, far, bytes, flags, deadline, [&](const Rdma& op) {
    return post_one<Each>(qp, Pair<Rdma, decltype(signal_op(qp, signal_at, what))>{op, signal},
                    flags, deadline);
  });
}

}  // namespace impl
}  // namespace wv
