// Generated from crates/bnxt/src/header.rs; fields are little-endian.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv::bnxt {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

constexpr u32 slot_bytes = 16;
constexpr u32 header_slots = 2;
constexpr u32 cqe_bytes = 32;
constexpr u32 cqe_tail_offset = 24;
constexpr u32 recv_id_bits = 20;

// Type of a WQE: its first byte.
enum class wqe_type : u8 {
  send = 0x00,  // SEND.
  send_imm = 0x01,  // SEND with an immediate.
  send_invalidate = 0x02,  // SEND that invalidates a key of the receiver.
  write = 0x04,  // RDMA WRITE.
  write_imm = 0x05,  // RDMA WRITE that also consumes a receive and delivers an immediate.
  read = 0x06,  // RDMA READ.
  compare_swap = 0x08,  // 8-byte compare-and-swap.
  fetch_add = 0x0b,  // 8-byte fetch-and-add.
  local_invalidate = 0x0c,  // Invalidates a local key.
  bind = 0x0e,  // Binds a memory window.
  recv = 0x80,  // A receive.
};

constexpr u8 signaled = 1;  // Flags of a WQE.
constexpr u8 fence = 4;
constexpr u8 solicited = 8;
constexpr u8 inline_data = 16;

// First slot of a send WQE.
struct SendHeader {
  u8 wqe_type;  // See `crate::opcode::WqeType`.
  u8 flags;  // See `crate::opcode::WqeFlags`.
  u8 slots;  // Slots of the WQE that are used, this one included.
  u8 reserved;  // Zero.
  u32 imm_or_key;  // Immediate value, or the key that the receiver invalidates.
  u32 length;  // Bytes of the message.
  u32 qkey;  // Queue key of a datagram.
};
static_assert(sizeof(SendHeader) == 16, "SendHeader");
WV_AT(SendHeader, wqe_type, 0);
WV_AT(SendHeader, flags, 1);
WV_AT(SendHeader, slots, 2);
WV_AT(SendHeader, reserved, 3);
WV_AT(SendHeader, imm_or_key, 4);
WV_AT(SendHeader, length, 8);
WV_AT(SendHeader, qkey, 12);

// First slot of an atomic.
struct AtomicHeader {
  u8 wqe_type;  // As in `SendHeader`.
  u8 flags;  // As in `SendHeader`.
  u8 slots;  // As in `SendHeader`.
  u8 reserved;  // Zero.
  u32 rkey;  // Key at the responder.
  u64 raddr;  // Address at the responder.
};
static_assert(sizeof(AtomicHeader) == 16, "AtomicHeader");
WV_AT(AtomicHeader, wqe_type, 0);
WV_AT(AtomicHeader, flags, 1);
WV_AT(AtomicHeader, slots, 2);
WV_AT(AtomicHeader, reserved, 3);
WV_AT(AtomicHeader, rkey, 4);
WV_AT(AtomicHeader, raddr, 8);

// Second slot of RDMA WRITE and READ.
struct RdmaSlot {
  u64 raddr;  // Address at the responder.
  u32 rkey;  // Key at the responder.
  u32 reserved;  // Not looked at.
};
static_assert(sizeof(RdmaSlot) == 16, "RdmaSlot");
WV_AT(RdmaSlot, raddr, 0);
WV_AT(RdmaSlot, rkey, 8);
WV_AT(RdmaSlot, reserved, 12);

// Second slot of an atomic.
struct AtomicSlot {
  u64 swap_add;  // Value to store, or to add.
  // Value to compare with. Of fetch-and-add it is not used, but by early libraries for the summand.
  u64 compare;
};
static_assert(sizeof(AtomicSlot) == 16, "AtomicSlot");
WV_AT(AtomicSlot, swap_add, 0);
WV_AT(AtomicSlot, compare, 8);

// An entry of a scatter/gather list.
struct SgeSlot {
  u64 addr;  // Address of the local memory.
  u32 lkey;  // Key of the local memory.
  u32 length;  // Bytes, which may be 0.
};
static_assert(sizeof(SgeSlot) == 16, "SgeSlot");
WV_AT(SgeSlot, addr, 0);
WV_AT(SgeSlot, lkey, 8);
WV_AT(SgeSlot, length, 12);

