// The two work queues of a QP as the posting protocol sees them. The hot fields are copied out of
// the Qp once: every acquire would otherwise make the compiler fetch them again.
#pragma once

#include "warpverbs/mlx5/doorbell.h"
#include "warpverbs/mlx5/segment.h"
#include "warpverbs/qp.h"
#include "warpverbs/status.h"

namespace wv {
namespace impl {

template <class T>
WV_DEVICE T* at(u64 address) {
  return reinterpret_cast<T*>(address);
}

WV_DEVICE PostState* state_of(const Qp& qp) { return at<PostState>(qp.state); }

struct SendQueue {
  PostState* state;
  u8* ring;
  u64* ready;
  u8* span;
  u32* record;
  u64* doorbell;
  u32 qpn;  // Qp::send_tag
  u32 log_depth;

  explicit WV_DEVICE SendQueue(const Qp& qp)
      : state(state_of(qp)), ring(at<u8>(qp.sq)), ready(at<u64>(qp.sq_ready)),
        span(at<u8>(qp.sq_span)), record(at<u32>(qp.dbr) + mlx5::dbr_snd),
        doorbell(at<u64>(qp.doorbell)), qpn(qp.send_tag), log_depth(qp.log_sq) {}

  WV_DEVICE QueueState* counters() const { return &state->sq; }
  WV_DEVICE u64 depth() const { return u64{1} << log_depth; }
  WV_DEVICE u32 slot(u64 index) const { return static_cast<u32>(index & (depth() - 1)); }
  WV_DEVICE u8* wqebb(u64 index) const { return ring + u64{slot(index)} * mlx5::wqebb_bytes; }

  // The send counter of the doorbell record.
  WV_DEVICE void set_record(u64 next) const {
    // WQEs before the record, which a device may read ahead of the doorbell.
    if ((qpn & fenced_record) != 0) fence<order::release, scope::system>();
    store<order::relaxed, scope::system>(record, mlx5::dbr_value(next));
  }

  // Tells the NIC that everything below `next` may be executed. Combiner only.
  WV_DEVICE void announce(u64 next) const {
    // The doorbell's release covers the record and `published`, which is therefore never behind
    // what a poller sees completed.
    set_record(next);
    store<order::relaxed, scope::gpu>(&counters()->published, next);
    store<order::release, scope::system>(doorbell, mlx5::doorbell_next(next, qpn));
  }
};

struct RecvQueue {
  PostState* state;
  u8* ring;
  u64* ready;
  u32* record;
  u32 log_stride;
  u32 log_depth;

  explicit WV_DEVICE RecvQueue(const Qp& qp)
      : state(state_of(qp)), ring(at<u8>(qp.rq)), ready(at<u64>(qp.rq_ready)),
        record(at<u32>(qp.dbr) + mlx5::dbr_rcv), log_stride(qp.log_rq_stride),
        log_depth(qp.log_rq) {}

  WV_DEVICE QueueState* counters() const { return &state->rq; }
  WV_DEVICE u64 depth() const { return u64{1} << log_depth; }
  WV_DEVICE u8* wqe(u64 index) const { return ring + ((index & (depth() - 1)) << log_stride); }

  // Receive queues have no doorbell register: the record is what the NIC reads.
  WV_DEVICE void announce(u64 next) const {
    store<order::relaxed, scope::gpu>(&counters()->published, next);
    store<order::release, scope::system>(record, mlx5::dbr_value(next));
  }
};

}  // namespace impl
}  // namespace wv
