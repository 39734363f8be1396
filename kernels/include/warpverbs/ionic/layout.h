// Generated from crates/ionic/src/header.rs; fields are big-endian but for indexes and doorbells.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv::ionic {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

constexpr u32 wqe_bytes = 64;
constexpr u32 entry_bytes = 16;
constexpr u32 cqe_bytes = 32;
constexpr u32 cqe_tail_offset = 24;
constexpr u32 msn_bits = 24;
constexpr u8 op_send = 32;
constexpr u8 op_send_invalidate = 160;
constexpr u8 op_send_imm = 96;
constexpr u8 op_read = 2;
constexpr u8 op_write = 33;
constexpr u8 op_write_imm = 97;
constexpr u8 op_compare_swap = 4;
constexpr u8 op_fetch_add = 5;
constexpr u8 fence = 1;
constexpr u8 solicited = 2;
constexpr u8 inline_data = 4;
constexpr u8 signaled = 8;
constexpr u8 color = 16;

// First 16 bytes of every WQE.
struct Header {
  u64 index;  // Index of the WQE: of its place in the ring, or counted on. Little-endian.
  u8 opcode;  // See `crate::opcode::Opcode`.
  u8 entries;  // Number of entries.
  u16 flags;  // See `crate::opcode::WqeFlags`.
  // Immediate value, or the key to invalidate. Of receives: bytes of all entries together.
  u32 imm_or_key;
};
static_assert(sizeof(Header) == 16, "Header");
WV_AT(Header, index, 0);
WV_AT(Header, opcode, 8);
WV_AT(Header, entries, 9);
WV_AT(Header, flags, 10);
WV_AT(Header, imm_or_key, 12);

// Second 16 bytes of RDMA WRITE and READ.
struct RdmaBody {
  u64 raddr;  // Address at the responder.
  u32 rkey;  // Key at the responder.
  u32 length;  // Bytes of the message.
};
static_assert(sizeof(RdmaBody) == 16, "RdmaBody");
WV_AT(RdmaBody, raddr, 0);
WV_AT(RdmaBody, rkey, 8);
WV_AT(RdmaBody, length, 12);

// Second 16 bytes of SEND; the first three are those of datagrams.
struct SendBody {
  u32 handle;  // Address handle.
  u32 qpn;  // The QP there, 24 bits.
  u32 qkey;  // Its queue key.
  u32 length;  // Bytes of the message.
};
static_assert(sizeof(SendBody) == 16, "SendBody");
WV_AT(SendBody, handle, 0);
WV_AT(SendBody, qpn, 4);
WV_AT(SendBody, qkey, 8);
WV_AT(SendBody, length, 12);

// An entry of a scatter/gather list.
struct Entry {
  u64 addr;  // Address of the local memory.
  u32 length;  // Bytes, which may be 0.
  u32 lkey;  // Key of the local memory.
};
static_assert(sizeof(Entry) == 16, "Entry");
WV_AT(Entry, addr, 0);
WV_AT(Entry, length, 8);
WV_AT(Entry, lkey, 12);

// The rest of an atomic, of either protocol.
struct AtomicBody {
  u64 raddr;  // Address at the responder.
  u32 rkey;  // Key at the responder.
  u8 swap_add[8];  // Value to store, or to add.
  u8 compare[8];  // Value to compare with; not used by fetch-and-add.
  u32 lkey;  // Protocol 2: key of the 8 bytes for the old value. Protocol 1: not looked at.
  // Where the old value goes: an entry of 8 bytes in protocol 1, of which protocol 2 has the address
  // alone.
  Entry result;
};
static_assert(sizeof(AtomicBody) == 48, "AtomicBody");
WV_AT(AtomicBody, raddr, 0);
WV_AT(AtomicBody, rkey, 8);
WV_AT(AtomicBody, swap_add, 12);
WV_AT(AtomicBody, compare, 20);
WV_AT(AtomicBody, lkey, 28);
WV_AT(AtomicBody, result, 32);

// The 8 bytes as a native number of a little-endian machine.
struct [[nodiscard]] DoorbellWord {
  u64 raw = 0;

  static WV_HD constexpr DoorbellWord of(u16 index, u8 arm = 0, u32 queue = 0) {
    u64 word = 0x0;
    word |= static_cast<u64>(index) << 0;
    word |= static_cast<u64>(arm) << 16;
    word |= static_cast<u64>(queue) << 24;
    return DoorbellWord{word};
  }
  // Position.
  WV_HD constexpr u16 index() const {
    return static_cast<u16>(raw >> 0 & 0xffff);
  }
  // Arm: 0 does not, 1 for any completion, 2 for solicited ones alone.
  WV_HD constexpr u8 arm() const {
    return static_cast<u8>(raw >> 16 & 0x3);
  }
  // Queue.
  WV_HD constexpr u32 queue() const {
    return static_cast<u32>(raw >> 24 & 0xffffff);
  }
};

