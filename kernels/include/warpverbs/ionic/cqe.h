// Decoders of ionic's CQE words. A poller loads words and hands them here.
#pragma once

#include "warpverbs/arch/bytes.h"
#include "warpverbs/ionic/layout.h"
#include "warpverbs/mlx5/opcode.h"

namespace wv {
namespace ionic {

// The last 8 bytes, loaded as one little-endian u64: length or status, then queue, type and colour.
struct CqeTail {
  u64 raw;

  WV_HD constexpr QueueTypeFlags word() const { return {bswap32(hi32(raw))}; }
  // The status where the error bit is set.
  WV_HD constexpr u32 status_length() const { return bswap32(lo32(raw)); }
  WV_HD constexpr cqe_type type() const { return static_cast<cqe_type>(word().cqe_type()); }
  // Also of types that no queue of a kernel has: local operations that succeeded.
  WV_HD constexpr bool is_error() const {
    return word().error() || (type() != cqe_type::messages && type() != cqe_type::receive);
  }
};

// Colour rule of a CQ with 2^log_size entries, zeroed at first; `ci` is not masked.
WV_HD constexpr bool is_new(CqeTail tail, u64 ci, u32 log_size) {
  return tail.word().color() == ((ci >> log_size & 1) == 0);
}

// The syndrome by which other formats say the same.
WV_HD constexpr mlx5::syndrome syndrome_of(failure status) {
  switch (status) {
    case failure::local_length: return mlx5::syndrome::local_length;
    case failure::local_qp_operation: return mlx5::syndrome::local_qp_op;
    case failure::protection: return mlx5::syndrome::local_prot;
    case failure::flushed: return mlx5::syndrome::wr_flush;
    case failure::memory_management: return mlx5::syndrome::mw_bind;
    case failure::bad_response: return mlx5::syndrome::bad_resp;
    case failure::local_access: return mlx5::syndrome::local_access;
    case failure::remote_invalid: return mlx5::syndrome::remote_inval_req;
    case failure::remote_access: return mlx5::syndrome::remote_access;
    case failure::remote_operation: return mlx5::syndrome::remote_op;
    case failure::retry: return mlx5::syndrome::transport_retry_exc;
    case failure::rnr_retry: return mlx5::syndrome::rnr_retry_exc;
    case failure::xrc: break;
  }
  return mlx5::syndrome{0};
}

}  // namespace ionic
}  // namespace wv
