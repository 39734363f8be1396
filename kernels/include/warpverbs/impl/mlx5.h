// mlx5's queues: WQEs of 64-byte WQEBBs, a doorbell record beside the doorbell, CQEs of 64 bytes.
#pragma once

#include "warpverbs/impl/wqe.h"
#include "warpverbs/mlx5/cqe.h"
#include "warpverbs/mlx5/doorbell.h"
#include "warpverbs/mlx5/segment.h"
#include "warpverbs/operands.h"

namespace wv {
namespace impl {

struct Wqebb {
  Seg seg[4];
};

// Of four neighbouring lanes of a whole warp, lane p gets segment p of what each of them gives, in
// the order of the lanes.
WV_DEVICE void transpose(Wqebb& w) {
  const u32 lane = lane_id();
  for (u32 bit = 1; bit < 4; bit *= 2) {
    const bool upper = (lane & bit) != 0;
    for (u32 k = 0; k < 4; ++k) {
      if ((k & bit) != 0) continue;
      // The lower lane gives its upper segment for the lower one of the upper lane.
      for (u32 i = 0; i < 4; ++i) {
        const u32 give = upper ? w.seg[k].w[i] : w.seg[k | bit].w[i];
        const u32 got = shfl(~lane_mask{0}, give, lane ^ bit);
        if (upper) w.seg[k].w[i] = got;
        else w.seg[k | bit].w[i] = got;
      }
    }
  }
}

// `index` of the WQEBB, and what it says.
WV_DEVICE void put_wqebb(const SendRing<mlx5::Nic>& out, u64 index, Wqebb w);

// WRITE of bytes that the caller can load, copied into the WQE; they may change right afterwards.
struct WriteInline {
  static constexpr u32 max_wqebbs = mlx5::wqebbs(mlx5::max_ds);
  Remote remote;
  const u8* source;
  u32 bytes;

  WV_DEVICE u32 ds() const { return 2 + mlx5::inline_ds(bytes); }
  WV_DEVICE u32 wqebbs() const { return mlx5::wqebbs(ds()); }
  WV_DEVICE u32 before_last() const { return 0; }

  // Word i of the inline segment: the header, then the bytes, then zeros.
  WV_DEVICE u32 inline_word(u32 i) const {
    return i == 0 ? mlx5::inline_header(bytes) : word_of(source, bytes, i - 1);
  }

  // Segment k of the whole WQE.
  WV_DEVICE Seg segment(u32 k, u64 index, u32 qpn, u8 flags) const {
    if (k == 0) return mlx5::ctrl(index, mlx5::opcode::rdma_write, qpn, ds(), flags);
    if (k == 1) return mlx5::raddr(remote.addr, remote.rkey);
    const u32 w = (k - 2) * 4;
    return {{inline_word(w), inline_word(w + 1), inline_word(w + 2), inline_word(w + 3)}};
  }
};

// Atomics whose operands fit one segment; the old value, `bytes` long, goes to `local`.
struct Atomic : OneWqebb {
  Local local;
  Remote remote;
  Seg operands;
  mlx5::opcode op;
  u8 opmod;
  u32 bytes;
};

// The masked 8-byte compare-and-swap: five segments.
struct MaskedCas8 {
  static constexpr u32 max_wqebbs = 2;
  Local local;
  Remote remote;
  Seg values;
  Seg masks;

  WV_DEVICE u32 wqebbs() const { return 2; }
  WV_DEVICE u32 before_last() const { return 0; }
};

}  // namespace impl

namespace mlx5 {

struct Nic {
  using Counter = impl::IndexAlone;
  using WriteInline = impl::WriteInline;
  using Receives = impl::PowersOfTwo;
  using Out = impl::SendRing<Nic>;
  using Tail = CqeTail;

  static constexpr u32 unused = 0;
  static constexpr u32 wqebb_bytes = mlx5::wqebb_bytes;
  static constexpr bool masked_atomics = true;
  // Whether each CQE of a CQ is the only one, and the next overwrites it, where cq_mode says so.
  static constexpr bool collapses = true;
  // Whether a QP in ERR reports receives too, and not in the send CQ alone.
  static constexpr bool flushes_receives = true;
  static constexpr u32 cqe_bytes = mlx5::cqe_bytes;

  // Bits of a WQE.
  static constexpr u8 fence_bits = fm_ce_se(fm::fence_and_small, ce::on_error);
  static constexpr u8 signal_bits = fm_ce_se(fm::none, ce::always);
  static constexpr u8 solicited_bits = mlx5::solicited;

  struct Sends {
    u8* span;
    u32* record;
    u64* doorbell;
    u32 qpn;  // Qp::send_tag

