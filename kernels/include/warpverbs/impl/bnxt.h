// bnxt_re's queues: WQEs of three 16-byte slots, a table with the packet numbers of each (MSN table),
// doorbells without a record, CQEs of 32 bytes.
//
// A poster owns packet numbers beside its indexes, in the same order. One fetch-add hands out both: the
// word `reserved` is `packet << 40 + index`, modulo 2^64. The index in it is known modulo 2^40, which is
// enough beside another that is near; then the packet number is exact, whatever the index has carried
// into its bits.
#pragma once

#include "warpverbs/bnxt/cqe.h"
#include "warpverbs/bnxt/wqe.h"
#include "warpverbs/impl/wqe.h"
#include "warpverbs/operands.h"

namespace wv {
namespace impl {

struct IndexAndPacket {
  static constexpr bool counts_packets = true;
  static constexpr u32 index_bits = 40;

  static WV_DEVICE u64 word(u64 index, u32 packet) { return (u64{packet} << index_bits) + index; }
  static WV_DEVICE u64 amount(u32 n, u32 packets) { return word(n, packets); }
  static WV_DEVICE u64 index_of(u64 word, u64 near) {
    constexpr u32 above = 64 - index_bits;
    return near + static_cast<u64>(static_cast<i64>((word - near) << above) >> above);
  }
  static WV_DEVICE u32 packet_of(u64 word, u64 index) {
    return static_cast<u32>((word - index) >> index_bits);
  }
  static WV_DEVICE bool is_at(u64 word, u64 index) {
    return (word - index) << (64 - index_bits) == 0;
  }
};

}  // namespace impl

namespace bnxt {

struct Nic : impl::WithoutRecord<CqeTail, cqe_tail_offset> {
  using Counter = impl::IndexAndPacket;
  using WriteInline = impl::WriteShort;
  using Out = impl::SendRing<Nic>;

  // The epoch tells a full ring from an empty one.
  static constexpr u32 unused = 0;
  static constexpr u32 wqebb_bytes = wqe_bytes;
  static constexpr bool flushes_receives = false;
  static constexpr u32 cqe_bytes = bnxt::cqe_bytes;

  static constexpr u8 fence_bits = bnxt::fence;
  static constexpr u8 signal_bits = signaled;
  static constexpr u8 solicited_bits = bnxt::solicited;

  struct Sends {
    u64* doorbell;
    u64* table;
    u32 qpn;
    u32 log_table;
    u32 log_mtu;

    explicit WV_DEVICE Sends(const QpLayout& qp)
        : doorbell(impl::at<u64>(qp.doorbell)), table(impl::at<u64>(qp.packets)), qpn(qp.qpn),
          log_table(qp.log_packets), log_mtu(qp.log_mtu) {}

    WV_DEVICE void set_record(u64) const {}
    WV_DEVICE u64 doorbell_value(u64 next, u32 log_depth) const {
      return bnxt::doorbell(doorbell_kind::send, qpn, next, log_depth, wqe_slots);
    }
    WV_DEVICE void note_span(u32, u32) const {}

    WV_DEVICE u32 packets(u32 bytes) const { return bnxt::packets(bytes, log_mtu); }
    WV_DEVICE u64* entry(u64 index) const { return table + (index & ((u64{1} << log_table) - 1)); }
    // The first packet number of the WQE at `index`, from the entry of the one before it; the host
    // fills in that of the first WQE. For a poster who is alone.
    WV_DEVICE u32 packet_at(u64 index) const {
      return Msn{load<order::relaxed, scope::gpu>(entry(index - 1))}.next();
    }
  };

  // As many slots as the longest of them uses; doorbells count receives, not slots.
  struct Receives {
    u32 slots;

    explicit WV_DEVICE Receives(const QpLayout& qp) : slots(qp.rq_slots) {}
    WV_DEVICE u64 offset(u32 slot) const { return u64{slot * slots} * slot_bytes; }
  };

  static WV_DEVICE void announce_receives(const impl::RecvQueue<Nic>& q, u64 next) {
    store<order::release, scope::system>(impl::at<u64>(q.record),
                                         doorbell(doorbell_kind::receive, q.qpn, next, q.log_depth));
  }

  // ---- WQEs

  static WV_DEVICE void put(const Out& out, impl::Slot to, u32 bytes, Wqe wqe) {
    u8* slots = out.q.wqebb(to.index);
    for (u32 k = 0; k < wqe_slots; ++k) impl::write_segment(slots, k, wqe.slot[k]);
    const u64 numbers =
        packet_numbers(to.packet, out.q.nic.packets(bytes), out.q.slot(to.index));
    store<order::relaxed, scope::gpu>(out.q.nic.entry(to.index), numbers);
  }

  static WV_DEVICE wqe_type type_of(mlx5::opcode op) {
    switch (op) {
      case mlx5::opcode::send_imm: return wqe_type::send_imm;
      case mlx5::opcode::send_inval: return wqe_type::send_invalidate;
      case mlx5::opcode::rdma_write: return wqe_type::write;
      case mlx5::opcode::rdma_write_imm: return wqe_type::write_imm;
      case mlx5::opcode::rdma_read: return wqe_type::read;
      default: return wqe_type::send;
    }
  }

