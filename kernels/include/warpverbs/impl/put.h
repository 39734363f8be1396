// Bodies of put.h and signal.h's posting side.
#pragma once

#include "warpverbs/impl/verbs.h"
#include "warpverbs/put.h"

namespace wv {
namespace impl {

// The destination of unused results: the word after the scratch slots.
template <class Nic>
WV_DEVICE Local sink(const QpOf<Nic>& qp) {
  return {qp.scratch + u64{scratch_slots} * 8, qp.scratch_lkey};
}

template <class Nic>
WV_DEVICE auto signal_op(const QpOf<Nic>& qp, Remote at, SignalAdd signal) {
  return Nic::atomic(sink(qp), at, FetchAdd{signal.value});
}
template <class Nic>
WV_DEVICE WriteValue signal_op(const QpOf<Nic>&, Remote at, SignalSet signal) {
  return {at, signal.value, 8};
}

// One transfer for each lane of the calling warp; none if one of them is too long.
template <class Coop, class Nic>
WV_DEVICE Posted post_all(const Coop& coop, const QpOf<Nic>& qp, const Rdma& op, Flags flags,
                          Timeout timeout) {
  const bool refused = op.bytes > max_message;
  if constexpr (Coop::alone) {
    return refused ? refuse(outcome::too_long) : post_each(qp, op, flags, timeout);
  } else {
    coop.sync();
    if (ballot(whole_warp(), refused) != 0) return refuse(outcome::too_long);
    // One doorbell serves the warp anyway, and lanes might not agree.
    return post_group(qp, whole_warp(), op, Flags{flags.bits & ~deferred.bits}, timeout);
  }
}

}  // namespace impl

template <class Coop, class Nic>
WV_DEVICE Posted put(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote, u32 bytes,
                     Flags flags, Timeout timeout) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  return impl::post(coop, qp, impl::Rdma{local, remote, bytes, mlx5::opcode::rdma_write}, flags,
                    timeout);
}

template <class Coop, class Nic>
WV_DEVICE Posted put_each(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote,
                          u32 bytes, Flags flags, Timeout timeout) {
  return impl::post_all(coop, qp, impl::Rdma{local, remote, bytes, mlx5::opcode::rdma_write},
                        flags, timeout);
}

template <class Coop, class Nic>
WV_DEVICE Posted put_inline(const Coop& coop, const QpOf<Nic>& qp, const void* source,
                            Remote remote, u32 bytes, Flags flags, Timeout timeout) {
  if (bytes > u32{qp.inline_words} * 4) return impl::refuse(outcome::too_long);
  return impl::post(coop, qp, typename Nic::WriteInline{remote, static_cast<const u8*>(source), bytes},
                    flags, timeout);
}

template <class Coop, class T, class Nic>
WV_DEVICE Posted put_value(const Coop& coop, const QpOf<Nic>& qp, T value, Remote remote,
                           Flags flags, Timeout timeout) {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "an integer");
  constexpr u64 ones = ~u64{0} >> (64 - 8 * sizeof(T));
  return impl::post(coop, qp,
                    impl::WriteValue{remote, static_cast<u64>(value) & ones, sizeof(T)}, flags,
                    timeout);
}

template <class Coop, class Nic>
WV_DEVICE Posted put_imm(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote,
                         u32 bytes, u32 imm, Flags flags, Timeout timeout) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  return impl::post(coop, qp,
                    impl::Rdma{local, remote, bytes, mlx5::opcode::rdma_write_imm, imm}, flags,
                    timeout);
}

template <class Coop, class Signal, class Nic>
WV_DEVICE Posted put_signal(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote,
                            u32 bytes, Remote signal_at, Signal signal, Flags flags,
                            Timeout timeout) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  const impl::Rdma data{local, remote, bytes, mlx5::opcode::rdma_write};
  const auto after = impl::signal_op(qp, signal_at, signal);
  using Both = impl::Pair<impl::Rdma, decltype(impl::signal_op(qp, signal_at, signal))>;
  return impl::post(coop, qp, Both{data, after}, flags, timeout);
}

}  // namespace wv