// Type of a CQE.
enum class cqe_type : u8 {
  receive = 1,  // A receive completed.
  messages = 2,  // Messages completed.
  local = 3,  // A local operation completed, or any WQE was flushed.
  indirect = 4,  // Leads to receives elsewhere.
};

// The last word of a CQE, as a number.
struct [[nodiscard]] QueueTypeFlags {
  u32 raw = 0;

  static WV_HD constexpr QueueTypeFlags of(bool color, bool error = 0, u8 cqe_type = 0, u32 queue = 0) {
    u32 word = 0x0;
    word |= static_cast<u32>(color) << 0;
    word |= static_cast<u32>(error) << 1;
    word |= static_cast<u32>(cqe_type) << 5;
    word |= static_cast<u32>(queue) << 8;
    return QueueTypeFlags{word};
  }
  // Says that the entry is new: 1 in the first lap, and it flips with each.
  WV_HD constexpr bool color() const {
    return static_cast<bool>(raw >> 0 & 0x1);
  }
  // The work failed.
  WV_HD constexpr bool error() const {
    return static_cast<bool>(raw >> 1 & 0x1);
  }
  // See `CqeType`.
  WV_HD constexpr u8 cqe_type() const {
    return static_cast<u8>(raw >> 5 & 0x7);
  }
  // The QP.
  WV_HD constexpr u32 queue() const {
    return static_cast<u32>(raw >> 8 & 0xffffff);
  }
};

// CQE of send WQEs.
struct SendCqe {
  u32 reserved0;  // Zero.
  u32 msn;  // Messages that have ended, 24 bits; the first message is number 1.
  u64 reserved8;  // Zero.
  // Of operations without a message: place of the WQE in bits 15..0; a timestamp above.
  u64 index_time;
  u32 status_length;  // Status if the error bit is set, otherwise bytes that arrived.
  u32 queue_type_flags;  // See `QueueTypeFlags`.
};
static_assert(sizeof(SendCqe) == 32, "SendCqe");
WV_AT(SendCqe, reserved0, 0);
WV_AT(SendCqe, msn, 4);
WV_AT(SendCqe, reserved8, 8);
WV_AT(SendCqe, index_time, 16);
WV_AT(SendCqe, status_length, 24);
WV_AT(SendCqe, queue_type_flags, 28);

// CQE of a receive.
struct RecvCqe {
  u64 index_time;  // Place of the WQE in bits 15..0; a timestamp above.
  u32 source_op;  // Sender's QP in bits 23..0, kind of message in 28..24, VLAN in 30, IPv4 in 31.
  u8 mac[6];  // MAC address of the sender.
  u16 vlan;  // VLAN.
  u32 imm_or_key;  // Immediate value, or the key that was invalidated.
  u32 status_length;  // Status if the error bit is set, otherwise bytes that arrived.
  u32 queue_type_flags;  // See `QueueTypeFlags`.
};
static_assert(sizeof(RecvCqe) == 32, "RecvCqe");
WV_AT(RecvCqe, index_time, 0);
WV_AT(RecvCqe, source_op, 8);
WV_AT(RecvCqe, mac, 12);
WV_AT(RecvCqe, vlan, 18);
WV_AT(RecvCqe, imm_or_key, 20);
WV_AT(RecvCqe, status_length, 24);
WV_AT(RecvCqe, queue_type_flags, 28);

// Why work failed.
enum class failure : u32 {
  local_length = 0x1,  // The local work request, or its receive, has a bad length.
  local_qp_operation = 0x2,  // The WQE is not well formed.
  protection = 0x3,  // A local key, its bounds or its rights forbid the access.
  flushed = 0x4,  // The QP is in ERR: the WQE was not executed.
  memory_management = 0x5,  // A memory window could not be bound, or a key not be invalidated.
  bad_response = 0x6,  // The response does not fit the request.
  local_access = 0x7,  // A receive may not write local memory.
  remote_invalid = 0x8,  // The responder refused the request as malformed.
  remote_access = 0x9,  // The responder's key, bounds or rights forbid the access.
  remote_operation = 0xa,  // The responder could not carry out the request.
  retry = 0xb,  // No answer after all retries.
  rnr_retry = 0xc,  // The receiver had no receive posted, after all retries.
  xrc = 0xd,  // An extended connection was violated.
};

#undef WV_AT

}  // namespace wv::ionic
