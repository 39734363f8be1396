// Generated from crates/layout/src/qp.rs.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

// How a CQ reports completions.
enum class cq_mode : u8 {
  // One CQE per completion, ownership by the owner bit, consumer index in the doorbell record.
  ring = 0,
  // `cc = 1, oi = 1`: every CQE overwrites slot 0; the poller reads only the newest index.
  collapsed = 1,
};

// Whose format the queues of a queue pair have.
enum class nic_format : u8 {
  mlx5 = 0,  // NVIDIA's ConnectX.
  bnxt = 1,  // Broadcom's Thor: bnxt_re's, in variable mode with an MSN table.
  ionic = 2,  // AMD Pensando's Pollara: ionic's, of protocol 2.
};

// A completion queue as the poster sees it.
struct Cq {
  u64 buf;  // Address of the first CQE: 64 bytes each, or 32 of other formats than mlx5's.
  // Address of the CQ doorbell record: be32 SET_CI, be32 ARM. Of other formats than mlx5's, that of
  // the 64-bit doorbell.
  u64 dbr;
  u32 cqn;  // CQ number.
  u8 log_size;  // log2 of the number of CQEs.
  cq_mode mode;  // A `CqMode`.
  u8 reserved[2];  // Zero.
};
static_assert(sizeof(Cq) == 24 && alignof(Cq) == 8, "Cq");
WV_AT(Cq, buf, 0);
WV_AT(Cq, dbr, 8);
WV_AT(Cq, cqn, 16);
WV_AT(Cq, log_size, 20);
WV_AT(Cq, mode, 21);
WV_AT(Cq, reserved, 22);

// A queue pair as the poster sees it. Never written after it was handed out. "WQEBB" is the unit of a
// send queue: 64 bytes, or of bnxt_re's format a WQE of three 16-byte slots.
struct QpLayout {
  u64 sq;  // Address of the send queue.
  u64 rq;  // Address of the receive queue, or 0 if there is none (SRQ, or no receives).
  // Address of the QP doorbell record: be32 RCV counter, be32 SND counter. Of other formats than
  // mlx5's, that of the 64-bit doorbell of the receive queue.
  u64 dbr;
  u64 doorbell;  // Address of the 64-bit doorbell register.
  Cq send_cq;  // Completions of the send queue.
  Cq recv_cq;  // Completions of the receive queue.
  u64 state;  // Address of the `PostState`.
  // Address of the SQ ready bitmap: one bit per WQEBB, flipped once per lap. u64 words.
  u64 sq_ready;
  u64 rq_ready;  // Address of the RQ ready bitmap, as `sq_ready`; 0 if there is no RQ.
  u64 sq_span;  // Address of one byte per SQ slot: WQEBBs of the signalled WQE that starts there.
  // Address of a u32 that the host sets to non-zero to make every wait return `aborted`.
  u64 abort;
  // Address of `scratch_slots` + 1 registered u64 for results of atomics; the last is a sink.
  u64 scratch;
  u64 timeout_ns;  // The deadline, in nanoseconds, of every wait that is not given its own.
  u32 scratch_lkey;  // lkey of `scratch`, native order.
  u32 qpn;  // QP number, 24 bits.
  u8 log_sq;  // log2 of the number of WQEBBs in the SQ, 7 to 15.
  u8 log_rq;  // log2 of the number of receive WQEs.
  u8 log_rq_stride;  // log2 of the bytes of one receive WQE, 4 to 10; not of bnxt_re's format.
  u8 inline_words;  // Largest inline payload in bytes divided by 4.
  u32 send_tag;  // The QP number, with `fenced_record` where that applies.
  u64 packets;  // Of bnxt_re's format: address of the MSN table, one u64 for each entry.
  nic_format format;  // A `NicFormat`.
  u8 log_packets;  // Of bnxt_re's format: log2 of the entries of the MSN table, at least `log_sq`.
  u8 log_mtu;  // Of bnxt_re's format: log2 of the path MTU, 8 to 12.
  u8 rq_slots;  // Of bnxt_re's format: 16-byte slots of one receive WQE, 3 or more.
  u8 reserved[28];  // Zero.
};
static_assert(sizeof(QpLayout) == 192 && alignof(QpLayout) == 8, "QpLayout");
WV_AT(QpLayout, sq, 0);
WV_AT(QpLayout, rq, 8);
WV_AT(QpLayout, dbr, 16);
WV_AT(QpLayout, doorbell, 24);
WV_AT(QpLayout, send_cq, 32);
WV_AT(QpLayout, recv_cq, 56);
WV_AT(QpLayout, state, 80);
WV_AT(QpLayout, sq_ready, 88);
WV_AT(QpLayout, rq_ready, 96);
WV_AT(QpLayout, sq_span, 104);
WV_AT(QpLayout, abort, 112);
WV_AT(QpLayout, scratch, 120);
WV_AT(QpLayout, timeout_ns, 128);
WV_AT(QpLayout, scratch_lkey, 136);
WV_AT(QpLayout, qpn, 140);
WV_AT(QpLayout, log_sq, 144);
WV_AT(QpLayout, log_rq, 145);
WV_AT(QpLayout, log_rq_stride, 146);
WV_AT(QpLayout, inline_words, 147);
WV_AT(QpLayout, send_tag, 148);
WV_AT(QpLayout, packets, 152);
WV_AT(QpLayout, format, 160);
WV_AT(QpLayout, log_packets, 161);
WV_AT(QpLayout, log_mtu, 162);
WV_AT(QpLayout, rq_slots, 163);
WV_AT(QpLayout, reserved, 164);

// `completed` of a queue and the lock of its poller, in one word: one release both raises the one
// and gives back the other.
struct [[nodiscard]] PollWord {
  u64 raw = 0;