// First slot of a receive WQE; the second is not looked at.
struct RecvHeader {
  u8 wqe_type;  // RECV.
  u8 flags;  // Zero.
  u8 slots;  // Slots of the WQE that are used, this one included.
  u8 reserved;  // Zero.
  u32 reserved4;  // Not looked at.
  u32 id;  // Index of the receive in its ring, or its tag in an SRQ; 20 bits. Its CQE returns it.
  u32 reserved12;  // Not looked at.
};
static_assert(sizeof(RecvHeader) == 16, "RecvHeader");
WV_AT(RecvHeader, wqe_type, 0);
WV_AT(RecvHeader, flags, 1);
WV_AT(RecvHeader, slots, 2);
WV_AT(RecvHeader, reserved, 3);
WV_AT(RecvHeader, reserved4, 4);
WV_AT(RecvHeader, id, 8);
WV_AT(RecvHeader, reserved12, 12);

// The word of an `MsnEntry`.
struct [[nodiscard]] Msn {
  u64 raw = 0;

  static WV_HD constexpr Msn of(u32 first, u32 next = 0, u16 start = 0) {
    u64 word = 0x0;
    word |= static_cast<u64>(first) << 0;
    word |= static_cast<u64>(next) << 24;
    word |= static_cast<u64>(start) << 48;
    return Msn{word};
  }
  // First packet number.
  WV_HD constexpr u32 first() const {
    return static_cast<u32>(raw >> 0 & 0xffffff);
  }
  // Next WQE's first packet number.
  WV_HD constexpr u32 next() const {
    return static_cast<u32>(raw >> 24 & 0xffffff);
  }
  // Where the WQE begins, in the ring's unit.
  WV_HD constexpr u16 start() const {
    return static_cast<u16>(raw >> 48 & 0xffff);
  }
};

// Kinds of doorbells: the top four bits.
enum class doorbell_kind : u8 {
  send = 0x0,  // Send WQEs were posted.
  receive = 0x1,  // Receives were posted.
  shared = 0x2,  // Receives of an SRQ were posted.
  shared_arm = 0x3,  // Asks for an event when an SRQ has fewer receives than the index says.
  completion = 0x4,  // CQEs were consumed.
  arm_solicited = 0x5,  // Asks for an event at the next solicited completion.
  arm = 0x6,  // Asks for an event at the next completion.
  arm_enable = 0x7,  // Allows a CQ to be armed.
  shared_arm_enable = 0x8,  // Allows an SRQ to be armed.
  cut_off_ack = 0x9,  // The last CQE of a resized CQ was seen.
  push_start = 0xc,  // A WQE follows in the push page.
  push_end = 0xd,  // The WQE in the push page is complete.
  null = 0xf,  // Nothing.
};

// The 8 bytes as a native number of a little-endian machine.
struct [[nodiscard]] DoorbellWord {
  u64 raw = 0;

  static WV_HD constexpr DoorbellWord of(u32 index, bool epoch = 0, bool toggle = 0, u32 queue = 0, bool valid = 0, u8 kind = 0) {
    u64 word = 0x0;
    word |= static_cast<u64>(index) << 0;
    word |= static_cast<u64>(epoch) << 24;
    word |= static_cast<u64>(toggle) << 25;
    word |= static_cast<u64>(queue) << 32;
    word |= static_cast<u64>(valid) << 58;
    word |= static_cast<u64>(kind) << 60;
    return DoorbellWord{word};
  }
  // Position.
  WV_HD constexpr u32 index() const {
    return static_cast<u32>(raw >> 0 & 0xffffff);
  }
  // Lap.
  WV_HD constexpr bool epoch() const {
    return static_cast<bool>(raw >> 24 & 0x1);
  }
  // Toggle.
  WV_HD constexpr bool toggle() const {
    return static_cast<bool>(raw >> 25 & 0x1);
  }
  // Queue.
  WV_HD constexpr u32 queue() const {
    return static_cast<u32>(raw >> 32 & 0xfffff);
  }
  // Valid.
  WV_HD constexpr bool valid() const {
    return static_cast<bool>(raw >> 58 & 0x1);
  }
  // Kind.
  WV_HD constexpr u8 kind() const {
    return static_cast<u8>(raw >> 60 & 0xf);
  }
};

