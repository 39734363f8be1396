// The posting protocol from reservation to doorbell, for lanes that post together.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/impl/reserve.h"
#include "warpverbs/impl/wqe.h"

namespace wv {
namespace impl {

constexpr u64 no_base = ~u64{0};

// Writes one lane's Op. `signalled`: a member of its group asks for a CQE. `together`: as in SendRing.
template <class Op, class Nic>
WV_DEVICE void write_op(const SendQueue<Nic>& q, Slot to, const Op& op, Flags flags, bool signalled,
                        bool together = false) {
  const u32 n = op.wqebbs();
  const bool cqe = signalled || must_signal(q, to.index, n);
  const u8 fence = flags.has(fenced) ? Nic::fence_bits : u8{0};
  const u8 event = flags.has(solicited) ? Nic::solicited_bits : u8{0};
  const SendRing<Nic> ring{q, together, n};
  write_wqes(ring, to, op, fence, static_cast<u8>((cqe ? Nic::signal_bits : 0) | event));
  if (cqe) {
    const u64 start = to.index + op.before_last();
    q.nic.note_span(q.slot(start), n - op.before_last());
  }
}

// Packets of the lanes before the caller's, and of all lanes of its group.
struct Packets {
  u32 before;
  u32 all;
};
WV_DEVICE Packets count_packets(const Alone&, u32 mine) { return {0, mine}; }
WV_DEVICE Packets count_packets(const Group& group, u32 mine) {
  // Mostly all lanes post the same.
  const u32 first = group.from_leader(mine);
  if (!group.any(mine != first)) return {group.rank * first, group.count * first};
  Packets sum{0, 0};
  u32 rank = 0;
  for (lane_mask left = group.lanes(); left != 0; left &= left - 1) {
    const u32 theirs = shfl(group.lanes(), mine, lowest_bit(left));
    if (rank < group.rank) sum.before += theirs;
    sum.all += theirs;
    rank += 1;
  }
  return sum;
}

// Every lane of the group posts its own Op, all of the same size, in the order of the lanes. Only
// the last one is signalled, if anybody wants to be: its CQE says all. All or none are `deferred`.
template <class Lanes, class Op, class Until, class Nic>
WV_DEVICE Posted post_fitting(const QpOf<Nic>& qp, const Lanes& group, const Op& op, Flags flags,
                              Until until) {
  // Nothing behind a reserved index is rung until that is, so no lane may wait in between for others.
  const Unbroken section(group.lanes());
  const SendQueue<Nic> q(qp);
  const u32 each = op.wqebbs();
  const u32 total = each * group.count;
  Packets packets{0, 0};
  if constexpr (Nic::Counter::counts_packets) packets = count_packets(group, packets_of(q, op));
  Reserved r{};
  const bool eager = group.count == 1 && !flags.has(deferred);
  if (group.leads()) r = reserve(qp, q, total, packets.all, eager, flags, until);
  const u64 base = group.from_leader(r.status.ok() ? r.base : no_base);
  if (base == no_base) return {Status{group.from_leader(r.status.code)}, each, 0};
  if constexpr (Nic::Counter::counts_packets) r.packet = group.from_leader(r.packet);
  // The leader's acquire of `completed` before the other lanes' stores to the slots.
  group.sync();
  const u64 index = base + group.rank * each;
  const bool wanted = !flags.has(unsignalled);
  const bool any = group.any(wanted);
  const bool last = group.rank == group.count - 1;
  // A quarter's end is always rung, so that those who wait for room find a CQE.
  const bool defers = flags.has(deferred) && !must_signal(q, base, total);
  if (last && (!any || defers) && !must_signal(q, index, each)) {
    // Before the release in publish; see tail_is_unsignalled.
    raise<order::relaxed, scope::gpu>(&q.counters()->unsignalled, base + total);
  }
  write_op(q, Slot{index, r.packet + packets.before}, op, flags, any && last,
           lanes_fill_lines && group.count == warp_size);
  if (defers) publish_deferred(q, group, base, total);
  else publish(q, group, base, total, r.token);
  return {Status{}, each, index};
}

// The same for any number of WQEBBs: takes turns where they are more than half the ring.
template <class Op, class Until, class Nic>
WV_DEVICE Posted post_group(const QpOf<Nic>& qp, lane_mask lanes, const Op& op, Flags flags,
                            Until until) {
  const Group group(lanes);
  if constexpr (Op::max_wqebbs * warp_size <= 64) {
    return post_fitting(qp, group, op, flags, until);
  } else {
    // Rings have 128 WQEBBs or more and an Op at most 16: at least 4 lanes fit.
    const u32 fit = (1u << (qp.log_sq - 1)) / op.wqebbs();
    Posted posted{};
    for (u32 turn = 0; turn * fit < group.count; ++turn) {
      const bool mine = group.rank / fit == turn;
      const lane_mask together = ballot(group.mask, mine);
      if (mine) posted = post_fitting(qp, Group(together), op, flags, until);
    }
    return posted;
  }
}

// For callers who each have something to post: those who arrive together post together, if they
// take as much of the ring and wait as long.
template <class Op, class Until, class Nic>
WV_DEVICE Posted post_each(const QpOf<Nic>& qp, const Op& op, Flags flags, Until until) {
  // State addresses are below 2^57.
  constexpr u64 kind = Op::max_wqebbs * warp_size <= 64 ? 0 : u64{1} << 57;
  const u64 waits = flags.has(no_wait) ? 0 : u64{1} << 63;
  const u64 key = qp.state ^ kind ^ waits ^ u64{op.wqebbs()} << 58;
  const u64 rings = flags.has(deferred) ? u64{1} << 63 : 0;
  return with_group(key, patience_of(until) ^ rings, WV_SITE, [&](lane_mask together) {
    return post_group(qp, together, op, flags, until);
  });
}

// Once for the whole of `coop`.
template <class Coop, class Op, class Nic>
WV_DEVICE Posted post(const Coop& coop, const QpOf<Nic>& qp, const Op& op, Flags flags,
                      Timeout timeout) {
  if constexpr (Coop::alone) {
    return post_each(qp, op, flags, timeout);
  } else {
    // Stores of the members are part of the transfer.
    coop.sync();
    Posted posted{};
    if (coop.thread_rank() == 0) posted = post_fitting(qp, Alone{}, op, flags, timeout);
    return coop.broadcast(posted);
  }
}

// Receives: the same steps, without signalling and doorbell register.
template <class Lanes, class Nic>
WV_DEVICE Posted publish_receives(const RecvQueue<Nic>& q, const Lanes& group, const Receive& op,
                                  u64 base) {
  // The leader's acquire of `completed` before the other lanes' stores to the slots.
  group.sync();
  Nic::write(q, base + group.rank, op);
  publish(q, group, base, group.count);
  return {Status{}, 1, base + group.rank};
}

template <class Nic>
WV_DEVICE Posted post_receive(const QpOf<Nic>& qp, const Receive& op, Deadline deadline) {
  const Unbroken section(lane_bit(lane_id()));
  const RecvQueue<Nic> q(qp);
  const Reserved r = reserve_recv(qp, q, 1, deadline);
  if (!r.status.ok()) return {r.status, 1, 0};
  return publish_receives(q, Alone{}, op, r.base);
}

// Together if there is room for all at once, else each by itself: room comes from those who consume
// completions, and a lane that got its receive through may be one of them.
template <class Nic>
WV_DEVICE Posted post_receives(const QpOf<Nic>& qp, lane_mask lanes, const Receive& op,
                               Timeout timeout) {
  const RecvQueue<Nic> q(qp);
  const Group group(lanes);
  u64 base = no_base;
  if (group.leads() && group.count != 1) {
    const Reserved r = try_reserve(q, group.count, 0, [] {});
    if (r.status.ok()) base = r.base;
  }
  base = group.from_leader(base);
  if (base != no_base) return publish_receives(q, group, op, base);
  return post_receive(qp, op, deadline_of(qp, timeout));
}

}  // namespace impl
}  // namespace wv