  static WV_HD constexpr PollWord of(u64 completed, bool locked = 0) {
    u64 word = 0x0;
    word |= static_cast<u64>(completed) << 1;
    word |= static_cast<u64>(locked) << 0;
    return PollWord{word};
  }
  // Everything below this index is done.
  WV_HD constexpr u64 completed() const {
    return static_cast<u64>(raw >> 1 & 0x7fffffffffffffff);
  }
  // Somebody polls the CQ.
  WV_HD constexpr bool locked() const {
    return static_cast<bool>(raw >> 0 & 0x1);
  }
};

// The first error of a queue pair, packed so that one compare-and-swap claims it; never zero.
struct [[nodiscard]] ErrorWord {
  u64 raw = 0;

  static WV_HD constexpr ErrorWord of(u32 status, u16 wqe_counter = 0) {
    u64 word = 0x8000000000000000;
    word |= static_cast<u64>(status) << 0;
    word |= static_cast<u64>(wqe_counter) << 32;
    return ErrorWord{word};
  }
  // The `wv::Status` that every call of the device library returns from then on.
  WV_HD constexpr u32 status() const {
    return static_cast<u32>(raw >> 0 & 0xffffffff);
  }
  // Low 16 bits of the failed WQE's index.
  WV_HD constexpr u16 wqe_counter() const {
    return static_cast<u16>(raw >> 32 & 0xffff);
  }
};

// Counters of one work queue. Three 128-byte lines so that reserving, publishing and draining
// never share a line. Counters are in WQEBBs (SQ) or WQEs (RQ) and do not wrap: 64-bit, and
// `completed` 63-bit. `reserved ≥ published ≥ completed`.
struct QueueState {
  // Next index to hand out; fetch-add by posters. Of bnxt_re's format the low 40 bits, with the
  // packet number of the next WQE above.
  u64 reserved;
  u64 unsignalled;  // End of the newest reservation that has no CQE of its own; raised by posters.
  u64 pad0[14];  // Keeps the line to itself.
  // Everything below this was rung. Written by the combiner only, who holds `ring_token`.
  u64 published;
  u32 ring_token;  // Combining token: fetch-add to ask for a ring, compare-and-swap to 0 to leave.
  u32 pad1;  // Zero.
  u64 pad2[14];  // Keeps the line to itself.
  u64 poll;  // A `PollWord`. Written by the poller, who holds its lock; others only set the lock.
  u64 cq_ci;  // Consumer index of this queue's CQ, not masked. Written by the poller only.
  u64 pad3[14];  // Keeps the line to itself.
};
static_assert(sizeof(QueueState) == 384 && alignof(QueueState) == 8, "QueueState");
WV_AT(QueueState, reserved, 0);
WV_AT(QueueState, unsignalled, 8);
WV_AT(QueueState, pad0, 16);
WV_AT(QueueState, published, 128);
WV_AT(QueueState, ring_token, 136);
WV_AT(QueueState, pad1, 140);
WV_AT(QueueState, pad2, 144);
WV_AT(QueueState, poll, 256);
WV_AT(QueueState, cq_ci, 264);
WV_AT(QueueState, pad3, 272);

// The first wait on the queue pair that failed, for the host: the first writer claims it.
struct Fault {
  u32 claim;  // 0 free, 1 being written, 2 complete.
  u32 status;  // A `wv::Status` code (see `status.h`).
  u32 what;  // Purpose of the wait: a `wv::wait_for` code.
  u32 qpn;  // QPN of the queue.
  u64 expected;  // The index (or value) that was waited for.
  u64 actual;  // The value found when the wait gave up.
  u64 thread;  // Flat thread number of the waiter: block * threads per block + thread.
};
static_assert(sizeof(Fault) == 40 && alignof(Fault) == 8, "Fault");
WV_AT(Fault, claim, 0);
WV_AT(Fault, status, 4);
WV_AT(Fault, what, 8);
WV_AT(Fault, qpn, 12);
WV_AT(Fault, expected, 16);
WV_AT(Fault, actual, 24);
WV_AT(Fault, thread, 32);

// The posting state of one QP: zero-filled at creation, except `scratch_free` (all ones).
struct PostState {
  QueueState sq;  // Send queue.
  QueueState rq;  // Receive queue.
  u64 error;  // First error CQE, claimed once and kept; 0 while healthy. An `ErrorWord`.
  u64 scratch_free;  // Bit i set: scratch slot i is free.
  Fault fault;  // The first failed wait.
  u64 pad[9];  // Keeps the line to itself.
};
static_assert(sizeof(PostState) == 896 && alignof(PostState) == 8, "PostState");
WV_AT(PostState, sq, 0);
WV_AT(PostState, rq, 384);
WV_AT(PostState, error, 768);
WV_AT(PostState, scratch_free, 776);
WV_AT(PostState, fault, 784);
WV_AT(PostState, pad, 824);

// Words of a queue pair for results of atomics that name no buffer of their own.
constexpr u32 scratch_slots = 64;
// In Qp.send_tag: the send counter of the doorbell record is stored with a release of system
// scope, because a device behind PCIe may read it without having received a doorbell.
// Doorbells and control segments shift the bits above the 24 of the QP number out.
constexpr u32 fenced_record = 0x80000000;
// The ring token while nobody holds it and work is ready: the next thread that asks takes it.
constexpr u32 token_offered = 0x80000000;
// Passes of one combiner before it offers the token to the next thread that asks.
constexpr u32 most_passes = 64;
constexpr u32 fault_complete = 2;  // The claim of a fault that is completely written.

#undef WV_AT

}  // namespace wv
