// Bodies of get.h.
#pragma once

#include "warpverbs/get.h"
#include "warpverbs/impl/put.h"

namespace wv {

template <class Coop, class Nic>
WV_DEVICE Posted get(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote, u32 bytes,
                     Flags flags, Timeout timeout) {
  if (bytes > impl::max_message) return impl::refuse(outcome::too_long);
  return impl::post(coop, qp, impl::Rdma{local, remote, bytes, mlx5::opcode::rdma_read}, flags,
                    timeout);
}

template <class Coop, class Nic>
WV_DEVICE Posted get_each(const Coop& coop, const QpOf<Nic>& qp, Local local, Remote remote,
                          u32 bytes, Flags flags, Timeout timeout) {
  return impl::post_all(coop, qp, impl::Rdma{local, remote, bytes, mlx5::opcode::rdma_read},
                        flags, timeout);
}

}  // namespace wv
