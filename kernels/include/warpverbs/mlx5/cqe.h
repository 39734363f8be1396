// Decoders of CQE words. A poller loads words and hands them here; nothing is dereferenced.
//
// The 8 bytes 56..63 loaded as one little-endian u64 are a CqeTail: WQE opcode, QPN, wqe_counter,
// signature and op_own. They say who owns the entry and what it completes.
#pragma once

#include "warpverbs/mlx5/bswap.h"
#include "warpverbs/mlx5/layout.h"
#include "warpverbs/mlx5/opcode.h"

namespace wv {
namespace mlx5 {

constexpr u32 cqe_bytes = sizeof(Cqe64);
constexpr u32 cqe_imm_offset = WV_OFFSETOF(Cqe64, imm_inval_pkey);
constexpr u32 cqe_byte_cnt_offset = WV_OFFSETOF(Cqe64, byte_cnt);
// The aligned be32 with hw syndrome, hw type, vendor syndrome and syndrome of an error CQE.
constexpr u32 cqe_syndrome_offset = WV_OFFSETOF(ErrCqe, hw_error_syndrome);
constexpr u32 cqe_tail_offset = WV_OFFSETOF(Cqe64, wqe_opcode);

struct CqeTail {
  u64 raw;

  WV_HD constexpr u8 op_own() const { return static_cast<u8>(raw >> 56); }
  WV_HD constexpr cqe_opcode opcode() const { return static_cast<cqe_opcode>(op_own() >> 4); }
  WV_HD constexpr u8 format() const { return op_own() >> 2 & 3; }
  WV_HD constexpr bool solicited() const { return (op_own() & 2) != 0; }
  WV_HD constexpr u32 owner() const { return op_own() & 1; }
  WV_HD constexpr u16 wqe_counter() const { return bswap16(static_cast<u16>(raw >> 32)); }
  WV_HD constexpr u32 qpn() const { return bswap32(static_cast<u32>(raw)) & 0xffffff; }
  // Opcode of the send WQE; meaningful in requester completions.
  WV_HD constexpr u8 wqe_opcode() const { return static_cast<u8>(raw); }
  WV_HD constexpr bool is_invalid() const { return opcode() == cqe_opcode::invalid; }
  WV_HD constexpr bool is_error() const {
    return opcode() == cqe_opcode::req_err || opcode() == cqe_opcode::resp_err;
  }
};

// Owner rule of a ring CQ with 2^log_size entries; `ci` is not masked.
WV_HD constexpr bool owned_by_software(CqeTail tail, u64 ci, u32 log_size) {
  return !tail.is_invalid() && tail.owner() == (ci >> log_size & 1);
}

// Whether a poller of a ring CQ that has taken the entries `from` to `ci` says so in the record: once
// in a quarter of the ring, since the store has to wait for its loads.
WV_HD constexpr bool gives_back(u64 from, u64 ci, u32 log_size) {
  return ((from ^ ci) << 2) >> log_size != 0;
}

// The u32 at cqe_syndrome_offset, as loaded.
struct CqeSyndrome {
  u32 raw;

  WV_HD constexpr u8 hw() const { return static_cast<u8>(raw); }
  WV_HD constexpr u8 vendor() const { return static_cast<u8>(raw >> 16); }
  WV_HD constexpr u8 code() const { return static_cast<u8>(raw >> 24); }
  WV_HD constexpr syndrome kind() const { return static_cast<syndrome>(code()); }
};

// The smallest index ≥ `floor` whose low 16 bits are `low`.
WV_HD constexpr u64 widen(u64 floor, u16 low) {
  return floor + static_cast<u16>(low - static_cast<u16>(floor));
}

// Meaning of a collapsed CQ's counter: the index of the newest completed WQE, or `none` when it is
// older than `completed` or was never published.
struct CollapsedIndex {
  bool some;
  u64 index;
};
WV_HD constexpr CollapsedIndex collapsed_index(u64 completed, u64 published, u16 wqe_counter) {
  return CollapsedIndex{widen(completed, wqe_counter) < published, widen(completed, wqe_counter)};
}

}  // namespace mlx5
}  // namespace wv