// Type of a CQE.
enum class cqe_type : u8 {
  send = 0x0,  // Send WQEs completed, or one failed.
  receive = 0x1,  // A receive of a connection completed.
  datagram = 0x2,  // A receive of a datagram QP completed.
  raw = 0x3,  // A receive of a raw queue completed.
  terminal = 0xe,  // A QP went to ERR.
  cut_off = 0xf,  // The rest is in the new ring of a resized CQ.
};

// CQE of send WQEs; also of a QP that went to ERR, and the last of a resized CQ.
struct SendCqe {
  u64 qp_handle;  // The number that the library gave the QP when it made it.
  // WQEs of the send queue that are complete, modulo 2^16. For a QP in ERR, its positions.
  u16 consumed;
  u8 reserved[14];  // Zero.
  // Phase in bit 0, type in 4..1, of the last CQE of a resized CQ its toggle in 6..5.
  u8 type_phase;
  u8 status;  // See `SendStatus` and `RecvStatus`.
  u16 flags;  // See `RecvFlags`.
  u32 id;  // The receive's number in bits 19..0, the high 8 bits of a datagram's sender in 31..24.
};
static_assert(sizeof(SendCqe) == 32, "SendCqe");
WV_AT(SendCqe, qp_handle, 0);
WV_AT(SendCqe, consumed, 8);
WV_AT(SendCqe, reserved, 10);
WV_AT(SendCqe, type_phase, 24);
WV_AT(SendCqe, status, 25);
WV_AT(SendCqe, flags, 26);
WV_AT(SendCqe, id, 28);

// CQE of a connection's receive.
struct RecvCqe {
  u32 length;  // Bytes that arrived.
  u32 imm_or_key;  // Immediate value, or the key that was invalidated.
  u64 qp_handle;  // As in `SendCqe`.
  u64 mr_handle;  // The device's own.
  // Phase in bit 0, type in 4..1, of the last CQE of a resized CQ its toggle in 6..5.
  u8 type_phase;
  u8 status;  // See `SendStatus` and `RecvStatus`.
  u16 flags;  // See `RecvFlags`.
  u32 id;  // The receive's number in bits 19..0, the high 8 bits of a datagram's sender in 31..24.
};
static_assert(sizeof(RecvCqe) == 32, "RecvCqe");
WV_AT(RecvCqe, length, 0);
WV_AT(RecvCqe, imm_or_key, 4);
WV_AT(RecvCqe, qp_handle, 8);
WV_AT(RecvCqe, mr_handle, 16);
WV_AT(RecvCqe, type_phase, 24);
WV_AT(RecvCqe, status, 25);
WV_AT(RecvCqe, flags, 26);
WV_AT(RecvCqe, id, 28);

// Status of a send CQE.
enum class send_status : u8 {
  ok = 0x0,  // It succeeded.
  bad_response = 0x1,  // The response does not fit the request.
  local_length = 0x2,  // The local work request has a bad length.
  local_qp_operation = 0x3,  // The WQE is not well formed.
  protection = 0x4,  // A local key, its bounds or its rights forbid the access.
  memory_operation = 0x5,  // A memory window could not be bound.
  remote_invalid = 0x6,  // The responder refused the request as malformed.
  remote_access = 0x7,  // The responder's key, bounds or rights forbid the access.
  remote_operation = 0x8,  // The responder could not carry out the request.
  rnr_retry = 0x9,  // The receiver had no receive posted, after all retries.
  retry = 0xa,  // No answer after all retries.
  flush = 0xb,  // The QP is in ERR: the WQE was not executed.
};

// Status of a receive CQE.
enum class recv_status : u8 {
  ok = 0x0,  // It succeeded.
  local_access = 0x1,  // The receive may not write local memory.
  local_length = 0x2,  // The message is longer than its receive.
  protection = 0x3,  // A local key, its bounds or its rights forbid the access.
  local_qp_operation = 0x4,  // The WQE is not well formed.
  memory_operation = 0x5,  // A memory window could not be invalidated.
  remote_invalid = 0x6,  // The request was refused as malformed.
  flush = 0x7,  // The QP is in ERR: the receive was not filled.
  // The same, of a receive that the device had fetched: libraries report nothing for it.
  hardware_flush = 0x8,
};

#undef WV_AT

}  // namespace wv::bnxt
