// Numbers of the queue formats: opcodes, completion and fence modes, syndromes.
// Mirrors crates/mlx5/src/{opcode,flags,syndrome}.rs.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {
namespace mlx5 {

constexpr u32 wqebb_bytes = 64;
constexpr u32 segment_bytes = 16;
constexpr u32 max_ds = 63;
// lkey of the segment that ends a receive WQE early.
constexpr u32 lkey_terminator = 0x100;
constexpr u32 inline_bit = 0x80000000u;
// Index of the doorbell records within the QP's 8-byte record.
constexpr u32 dbr_rcv = 0;
constexpr u32 dbr_snd = 1;

enum class opcode : u8 {
  nop = 0x00,
  send_inval = 0x01,
  rdma_write = 0x08,
  rdma_write_imm = 0x09,
  send = 0x0a,
  send_imm = 0x0b,
  tso = 0x0e,
  wait = 0x0f,
  rdma_read = 0x10,
  atomic_cs = 0x11,
  atomic_fa = 0x12,
  masked_cs = 0x14,
  masked_fa = 0x15,
  send_en = 0x17,
  fmr = 0x19,
  local_inval = 0x1b,
  config_cmd = 0x1f,
  set_psv = 0x20,
  dump = 0x23,
  umr = 0x25,
  tag_matching = 0x28,
  enhanced_mpsw = 0x29,
  flow_tbl_access = 0x2c,
  access_aso = 0x2d,
  mmo = 0x2f,
};

// opmod of the masked atomics: the operand size.
constexpr u8 opmod_none = 0x00;
constexpr u8 opmod_masked_4b = 0x08;
constexpr u8 opmod_masked_8b = 0x09;

// Control segment byte 11: FM in bits 7..5, CE in bits 3..2, SE in bit 1. Or the values together.
enum class ce : u8 { on_error = 0x00, on_first_error = 0x04, always = 0x08, always_event = 0x0c };
enum class fm : u8 {
  none = 0x00,
  initiator_small = 0x20,
  fence = 0x40,
  strong = 0x60,
  fence_and_small = 0x80,
};
constexpr u8 solicited = 0x02;

WV_HD constexpr u8 fm_ce_se(fm f, ce c, bool se = false) {
  return static_cast<u8>(static_cast<u8>(f) | static_cast<u8>(c) | (se ? solicited : 0));
}

enum class cqe_opcode : u8 {
  req = 0,
  resp_wr_imm = 1,
  resp_send = 2,
  resp_send_imm = 3,
  resp_send_inv = 4,
  resize_cq = 5,
  no_packet = 6,
  sig_err = 12,
  req_err = 13,
  resp_err = 14,
  invalid = 15,
};

enum class syndrome : u8 {
  local_length = 0x01,
  local_qp_op = 0x02,
  local_prot = 0x04,
  wr_flush = 0x05,
  mw_bind = 0x06,
  bad_resp = 0x10,
  local_access = 0x11,
  remote_inval_req = 0x12,
  remote_access = 0x13,
  remote_op = 0x14,
  transport_retry_exc = 0x15,
  rnr_retry_exc = 0x16,
  remote_aborted = 0x22,
};

}  // namespace mlx5
}  // namespace wv
