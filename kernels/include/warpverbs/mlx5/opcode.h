// Generated from crates/mlx5/src/{header,opcode,flags,syndrome}.rs.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv::mlx5 {

constexpr u32 wqebb_bytes = 64;
constexpr u32 segment_bytes = 16;
constexpr u32 max_ds = 63;
constexpr u32 lkey_terminator = 256;  // lkey of the segment that ends a receive WQE early.
constexpr u32 inline_bit = 0x80000000;

// Opcode of a send WQE: byte 3 of the control segment.
enum class opcode : u8 {
  nop = 0x00,  // Does nothing; completes in order.
  send_inval = 0x01,  // SEND that invalidates a key of the receiver.
  rdma_write = 0x08,  // RDMA WRITE.
  rdma_write_imm = 0x09,  // RDMA WRITE that also consumes a receive and delivers an immediate.
  send = 0x0a,  // SEND.
  send_imm = 0x0b,  // SEND with an immediate.
  tso = 0x0e,  // TCP segmentation offload, Ethernet queues.
  wait = 0x0f,  // Holds the queue until a CQ has a CQE.
  rdma_read = 0x10,  // RDMA READ.
  atomic_cs = 0x11,  // 8-byte compare-and-swap.
  atomic_fa = 0x12,  // 8-byte fetch-and-add.
  masked_cs = 0x14,  // Masked compare-and-swap, 4 or 8 bytes by opmod.
  masked_fa = 0x15,  // Masked fetch-and-add, 4 or 8 bytes by opmod.
  send_en = 0x17,  // Lets another send queue run.
  fmr = 0x19,  // Fast memory registration, older form.
  local_inval = 0x1b,  // Invalidates a local key.
  config_cmd = 0x1f,  // Configuration by WQE.
  set_psv = 0x20,  // Signature parameters.
  dump = 0x23,  // Reads local memory and drops it; flushes inbound writes.
  umr = 0x25,  // User-mode memory registration.
  tag_matching = 0x28,  // Tag matching.
  enhanced_mpsw = 0x29,  // Several Ethernet packets in one WQE.
  flow_tbl_access = 0x2c,  // Steering table access.
  access_aso = 0x2d,  // Advanced steering object access.
  mmo = 0x2f,  // Memory-to-memory offload: DMA, compression, regular expressions.
};

constexpr u8 opmod_none = 0;  // Of masked atomics: the operand size.
constexpr u8 opmod_masked_4b = 8;
constexpr u8 opmod_masked_8b = 9;

// CE, bits 3..2: when the WQE produces a CQE.
enum class ce : u8 {
  on_error = 0,  // Only if it fails.
  on_first_error = 1,  // Only if it is the first to fail.
  always = 2,  // Always: what a signalled work request asks for.
  always_with_event = 3,  // Always, and an event beside it.
};

// FM, bits 7..5: what must be over before the WQE starts.
enum class fm : u8 {
  none = 0,  // Nothing.
  initiator_small = 1,  // Small fence of the initiator: earlier local invalidates and UMRs.
  fence = 2,  // Earlier reads and atomics.
  strong = 3,  // Strong ordering.
  fence_and_small = 4,  // Fence and small fence: what a fenced work request asks for.
};

// Opcode of a CQE: the high nibble of its last byte.
enum class cqe_opcode : u8 {
  req = 0,  // A send WQE completed.
  resp_wr_imm = 1,  // An RDMA WRITE with immediate arrived.
  resp_send = 2,  // A SEND arrived.
  resp_send_imm = 3,  // A SEND with immediate arrived.
  resp_send_inv = 4,  // A SEND with invalidate arrived.
  resize_cq = 5,  // The CQ was resized.
  no_packet = 6,  // A receive ended without a packet.
  sig_err = 12,  // A signature check failed.
  req_err = 13,  // A send WQE failed.
  resp_err = 14,  // A receive WQE failed.
  invalid = 15,  // The hardware has not written this entry.
};

// Syndrome byte of an error CQE.
enum class syndrome : u8 {
  local_length = 0x01,  // The local work request has a bad length.
  local_qp_op = 0x02,  // The WQE is not well formed.
  local_prot = 0x04,  // A local key, its bounds or its rights forbid the access.
  wr_flush = 0x05,  // The QP is in ERR: the WQE was not executed.
  mw_bind = 0x06,  // A memory window could not be bound.
  bad_resp = 0x10,  // The response does not fit the request.
  local_access = 0x11,  // A receive may not write local memory.
  remote_inval_req = 0x12,  // The responder refused the request as malformed.
  remote_access = 0x13,  // The responder's key, bounds or rights forbid the access.
  remote_op = 0x14,  // The responder could not carry out the request.
  transport_retry_exc = 0x15,  // No answer after all retries.
  rnr_retry_exc = 0x16,  // The receiver had no receive posted, after all retries.
  remote_aborted = 0x22,  // The operation was aborted at the other side.
};

}  // namespace wv::mlx5
