// The posting protocol from reservation to doorbell, for lanes that post together.
#pragma once

#include "warpverbs/coop.h"
#include "warpverbs/impl/reserve.h"
#include "warpverbs/impl/wqe.h"

namespace wv {
namespace impl {

constexpr u64 no_base = ~u64{0};

// Writes one lane's Op at `index`. `signalled`: a member of its group asks for a CQE.
// `together`: as in SendRing.
template <class Op>
WV_DEVICE void write_op(const SendQueue& q, u64 index, const Op& op, Flags flags, bool signalled,
                        bool together = false) {
  const u32 n = op.wqebbs();
  const bool cqe = signalled || must_signal(q, index, n);
  const u8 fence = flags.has(fenced) ? fence_bits : u8{0};
  const u8 event = flags.has(solicited) ? mlx5::solicited : u8{0};
  const SendRing ring{q, together, n};
  op.write(ring, index, fence, static_cast<u8>((cqe ? signal_bits : 0) | event));
  if (cqe) {
    // Tells the poller how far the CQE of the WQE that starts here reaches.
    const u64 start = index + op.before_last();
    store<order::relaxed, scope::gpu>(q.span + q.slot(start),
                                      static_cast<u8>(n - op.before_last()));
  }
}

// Every lane of the group posts its own Op, all of the same size, in the order of the lanes. Only
// the last one is signalled, if anybody wants to be: its CQE says all. All or none are `deferred`.
template <class Lanes, class Op, class Until>
WV_DEVICE Posted post_fitting(const Qp& qp, const Lanes& group, const Op& op, Flags flags,
                              Until until) {
  // Nothing behind a reserved index is rung until that is, so no lane may wait in between for others.
  const Unbroken section(group.lanes());
  const SendQueue q(qp);
  const u32 each = op.wqebbs();
  const u32 total = each * group.count;
  Reserved r{};
  const bool eager = group.count == 1 && !flags.has(deferred);
  if (group.leads()) r = reserve(qp, q, total, eager, flags, until);
  const u64 base = group.from_leader(r.status.ok() ? r.base : no_base);
  if (base == no_base) return {Status{group.from_leader(r.status.code)}, each, 0};
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
  write_op(q, index, op, flags, any && last,
           lanes_fill_lines && group.count == warp_size);
  if (defers) publish_deferred(q, group, base, total);
  else publish(q, group, base, total, r.token);
  return {Status{}, each, index};
}

// The same for any number of WQEBBs: takes turns where they are more than half the ring.
template <class Op, class Until>
WV_DEVICE Posted post_group(const Qp& qp, lane_mask lanes, const Op& op, Flags flags,
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
template <class Op, class Until>
WV_DEVICE Posted post_each(const Qp& qp, const Op& op, Flags flags, Until until) {
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
template <class Coop, class Op>
WV_DEVICE Posted post(const Coop& coop, const Qp& qp, const Op& op, Flags flags,
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
template <class Lanes>
WV_DEVICE Posted publish_receives(const RecvQueue& q, const Lanes& group, const Receive& op,
                                  u64 base) {
  // The leader's acquire of `completed` before the other lanes' stores to the slots.
  group.sync();
  op.write(q, base + group.rank);
  publish(q, group, base, group.count);
  return {Status{}, 1, base + group.rank};
}

WV_DEVICE Posted post_receive(const Qp& qp, const Receive& op, Deadline deadline) {
  const Unbroken section(lane_bit(lane_id()));
  const RecvQueue q(qp);
  const Reserved r = reserve_recv(qp, q, 1, deadline);
  if (!r.status.ok()) return {r.status, 1, 0};
  return publish_receives(q, Alone{}, op, r.base);
}

// Together if there is room for all at once, else each by itself: room comes from those who consume
// completions, and a lane that got its receive through may be one of them.
WV_DEVICE Posted post_receives(const Qp& qp, lane_mask lanes, const Receive& op,
                               Timeout timeout) {
  const RecvQueue q(qp);
  const Group group(lanes);
  u64 base = no_base;
  if (group.leads() && group.count != 1) {
    const Reserved r = try_reserve(q, group.count, [] {});
    if (r.status.ok()) base = r.base;
  }
  base = group.from_leader(base);
  if (base != no_base) return publish_receives(q, group, op, base);
  return post_receive(qp, op, deadline_of(qp, timeout));
}

}  // namespace impl
}  // namespace wv
