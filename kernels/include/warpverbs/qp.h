// The exported QP: where everything lies that a kernel needs to post by itself.
// Mirrors crates/mlx5/src/export.rs. Native byte order; addresses are the poster's own.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {

enum class cq_mode : u8 {
  ring = 0,       // one CQE per completion, owner bit, consumer index in the record
  collapsed = 1,  // every CQE overwrites slot 0
};

struct Cq {
  u64 buf;  // first 64-byte CQE
  u64 dbr;  // be32 SET_CI, be32 ARM
  u32 cqn;
  u8 log_size;
  cq_mode mode;
  u8 reserved[2];
};

// Never written after it was handed out.
struct Qp {
  u64 sq;        // send queue, 64-byte WQEBBs
  u64 rq;        // receive queue, 0 if none
  u64 dbr;       // be32 RCV counter, be32 SND counter
  u64 doorbell;  // 64-bit doorbell register
  Cq send_cq;
  Cq recv_cq;
  u64 state;     // PostState
  u64 sq_ready;  // ready bitmap, one bit per slot, u64 words
  u64 rq_ready;  // the same for the receive queue, 0 if none
  u64 sq_span;   // u8 per SQ slot: WQEBBs of the signalled WQE that starts there
  u64 abort;     // u32; non-zero makes every wait return `aborted`
  u64 scratch;   // scratch_slots + 1 registered u64; the last is a sink
  u64 timeout_ns;
  u32 scratch_lkey;
  u32 qpn;
  u8 log_sq;         // WQEBBs
  u8 log_rq;         // receive WQEs
  u8 log_rq_stride;  // bytes
  u8 inline_words;   // largest inline payload in 4-byte words
  u32 send_tag;      // qpn, and fenced_record where that applies
  u8 reserved[40];
};

// In Qp::send_tag: the send counter of the doorbell record is stored with a release of system scope,
// because a device behind PCIe may read it without having received a doorbell. Doorbells and control
// segments shift the bits above the 24 of the QP number out.
constexpr u32 fenced_record = 1u << 31;

// `completed` of a queue and the lock of its poller, in one word: one release both raises the one
// and gives back the other. Bit 0: somebody polls the CQ; above it: everything below is done.
struct PollWord {
  u64 raw;

  static WV_HD constexpr PollWord of(u64 completed, bool locked) {
    return PollWord{completed << 1 | (locked ? 1u : 0u)};
  }
  WV_HD constexpr bool locked() const { return (raw & 1) != 0; }
  WV_HD constexpr u64 completed() const { return raw >> 1; }
};

// Counters of one work queue in WQEBBs (send) or WQEs (receive), never wrapping: 64-bit, and
// `completed` 63-bit. reserved >= published >= completed.
struct QueueState {
  u64 reserved;     // fetch-add by posters
  u64 unsignalled;  // end of the newest reservation that has no CQE of its own
  u64 pad0[14];
  u64 published;   // written by the combiner, who holds ring_token
  u32 ring_token;  // fetch-add to ask for a ring, compare-and-swap to 0 to leave
  u32 pad1;
  u64 pad2[14];
  u64 poll;   // PollWord; written by the poller, who holds its lock
  u64 cq_ci;  // consumer index of the queue's CQ, not masked; written by the poller
  u64 pad3[14];
};

// The first wait that failed, for the host.
struct Fault {
  u32 claim;  // 0 free, 1 being written, 2 complete
  u32 status;
  u32 what;
  u32 qpn;
  u64 expected;
  u64 actual;
  u64 thread;  // block * threads per block + thread
};

struct PostState {
  QueueState sq;
  QueueState rq;
  u64 error;         // ErrorWord, 0 while healthy
  u64 scratch_free;  // bit i set: scratch slot i is free
  Fault fault;
  u64 pad[9];
};

constexpr u32 scratch_slots = 64;

// The first error of a queue pair, packed so that one compare-and-swap claims it: bit 63 set,
// wqe_counter in bits 47..32, Status::code of what every call returns from then on in bits 31..0.
struct ErrorWord {
  u64 raw;

  static WV_HD constexpr ErrorWord pack(u32 status, u16 counter) {
    return ErrorWord{1ull << 63 | static_cast<u64>(counter) << 32 | status};
  }
  WV_HD constexpr u32 status() const { return static_cast<u32>(raw); }
};

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

static_assert(sizeof(Cq) == 24, "Cq");
WV_AT(Cq, cqn, 16);
WV_AT(Cq, mode, 21);
static_assert(sizeof(Qp) == 192, "Qp");
WV_AT(Qp, doorbell, 24);
WV_AT(Qp, send_cq, 32);
WV_AT(Qp, recv_cq, 56);
WV_AT(Qp, state, 80);
WV_AT(Qp, sq_ready, 88);
WV_AT(Qp, sq_span, 104);
WV_AT(Qp, abort, 112);
WV_AT(Qp, scratch, 120);
WV_AT(Qp, timeout_ns, 128);
WV_AT(Qp, scratch_lkey, 136);
WV_AT(Qp, qpn, 140);
WV_AT(Qp, log_sq, 144);
WV_AT(Qp, send_tag, 148);
WV_AT(Qp, inline_words, 147);
static_assert(sizeof(QueueState) == 384, "QueueState");
WV_AT(QueueState, published, 128);
WV_AT(QueueState, ring_token, 136);
WV_AT(QueueState, poll, 256);
WV_AT(QueueState, cq_ci, 264);
static_assert(sizeof(Fault) == 40, "Fault");
WV_AT(Fault, expected, 16);
static_assert(sizeof(PostState) == 896, "PostState");
WV_AT(PostState, rq, 384);
WV_AT(PostState, error, 768);
WV_AT(PostState, scratch_free, 776);
WV_AT(PostState, fault, 784);

#undef WV_AT

}  // namespace wv
