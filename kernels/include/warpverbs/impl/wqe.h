// Step 3 of the posting protocol: what a WQE says. An Op knows how many WQEBBs it takes and what is
// in them at an index that is unmasked in the control segment. All stores are 16 bytes; whole WQEBBs
// are written, so that no line goes over PCIe in part.
//
// An Op has
//   max_wqebbs      constant: most WQEBBs it can take
//   wqebbs()        WQEBBs it takes
//   before_last()   WQEBBs before the start of its last WQE: 0 unless it is several WQEs
//   write(out, index, fence, last)   gives each of its WQEBBs to `out`. `fence`: FM bits, of its
//                                    first WQE; `last`: CE and SE bits, of its last
#pragma once

#include "warpverbs/impl/queue.h"

namespace wv {
namespace impl {

struct Wqebb {
  mlx5::Seg seg[4];
};

WV_DEVICE void write_segment(u8* wqebb, u32 k, mlx5::Seg seg) {
  write16(wqebb + k * mlx5::segment_bytes, __builtin_bit_cast(vec16, seg));
}

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

// Where Ops write. `together`: all lanes of a warp write, each `each` WQEBBs behind the one before it.
struct SendRing {
  const SendQueue& q;
  bool together;
  u32 each;

  // `index` of the WQEBB, and what it says.
  WV_DEVICE void operator()(u64 index, Wqebb w) const {
    // One instruction that stores 16 bytes of each lane's WQEBB goes to as many lines as there are
    // lanes, and PCIe carries a quarter of what it can. Four lanes fill a WQEBB of 64 bytes at once.
    if (together) {
      transpose(w);
      const u32 place = lane_id() % 4;
      const u64 first = index - u64{place} * each;
      for (u32 k = 0; k < 4; ++k) write_segment(q.wqebb(first + k * each), place, w.seg[k]);
    } else {
      for (u32 k = 0; k < 4; ++k) write_segment(q.wqebb(index), k, w.seg[k]);
    }
  }
};

constexpr u8 fence_bits = mlx5::fm_ce_se(mlx5::fm::fence_and_small, mlx5::ce::on_error);
constexpr u8 signal_bits = mlx5::fm_ce_se(mlx5::fm::none, mlx5::ce::always);

struct OneWqebb {
  static constexpr u32 max_wqebbs = 1;
  WV_DEVICE u32 wqebbs() const { return 1; }
  WV_DEVICE u32 before_last() const { return 0; }
};

// WRITE, WRITE_IMM, READ.
struct Rdma : OneWqebb {
  Local local;
  Remote remote;
  u32 bytes;
  mlx5::opcode op;
  u32 imm;

  WV_DEVICE Rdma(Local l, Remote r, u32 n, mlx5::opcode o, u32 immediate = 0)
      : local(l), remote(r), bytes(n), op(o), imm(immediate) {}

  WV_DEVICE void write(const SendRing& out, u64 index, u8 fence, u8 last) const {
    const u8 flags = fence | last;
    // A data segment of 0 bytes would mean 2 GiB: it is left out.
    const u32 ds = bytes != 0 ? 3 : 2;
    out(index, {mlx5::ctrl(index, op, out.q.qpn, ds, flags, imm),
                mlx5::raddr(remote.addr, remote.rkey), mlx5::data(local.addr, bytes, local.lkey)});
  }
};

// SEND, SEND_IMM, SEND_INVAL (`imm` is the rkey).
struct Send : OneWqebb {
  Local local;
  u32 bytes;
  mlx5::opcode op;
  u32 imm;

  WV_DEVICE Send(Local l, u32 n, mlx5::opcode o, u32 immediate = 0)
      : local(l), bytes(n), op(o), imm(immediate) {}

  WV_DEVICE void write(const SendRing& out, u64 index, u8 fence, u8 last) const {
    const u8 flags = fence | last;
    out(index, {mlx5::ctrl(index, op, out.q.qpn, bytes != 0 ? 2 : 1, flags, imm),
                mlx5::data(local.addr, bytes, local.lkey)});
  }
};

struct Nop : OneWqebb {
  WV_DEVICE void write(const SendRing& out, u64 index, u8 fence, u8 last) const {
    const u8 flags = fence | last;
    out(index, {mlx5::ctrl(index, mlx5::opcode::nop, out.q.qpn, 1, flags)});
  }
};

// WRITE of a value of at most 12 bytes that lies in registers, as words in memory order.
struct WriteValue : OneWqebb {
  Remote remote;
  u32 bytes;
  u32 word[3];

