// Decoders of bnxt_re's CQE words. A poller loads words and hands them here.
#pragma once

#include "warpverbs/arch/bytes.h"
#include "warpverbs/bnxt/layout.h"
#include "warpverbs/mlx5/opcode.h"

namespace wv {
namespace bnxt {

// Receive flags of a CQE, in bits 16 and up of its tail.
constexpr u32 has_imm = 2, has_key = 4, is_write = 8;

// The last 8 bytes, loaded as one little-endian u64: phase, type, status, flags and number.
struct CqeTail {
  u64 raw;

  WV_HD constexpr bool phase() const { return (raw & 1) != 0; }
  WV_HD constexpr cqe_type type() const { return static_cast<cqe_type>(raw >> 1 & 0xf); }
  WV_HD constexpr u8 status() const { return static_cast<u8>(raw >> 8); }
  WV_HD constexpr u32 flags() const { return static_cast<u32>(raw >> 16) & 0xffff; }
  // Also of a QP that went to ERR by itself, and of types that no queue of a kernel has.
  WV_HD constexpr bool is_error() const {
    return status() != 0 || (type() != cqe_type::send && type() != cqe_type::receive);
  }
};

// Phase rule of a CQ with 2^log_size entries, zeroed at first; `ci` is not masked.
WV_HD constexpr bool is_new(CqeTail tail, u64 ci, u32 log_size) {
  return tail.phase() == ((ci >> log_size & 1) == 0);
}

// The syndrome by which other formats say the same.
WV_HD constexpr mlx5::syndrome syndrome_of(send_status status) {
  switch (status) {
    case send_status::ok: break;
    case send_status::bad_response: return mlx5::syndrome::bad_resp;
    case send_status::local_length: return mlx5::syndrome::local_length;
    case send_status::local_qp_operation: return mlx5::syndrome::local_qp_op;
    case send_status::protection: return mlx5::syndrome::local_prot;
    case send_status::memory_operation: return mlx5::syndrome::mw_bind;
    case send_status::remote_invalid: return mlx5::syndrome::remote_inval_req;
    case send_status::remote_access: return mlx5::syndrome::remote_access;
    case send_status::remote_operation: return mlx5::syndrome::remote_op;
    case send_status::rnr_retry: return mlx5::syndrome::rnr_retry_exc;
    case send_status::retry: return mlx5::syndrome::transport_retry_exc;
    case send_status::flush: return mlx5::syndrome::wr_flush;
  }
  return mlx5::syndrome{0};
}
WV_HD constexpr mlx5::syndrome syndrome_of(recv_status status) {
  switch (status) {
    case recv_status::ok: break;
    case recv_status::local_access: return mlx5::syndrome::local_access;
    case recv_status::local_length: return mlx5::syndrome::local_length;
    case recv_status::protection: return mlx5::syndrome::local_prot;
    case recv_status::local_qp_operation: return mlx5::syndrome::local_qp_op;
    case recv_status::memory_operation: return mlx5::syndrome::mw_bind;
    case recv_status::remote_invalid: return mlx5::syndrome::remote_inval_req;
    case recv_status::flush:
    case recv_status::hardware_flush: return mlx5::syndrome::wr_flush;
  }
  return mlx5::syndrome{0};
}

}  // namespace bnxt
}  // namespace wv
