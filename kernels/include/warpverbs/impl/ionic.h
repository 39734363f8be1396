// ionic's queues: WQEs of 64 bytes that tell the lap of the ring by a colour, doorbells without a record,
// CQEs of 32 bytes.
#pragma once

#include "warpverbs/impl/wqe.h"
#include "warpverbs/ionic/cqe.h"
#include "warpverbs/ionic/wqe.h"
#include "warpverbs/operands.h"

namespace wv {
namespace ionic {

struct Nic : impl::WithoutRecord<CqeTail, cqe_tail_offset> {
  using Counter = impl::IndexAlone;
  using WriteInline = impl::WriteShort;
  using Receives = impl::PowersOfTwo;
  using Out = impl::SendRing<Nic>;

  // Doorbells tell a place alone: that of a full ring would be that of an empty one.
  static constexpr u32 unused = 1;
  static constexpr u32 wqebb_bytes = wqe_bytes;
  static constexpr bool flushes_receives = true;
  static constexpr u32 cqe_bytes = ionic::cqe_bytes;

  static constexpr u8 fence_bits = ionic::fence;
  static constexpr u8 signal_bits = signaled;
  static constexpr u8 solicited_bits = ionic::solicited;

  struct Sends {
    u64* doorbell;
    u32 qpn;

    explicit WV_DEVICE Sends(const QpLayout& qp)
        : doorbell(impl::at<u64>(qp.doorbell)), qpn(qp.qpn) {}

    WV_DEVICE void set_record(u64) const {}
    WV_DEVICE u64 doorbell_value(u64 next, u32 log_depth) const {
      return ionic::doorbell(qpn, next, log_depth);
    }
    WV_DEVICE void note_span(u32, u32) const {}
  };

  static WV_DEVICE void announce_receives(const impl::RecvQueue<Nic>& q, u64 next) {
    store<order::release, scope::system>(impl::at<u64>(q.record),
                                         doorbell(q.qpn, next, q.log_depth));
  }

  // ---- WQEs

  // The colour is in the header, which a device may look at before a doorbell: it comes last.
  static WV_DEVICE void put(const Out& out, u64 index, Wqe wqe) {
    u8* parts = out.q.wqebb(index);
    for (u32 k = 1; k < 4; ++k) impl::write_segment(parts, k, wqe.part[k]);
    wv::fence<order::release, scope::system>();
    impl::write_segment(parts, 0, wqe.part[0]);
  }
  static WV_DEVICE Seg head(const Out& out, u64 index, u8 opcode, u8 entries, u8 flags,
                            u32 imm = 0) {
    return header(index, out.q.log_depth, opcode, entries, flags, imm);
  }

  static WV_DEVICE u8 opcode_of(mlx5::opcode op) {
    switch (op) {
      case mlx5::opcode::send_imm: return op_send_imm;
      case mlx5::opcode::send_inval: return op_send_invalidate;
      case mlx5::opcode::rdma_write: return op_write;
      case mlx5::opcode::rdma_write_imm: return op_write_imm;
      case mlx5::opcode::rdma_read: return op_read;
      default: return op_send;
    }
  }

  // An RDMA request or a SEND, whose second part is `target`.
  template <class Op>
  static WV_DEVICE void put_entry(const Out& out, u64 index, const Op& op, u8 flags, Seg target) {
    put(out, index,
        {{head(out, index, opcode_of(op.op), 1, flags, op.imm), target,
          entry(op.local.addr, op.bytes, op.local.lkey), Seg{}}});
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Rdma& op, u8 fence,
                              u8 last) {
    put_entry(out, to.index, op, fence | last, remote(op.remote.addr, op.remote.rkey, op.bytes));
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Send& op, u8 fence,
                              u8 last) {
    put_entry(out, to.index, op, fence | last, message(op.bytes));
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Nop&, u8 fence, u8 last) {
    put(out, to.index,
        {{head(out, to.index, op_write, 0, fence | last), remote(0, 0, 0), Seg{}, Seg{}}});
  }

