// The two work queues of a QP as the posting protocol sees them. The hot fields are copied out of
// the Qp once: every acquire would otherwise make the compiler fetch them again.
//
// Reservation, ready bits, combining and waiting are the same for every NIC. A class `Nic` has what its
// format decides (impl/mlx5.h, impl/bnxt.h, impl/ionic.h):
//   Counter              the word `reserved` (IndexAlone below)
//   unused               entries of a ring that have to stay free
//   Sends                what a send queue needs beside the fields of SendQueue; its doorbell
//   Receives             where the WQEs of a receive queue lie (PowersOfTwo below)
//   wqebb_bytes, write   the bytes of WQEs (impl/wqe.h)
//   announce             how receives are made known
//   look and what takes its result   CQEs (impl/drain.h)
#pragma once

#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {
namespace impl {

template <class T>
WV_DEVICE T* at(u64 address) {
  return memory_at<T>(address);
}

// A word of a CQE that is known to be new.
WV_DEVICE u32 cqe_word(u64 cqe, u32 offset) {
  return load<order::relaxed, scope::system>(at<u32>(cqe + offset));
}

WV_DEVICE PostState* state_of(const QpLayout& qp) { return at<PostState>(qp.state); }

// The word `reserved` of a queue whose posters count nothing but indexes.
struct IndexAlone {
  static constexpr bool counts_packets = false;

  // The summand of a reservation of `n` entries, which take `packets` packets.
  static WV_DEVICE u64 amount(u32 n, u32) { return n; }
  // The index in a word; `near`: one that is less than 2^39 away from it.
  static WV_DEVICE u64 index_of(u64 word, u64) { return word; }
  // The first packet number of the entry at `index`, which a word tells.
  static WV_DEVICE u32 packet_of(u64, u64) { return 0; }
  static WV_DEVICE bool is_at(u64 word, u64 index) { return word == index; }
};

template <class Nic>
struct SendQueue {
  using Counter = typename Nic::Counter;

  PostState* state;
  u8* ring;
  u64* ready;
  typename Nic::Sends nic;
  u32 log_depth;

  explicit WV_DEVICE SendQueue(const QpOf<Nic>& qp)
      : state(state_of(qp)), ring(at<u8>(qp.sq)), ready(at<u64>(qp.sq_ready)), nic(qp),
        log_depth(qp.log_sq) {}

  WV_DEVICE QueueState* counters() const { return &state->sq; }
  WV_DEVICE u64 depth() const { return u64{1} << log_depth; }
  WV_DEVICE u64 room() const { return depth() - Nic::unused; }
  WV_DEVICE u32 slot(u64 index) const { return static_cast<u32>(index & (depth() - 1)); }
  WV_DEVICE u8* wqebb(u64 index) const { return ring + u64{slot(index)} * Nic::wqebb_bytes; }

  // The doorbell alone: the record and `published` are stored already.
  WV_DEVICE void ring_doorbell(u64 next) const {
    store<order::release, scope::system>(nic.doorbell, nic.doorbell_value(next, log_depth));
  }

  // Tells the NIC that everything below `next` may be executed. Combiner only.
  WV_DEVICE void announce(u64 next) const {
    // The doorbell's release covers the record and `published`, which is therefore never behind
    // what a poller sees completed.
    nic.set_record(next);
    store<order::relaxed, scope::gpu>(&counters()->published, next);
    ring_doorbell(next);
  }
};

// Receives of a power of two of bytes.
struct PowersOfTwo {
  u32 log_stride;

  explicit WV_DEVICE PowersOfTwo(const QpLayout& qp) : log_stride(qp.log_rq_stride) {}
  WV_DEVICE u64 offset(u32 slot) const { return u64{slot} << log_stride; }
};

template <class Nic>
struct RecvQueue {
  using Counter = IndexAlone;

  PostState* state;
  u8* ring;
  u64* ready;
  u64 record;  // Qp::dbr
  u32 qpn;
  typename Nic::Receives receives;
  u32 log_depth;

  explicit WV_DEVICE RecvQueue(const QpOf<Nic>& qp)
      : state(state_of(qp)), ring(at<u8>(qp.rq)), ready(at<u64>(qp.rq_ready)), record(qp.dbr),
        qpn(qp.qpn), receives(qp), log_depth(qp.log_rq) {}

  WV_DEVICE QueueState* counters() const { return &state->rq; }
  WV_DEVICE u64 depth() const { return u64{1} << log_depth; }
  WV_DEVICE u64 room() const { return depth() - Nic::unused; }
  WV_DEVICE u32 slot(u64 index) const { return static_cast<u32>(index & (depth() - 1)); }
  WV_DEVICE u8* wqe(u64 index) const { return ring + receives.offset(slot(index)); }

  WV_DEVICE void announce(u64 next) const {
    store<order::relaxed, scope::gpu>(&counters()->published, next);
    Nic::announce_receives(*this, next);
  }
};

}  // namespace impl
}  // namespace wv