  WV_DEVICE WriteValue(Remote r, u64 value, u32 n)
      : remote(r), bytes(n), word{mlx5::lo32(value), mlx5::hi32(value), 0} {}

  WV_DEVICE void write(const SendRing& out, u64 index, u8 fence, u8 last) const {
    const u8 flags = fence | last;
    out(index, {mlx5::ctrl(index, mlx5::opcode::rdma_write, out.q.qpn, 3, flags),
                mlx5::raddr(remote.addr, remote.rkey),
                mlx5::inline12(bytes, word[0], word[1], word[2])});
  }
};

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
    if (i == 0) return mlx5::inline_header(bytes);
    const u32 at = (i - 1) * 4;
    u32 word = 0;
    for (u32 k = 0; k < 4; ++k) {
      if (at + k < bytes) word |= static_cast<u32>(source[at + k]) << (8 * k);
    }
    return word;
  }

  // Segment k of the whole WQE.
  WV_DEVICE mlx5::Seg segment(u32 k, u64 index, u32 qpn, u8 flags) const {
    if (k == 0) return mlx5::ctrl(index, mlx5::opcode::rdma_write, qpn, ds(), flags);
    if (k == 1) return mlx5::raddr(remote.addr, remote.rkey);
    const u32 w = (k - 2) * 4;
    return {{inline_word(w), inline_word(w + 1), inline_word(w + 2), inline_word(w + 3)}};
  }

  WV_DEVICE void write(const SendRing& out, u64 index, u8 fence, u8 last) const {
    const u8 flags = fence | last;
    const u32 n = wqebbs();
    for (u32 i = 0; i < n; ++i) {
      Wqebb w;
      for (u32 k = 0; k < 4; ++k) w.seg[k] = segment(4 * i + k, index, out.q.qpn, flags);
      out(index + i, w);
    }
  }
};

// Atomics whose operands fit one segment; the old value, `bytes` long, goes to `local`.
struct Atomic : OneWqebb {
  Local local;
  Remote remote;
  mlx5::Seg operands;
  mlx5::opcode op;
  u8 opmod;
  u32 bytes;

  WV_DEVICE void write(const SendRing& out, u64 index, u8 fence, u8 last) const {
    const u8 flags = fence | last;
    out(index, {mlx5::ctrl(index, op, out.q.qpn, 4, flags, 0, opmod),
                mlx5::raddr(remote.addr, remote.rkey), operands,
                mlx5::data(local.addr, bytes, local.lkey)});
  }
};

// The masked 8-byte compare-and-swap: five segments.
struct MaskedCas8 {
  static constexpr u32 max_wqebbs = 2;
  Local local;
  Remote remote;
  mlx5::Seg values;
  mlx5::Seg masks;

  WV_DEVICE u32 wqebbs() const { return 2; }
  WV_DEVICE u32 before_last() const { return 0; }
  WV_DEVICE void write(const SendRing& out, u64 index, u8 fence, u8 last) const {
    const u8 flags = fence | last;
    out(index, {mlx5::ctrl(index, mlx5::opcode::masked_cs, out.q.qpn, 5, flags, 0,
                           mlx5::opmod_masked_8b),
                mlx5::raddr(remote.addr, remote.rkey), values, masks});
    out(index + 1, {mlx5::data(local.addr, 8, local.lkey)});
  }
};

// Two WQEs of one WQEBB each, next to each other: the second is executed after the first.
template <class First, class Second>
struct Pair {
  static constexpr u32 max_wqebbs = 2;
  First first;
  Second second;

  WV_DEVICE u32 wqebbs() const { return 2; }
  WV_DEVICE u32 before_last() const { return 1; }
  WV_DEVICE void write(const SendRing& out, u64 index, u8 fence, u8 last) const {
    first.write(out, index, fence, 0);
    second.write(out, index + 1, 0, last);
  }
};

// A receive WQE of one entry.
struct Receive : OneWqebb {
  Local local;
  u32 bytes;

  WV_DEVICE Receive(Local l, u32 n) : local(l), bytes(n) {}
  WV_DEVICE void write(const RecvQueue& q, u64 index) const {
    u8* wqe = q.wqe(index);
    u32 used = 0;
    if (bytes != 0) write_segment(wqe, used++, mlx5::data(local.addr, bytes, local.lkey));
    if (used < 1u << (q.log_stride - 4)) write_segment(wqe, used, mlx5::data_terminator());
  }
};

}  // namespace impl
}  // namespace wv