    explicit WV_DEVICE Sends(const QpLayout& qp)
        : span(impl::at<u8>(qp.sq_span)), record(impl::at<u32>(qp.dbr) + dbr_snd),
          doorbell(impl::at<u64>(qp.doorbell)), qpn(qp.send_tag) {}

    // The send counter of the doorbell record.
    WV_DEVICE void set_record(u64 next) const {
      // WQEs before the record, which a device may read ahead of the doorbell.
      if ((qpn & fenced_record) != 0) fence<order::release, scope::system>();
      store<order::relaxed, scope::system>(record, dbr_value(next));
    }
    WV_DEVICE u64 doorbell_value(u64 next, u32) const { return doorbell_next(next, qpn); }

    // Tells the poller how far the CQE of the WQE that starts in `slot` reaches.
    WV_DEVICE void note_span(u32 slot, u32 wqebbs) const {
      store<order::relaxed, scope::gpu>(span + slot, static_cast<u8>(wqebbs));
    }
  };

  // Receive queues have no doorbell register: the record is what the NIC reads.
  static WV_DEVICE void announce_receives(const impl::RecvQueue<Nic>& q, u64 next) {
    store<order::release, scope::system>(impl::at<u32>(q.record) + dbr_rcv, dbr_value(next));
  }

  // ---- WQEs

  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Rdma& op, u8 fence,
                              u8 last) {
    const u8 flags = fence | last;
    // A data segment of 0 bytes would mean 2 GiB: it is left out.
    const u32 ds = op.bytes != 0 ? 3 : 2;
    impl::put_wqebb(out, to.index,
                    {ctrl(to.index, op.op, out.q.nic.qpn, ds, flags, op.imm),
                     raddr(op.remote.addr, op.remote.rkey),
                     data(op.local.addr, op.bytes, op.local.lkey)});
  }

  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Send& op, u8 fence,
                              u8 last) {
    const u8 flags = fence | last;
    impl::put_wqebb(out, to.index,
                    {ctrl(to.index, op.op, out.q.nic.qpn, op.bytes != 0 ? 2 : 1, flags, op.imm),
                     data(op.local.addr, op.bytes, op.local.lkey)});
  }

  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Nop&, u8 fence, u8 last) {
    const u8 flags = fence | last;
    impl::put_wqebb(out, to.index, {ctrl(to.index, opcode::nop, out.q.nic.qpn, 1, flags)});
  }

  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::WriteValue& op, u8 fence,
                              u8 last) {
    const u8 flags = fence | last;
    impl::put_wqebb(out, to.index,
                    {ctrl(to.index, opcode::rdma_write, out.q.nic.qpn, 3, flags),
                     raddr(op.remote.addr, op.remote.rkey),
                     inline12(op.bytes, op.word[0], op.word[1], op.word[2])});
  }

  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::WriteInline& op, u8 fence,
                              u8 last) {
    const u8 flags = fence | last;
    const u32 n = op.wqebbs();
    for (u32 i = 0; i < n; ++i) {
      impl::Wqebb w;
      for (u32 k = 0; k < 4; ++k) w.seg[k] = op.segment(4 * i + k, to.index, out.q.nic.qpn, flags);
      impl::put_wqebb(out, to.index + i, w);
    }
  }

  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::Atomic& op, u8 fence,
                              u8 last) {
    const u8 flags = fence | last;
    impl::put_wqebb(out, to.index,
                    {ctrl(to.index, op.op, out.q.nic.qpn, 4, flags, 0, op.opmod),
                     raddr(op.remote.addr, op.remote.rkey), op.operands,
                     data(op.local.addr, op.bytes, op.local.lkey)});
  }

  static WV_DEVICE void write(const Out& out, impl::Slot to, const impl::MaskedCas8& op, u8 fence,
                              u8 last) {
    const u8 flags = fence | last;
    impl::put_wqebb(
        out, to.index,
        {ctrl(to.index, opcode::masked_cs, out.q.nic.qpn, 5, flags, 0, opmod_masked_8b),
         raddr(op.remote.addr, op.remote.rkey), op.values, op.masks});
    impl::put_wqebb(out, to.index + 1, {data(op.local.addr, 8, op.local.lkey)});
  }

  static WV_DEVICE void write(const impl::RecvQueue<Nic>& q, u64 index, const impl::Receive& op) {
    u8* wqe = q.wqe(index);
    u32 used = 0;
    if (op.bytes != 0) {
      impl::write_segment(wqe, used++, data(op.local.addr, op.bytes, op.local.lkey));
    }
    if (used < 1u << (q.receives.log_stride - 4)) impl::write_segment(wqe, used, data_terminator());
  }

  static WV_DEVICE impl::Atomic atomic(Local local, Remote remote, FetchAdd v) {
    return {{}, local, remote, atomic_fa(v.add), opcode::atomic_fa, 0, 8};
  }
  static WV_DEVICE impl::Atomic atomic(Local local, Remote remote, CompareSwap v) {
    return {{}, local, remote, atomic_cs(v.compare, v.swap), opcode::atomic_cs, 0, 8};
  }
  static WV_DEVICE impl::Atomic atomic(Local local, Remote remote, MaskedFetchAdd<u32> v) {
    return {{}, local, remote, masked_fa4(v.add, v.boundary), opcode::masked_fa, opmod_masked_4b,
            4};
  }
  static WV_DEVICE impl::Atomic atomic(Local local, Remote remote, MaskedFetchAdd<u64> v) {
    return {{}, local, remote, masked_fa8(v.add, v.boundary), opcode::masked_fa, opmod_masked_8b,
            8};
  }
  static WV_DEVICE impl::Atomic atomic(Local local, Remote remote, MaskedCompareSwap<u32> v) {
    return {{}, local, remote, masked_cs4(v.compare, v.compare_mask, v.swap, v.swap_mask),
            opcode::masked_cs, opmod_masked_4b, 4};
  }
  static WV_DEVICE impl::MaskedCas8 atomic(Local local, Remote remote, MaskedCompareSwap<u64> v) {
    return {local, remote, masked_cs8_data(v.compare, v.swap),
            masked_cs8_mask(v.compare_mask, v.swap_mask)};
  }

  // ---- CQEs

  static WV_DEVICE Tail look(u64 cqe) {
    return {load<order::acquire, scope::system>(impl::at<u64>(cqe + cqe_tail_offset))};
  }
  static WV_DEVICE bool is_new(Tail tail, u64 ci, u32 log_size) {
    return owned_by_software(tail, ci, log_size);
  }
  // The index of the WQE that a send CQE names: of all that are not below `done` the first.
  static WV_DEVICE u64 index_in(u64, Tail tail, u64 done) {
    return widen(done, tail.wqe_counter());
  }
  static WV_DEVICE bool names(u64, Tail tail, u64 index) {
    return tail.wqe_counter() == static_cast<u16>(index);
  }
  // WQEBBs of the signalled WQE that starts at `index`.
  static WV_DEVICE u32 span(const QpLayout& qp, u64 index) {
    const u64 slot = index & ((u64{1} << qp.log_sq) - 1);
    return load<order::relaxed, scope::gpu>(impl::at<u8>(qp.sq_span) + slot);
  }
  static WV_DEVICE u16 counter(Tail tail, u64) { return tail.wqe_counter(); }

  // A CQE of another kind is not understood, and nothing after it counts.
  static WV_DEVICE Status failure(u64 cqe, Tail tail) {
    const CqeSyndrome syndrome{impl::cqe_word(cqe, cqe_syndrome_offset)};
    const outcome kind = tail.opcode() == cqe_opcode::req_err    ? outcome::requester
                         : tail.opcode() == cqe_opcode::resp_err ? outcome::responder
                                                                 : outcome::bad_error;
    return Status::of(kind, syndrome.code(), syndrome.vendor(), tail.wqe_opcode());
  }

  static WV_DEVICE Status stray(Tail tail) {
    return Status::of(outcome::stray_cqe, 0, 0, tail.wqe_opcode());
  }

  static WV_DEVICE void return_cqes(const Cq& cq, u64 ci) {
    store<order::release, scope::system>(impl::at<u32>(cq.dbr), cq_set_ci(ci));
  }

  struct Arrived {
    u32 bytes, imm, opcode;
  };
  static WV_DEVICE Arrived arrived(u64 cqe, Tail tail) {
    return {bswap32(impl::cqe_word(cqe, cqe_byte_cnt_offset)),
            bswap32(impl::cqe_word(cqe, cqe_imm_offset)), static_cast<u32>(tail.opcode())};
  }
};

}  // namespace mlx5

namespace impl {

WV_DEVICE void put_wqebb(const SendRing<mlx5::Nic>& out, u64 index, Wqebb w) {
  // One instruction that stores 16 bytes of each lane's WQEBB goes to as many lines as there are
  // lanes, and PCIe carries a quarter of what it can. Four lanes fill a WQEBB of 64 bytes at once.
  if (out.together) {
    transpose(w);
    const u32 place = lane_id() % 4;
    const u64 first = index - u64{place} * out.each;
    for (u32 k = 0; k < 4; ++k) {
      write_segment(out.q.wqebb(first + k * out.each), place, w.seg[k]);
    }
  } else {
    for (u32 k = 0; k < 4; ++k) write_segment(out.q.wqebb(index), k, w.seg[k]);
  }
}

}  // namespace impl
}  // namespace wv
