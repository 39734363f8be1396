// Step 3 of the posting protocol: what a WQE says. An Op is a value; `Nic::write` makes bytes of it, at an
// index that is unmasked. All stores are 16 bytes; whole WQEBBs are written, so that no line goes over
// PCIe in part.
//
// An Op has
//   max_wqebbs      constant: most WQEBBs it can take
//   wqebbs()        WQEBBs it takes
//   before_last()   WQEBBs before the start of its last WQE: 0 unless it is several WQEs
//   bytes           that are moved, which decide over its packets; each WQE's if it is several
//
// Opcodes are named as mlx5 has them, in every format.
#pragma once

#include "warpverbs/arch/bytes.h"
#include "warpverbs/impl/queue.h"
#include "warpverbs/mlx5/opcode.h"

namespace wv {
namespace impl {

WV_DEVICE void write_segment(u8* wqebb, u32 k, Seg seg) {
  write16(wqebb + k * sizeof(Seg), __builtin_bit_cast(vec16, seg));
}

// Where a WQE goes: its index, and where posters count packets its first packet number.
struct Slot {
  u64 index;
  u32 packet;
};

// Where Ops write. `together`: all lanes of a warp write, each `each` WQEBBs behind the one before it.
template <class Nic>
struct SendRing {
  const SendQueue<Nic>& q;
  bool together;
  u32 each;
};

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
};

// SEND, SEND_IMM, SEND_INVAL (`imm` is the rkey).
struct Send : OneWqebb {
  Local local;
  u32 bytes;
  mlx5::opcode op;
  u32 imm;

  WV_DEVICE Send(Local l, u32 n, mlx5::opcode o, u32 immediate = 0)
      : local(l), bytes(n), op(o), imm(immediate) {}
};

// Of formats without a NOP a WRITE of nothing, which goes to the peer and is answered.
struct Nop : OneWqebb {
  static constexpr u32 bytes = 0;
};

// WRITE of a value of at most 12 bytes that lies in registers, as words in memory order.
struct WriteValue : OneWqebb {
  Remote remote;
  u32 bytes;
  u32 word[3];

  WV_DEVICE WriteValue(Remote r, u64 value, u32 n)
      : remote(r), bytes(n), word{lo32(value), hi32(value), 0} {}
};

// WRITE of bytes that the caller can load, copied into the WQE; they may change right afterwards. Of
// formats whose WQEs have one size.
struct WriteShort : OneWqebb {
  Remote remote;
  const u8* source;
  u32 bytes;

  WV_DEVICE WriteShort(Remote r, const u8* s, u32 n) : remote(r), source(s), bytes(n) {}
};

// The i-th word of `bytes` bytes, in memory order, with zeros behind them.
WV_DEVICE u32 word_of(const u8* source, u32 bytes, u32 i) {
  const u32 at = i * 4;
  u32 word = 0;
  for (u32 k = 0; k < 4; ++k) {
    if (at + k < bytes) word |= static_cast<u32>(source[at + k]) << (8 * k);
  }
  return word;
}
WV_DEVICE Seg segment_of(const u8* source, u32 bytes, u32 k) {
  return {{word_of(source, bytes, 4 * k), word_of(source, bytes, 4 * k + 1),
           word_of(source, bytes, 4 * k + 2), word_of(source, bytes, 4 * k + 3)}};
}

// FetchAdd or CompareSwap of formats that have no other atomics; the old value goes to `local`.
template <class Operands>
struct PlainAtomic : OneWqebb {
  static constexpr u32 bytes = 8;
  Local local;
  Remote remote;
  Operands operands;

  WV_DEVICE PlainAtomic(Local l, Remote r, Operands o) : local(l), remote(r), operands(o) {}
};

// The part that is alike in NICs whose queues have no doorbell record, one WQE in a place of the ring, and CQEs with a
// tail at `tail_offset`.
template <class CqeTail, u32 tail_offset>
struct WithoutRecord {
  using Tail = CqeTail;
  static constexpr bool masked_atomics = false;
  // Of an entry that is overwritten, count and status could not be read together.
  static constexpr bool collapses = false;

  static WV_DEVICE Tail look(u64 cqe) {
    return {load<order::acquire, scope::system>(at<u64>(cqe + tail_offset))};
  }
  static WV_DEVICE u32 span(const QpLayout&, u64) { return 1; }
  static WV_DEVICE Status stray(Tail) { return Status::of(outcome::stray_cqe); }

  template <class Operands>
  static WV_DEVICE auto atomic(Local local, Remote remote, Operands operands) {
    return PlainAtomic<Operands>(local, remote, operands);
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
};

// A receive WQE of one entry.
struct Receive : OneWqebb {
  Local local;
  u32 bytes;

  WV_DEVICE Receive(Local l, u32 n) : local(l), bytes(n) {}
};

// Packets that an Op takes, where posters count them.
template <class Nic, class Op>
WV_DEVICE u32 packets_of(const SendQueue<Nic>& q, const Op& op) {
  if constexpr (Nic::Counter::counts_packets) return q.nic.packets(op.bytes);
  else return 0;
}
template <class Nic, class First, class Second>
WV_DEVICE u32 packets_of(const SendQueue<Nic>& q, const Pair<First, Second>& op) {
  return packets_of(q, op.first) + packets_of(q, op.second);
}

// Gives each WQEBB of an Op to `out`. `fence`: bits of its first WQE that hold it back; `last`: bits of
// its last that report it.
template <class Nic, class Op>
WV_DEVICE void write_wqes(const SendRing<Nic>& out, Slot to, const Op& op, u8 fence, u8 last) {
  Nic::write(out, to, op, fence, last);
}
template <class Nic, class First, class Second>
WV_DEVICE void write_wqes(const SendRing<Nic>& out, Slot to, const Pair<First, Second>& op,
                          u8 fence, u8 last) {
  Nic::write(out, to, op.first, fence, 0);
  const Slot behind{to.index + 1, to.packet + packets_of(out.q, op.first)};
  Nic::write(out, behind, op.second, 0, last);
}

}  // namespace impl
}  // namespace wv