  // An RDMA request or a SEND, whose second slot is `target`.
  template <class Op>
  static WV_DEVICE void put_entry(const Out& out, impl::Slot to, const Op& op, u8 flags,
                                  Seg target) {
    put(out, to, op.bytes,
        {{header(type_of(op.op), flags, op.bytes, op.imm), target,
          entry(op.local.addr, op.bytes, op.local.lkey)}});
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Rdma& op, u8 fence,
                              u8 last) {
    put_entry(out, to, op, fence | last, remote(op.remote.addr, op.remote.rkey));
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Send& op, u8 fence,
                              u8 last) {
    put_entry(out, to, op, fence | last, Seg{});
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Nop&, u8 fence, u8 last) {
    put(out, to, 0, {{header(wqe_type::write, fence | last, 0), Seg{}, Seg{}}});
  }

  static WV_DEVICE void put_inline(const Out& out, impl::Slot to, Remote at, u32 bytes, Seg data,
                                   u8 flags) {
    // Three slots without a byte are an entry of no bytes.
    const u8 all = bytes != 0 ? flags | inline_data : flags;
    put(out, to, bytes, {{header(wqe_type::write, all, bytes), remote(at.addr, at.rkey), data}});
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::WriteValue& op, u8 fence,
                              u8 last) {
    put_inline(out, to, op.remote, op.bytes, {{op.word[0], op.word[1], op.word[2], 0}},
               fence | last);
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::WriteShort& op, u8 fence,
                              u8 last) {
    put_inline(out, to, op.remote, op.bytes, impl::segment_of(op.source, op.bytes, 0),
               fence | last);
  }

  static WV_DEVICE void put_atomic(const Out& out, impl::Slot to, Local local, Remote at,
                                   wqe_type type, u8 flags, Seg operands) {
    put(out, to, 8,
        {{atomic_header(type, flags, at.addr, at.rkey), operands,
          entry(local.addr, 8, local.lkey)}});
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to,
                              const impl::PlainAtomic<FetchAdd>& op, u8 fence, u8 last) {
    put_atomic(out, to, op.local, op.remote, wqe_type::fetch_add, fence | last,
               operands(op.operands.add, 0));
  }
  static WV_DEVICE void write(const Out& out, impl::Slot to,
                              const impl::PlainAtomic<CompareSwap>& op, u8 fence, u8 last) {
    put_atomic(out, to, op.local, op.remote, wqe_type::compare_swap, fence | last,
               operands(op.operands.swap, op.operands.compare));
  }

  static WV_DEVICE void write(const impl::RecvQueue<Nic>& q, u64 index, const impl::Receive& op) {
    u8* wqe = q.wqe(index);
    impl::write_segment(wqe, 0, receive_header(q.slot(index)));
    impl::write_segment(wqe, 1, Seg{});
    impl::write_segment(wqe, 2, entry(op.local.addr, op.bytes, op.local.lkey));
  }

  // ---- CQEs

  static WV_DEVICE bool is_new(Tail tail, u64 ci, u32 log_size) {
    return bnxt::is_new(tail, ci, log_size);
  }
  // The CQE counts the WQEs that have ended, modulo 2^16.
  static WV_DEVICE u16 newest(u64 cqe) {
    constexpr u32 at = WV_OFFSETOF(SendCqe, consumed);
    return static_cast<u16>(impl::cqe_word(cqe, at) - 1);
  }
  static WV_DEVICE u64 index_in(u64 cqe, Tail, u64 done) {
    return done + static_cast<u16>(newest(cqe) - static_cast<u16>(done));
  }
  static WV_DEVICE bool names(u64 cqe, Tail, u64 index) {
    return newest(cqe) == static_cast<u16>(index);
  }
  // An error is that of the oldest WQE that no CQE has reported.
  static WV_DEVICE u16 counter(Tail, u64 done) { return static_cast<u16>(done); }

  static WV_DEVICE Status failure(u64, Tail tail) {
    switch (tail.type()) {
      case cqe_type::send: {
        const auto why = syndrome_of(static_cast<send_status>(tail.status()));
        return Status::of(outcome::requester, static_cast<u8>(why), tail.status());
      }
      case cqe_type::receive: {
        const auto why = syndrome_of(static_cast<recv_status>(tail.status()));
        return Status::of(outcome::responder, static_cast<u8>(why), tail.status());
      }
      case cqe_type::terminal:
        return Status::of(outcome::requester, static_cast<u8>(mlx5::syndrome::wr_flush));
      default: return Status::of(outcome::bad_error);
    }
  }

  static WV_DEVICE void return_cqes(const Cq& cq, u64 ci) {
    const u64 bell = doorbell(doorbell_kind::completion, cq.cqn, ci, cq.log_size);
    store<order::release, scope::system>(impl::at<u64>(cq.dbr), bell);
  }

  struct Arrived {
    u32 bytes, imm, opcode;
  };
  static WV_DEVICE Arrived arrived(u64 cqe, Tail tail) {
    const auto kind = (tail.flags() & is_write) != 0  ? mlx5::cqe_opcode::resp_wr_imm
                      : (tail.flags() & has_imm) != 0 ? mlx5::cqe_opcode::resp_send_imm
                      : (tail.flags() & has_key) != 0 ? mlx5::cqe_opcode::resp_send_inv
                                                      : mlx5::cqe_opcode::resp_send;
    return {impl::cqe_word(cqe, WV_OFFSETOF(RecvCqe, length)),
            impl::cqe_word(cqe, WV_OFFSETOF(RecvCqe, imm_or_key)), static_cast<u32>(kind)};
  }
};

}  // namespace bnxt
}  // namespace wv