  static WV_DEVICE void put_inline(const Out& out, u64 index, Remote at, u32 bytes, Seg first,
                                   Seg second, u8 flags) {
    put(out, index,
        {{head(out, index, op_write, 0, flags | inline_data), remote(at.addr, at.rkey, bytes),
          first, second}});
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::WriteValue& op, u8 fence,
                              u8 last) {
    put_inline(out, to.index, op.remote, op.bytes, {{op.word[0], op.word[1], op.word[2], 0}},
               Seg{}, fence | last);
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::WriteShort& op, u8 fence,
                              u8 last) {
    put_inline(out, to.index, op.remote, op.bytes, impl::segment_of(op.source, op.bytes, 0),
               impl::segment_of(op.source, op.bytes, 1), fence | last);
  }

  static WV_DEVICE void put_atomic(const Out& out, u64 index, Local local, Remote at, u8 opcode,
                                   u8 flags, u64 swap_add, u64 compare) {
    put(out, index,
        atomic_wqe(head(out, index, opcode, 1, flags), at.addr, at.rkey, swap_add, compare,
                   local.addr, local.lkey));
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to,
                              const impl::PlainAtomic<FetchAdd>& op, u8 fence, u8 last) {
    put_atomic(out, to.index, op.local, op.remote, op_fetch_add, fence | last, op.operands.add, 0);
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to,
                              const impl::PlainAtomic<CompareSwap>& op, u8 fence, u8 last) {
    put_atomic(out, to.index, op.local, op.remote, op_compare_swap, fence | last, op.operands.swap,
               op.operands.compare);
  }

  static WV_DEVICE void write(const impl::RecvQueue<Nic>& q, u64 index, const impl::Receive& op) {
    u8* wqe = q.wqe(index);
    impl::write_segment(wqe, 0, receive_header(index, q.log_depth, op.bytes));
    impl::write_segment(wqe, 1, Seg{});
    impl::write_segment(wqe, 2, entry(op.local.addr, op.bytes, op.local.lkey));
    impl::write_segment(wqe, 3, Seg{});
  }

  // ---- CQEs

  static WV_DEVICE bool is_new(Tail tail, u64 ci, u32 log_size) {
    return ionic::is_new(tail, ci, log_size);
  }
  // The CQE counts the messages that have ended, 24 bits, and every WQE that kernels post is one.
  static WV_DEVICE u32 newest(u64 cqe) {
    constexpr u32 at = WV_OFFSETOF(SendCqe, msn);
    return bswap32(impl::cqe_word(cqe, at)) - 1;
  }
  static WV_DEVICE u64 index_in(u64 cqe, Tail, u64 done) {
    return done + ((newest(cqe) - static_cast<u32>(done)) & ((1u << msn_bits) - 1));
  }
  static WV_DEVICE bool names(u64 cqe, Tail, u64 index) {
    return ((newest(cqe) ^ static_cast<u32>(index)) & ((1u << msn_bits) - 1)) == 0;
  }
  static WV_DEVICE u16 counter(Tail, u64 done) { return static_cast<u16>(done); }

  static WV_DEVICE Status failure(u64, Tail tail) {
    const outcome kind = !tail.word().error()                ? outcome::bad_error
                         : tail.type() == cqe_type::receive  ? outcome::responder
                         : tail.type() == cqe_type::indirect ? outcome::bad_error
                                                             : outcome::requester;
    const auto why = syndrome_of(static_cast<ionic::failure>(tail.status_length()));
    return Status::of(kind, static_cast<u8>(why), static_cast<u8>(tail.status_length()));
  }

  static WV_DEVICE void return_cqes(const Cq& cq, u64 ci) {
    store<order::release, scope::system>(impl::at<u64>(cq.dbr), doorbell(cq.cqn, ci, cq.log_size));
  }

  struct Arrived {
    u32 bytes, imm, opcode;
  };
  static WV_DEVICE Arrived arrived(u64 cqe, Tail tail) {
    const auto word = [cqe](u32 at) { return bswap32(impl::cqe_word(cqe, at)); };
    const u32 op = word(WV_OFFSETOF(RecvCqe, source_op)) >> 24 & 0x1f;
    const auto kind = op == 0   ? mlx5::cqe_opcode::resp_send
                      : op == 1 ? mlx5::cqe_opcode::resp_send_inv
                      : op == 2 ? mlx5::cqe_opcode::resp_send_imm
                                : mlx5::cqe_opcode::resp_wr_imm;
    return {tail.status_length(), word(WV_OFFSETOF(RecvCqe, imm_or_key)), static_cast<u32>(kind)};
  }
};

}  // namespace ionic
}  // namespace wv
