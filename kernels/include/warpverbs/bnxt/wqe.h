// Encoders of bnxt_re's WQEs, packet numbers and doorbells, as kernels write them: variable mode, three
// slots to a WQE. Plain values in, words in memory order out; no memory is touched here.
//
//   WRITE, READ    header  remote         entry or inline bytes
//   SEND           header  zero           entry or inline bytes
//   atomic         header  operands       entry
//   receive        header  zero           entry
#pragma once

#include "warpverbs/arch/bytes.h"
#include "warpverbs/bnxt/layout.h"

namespace wv {
namespace bnxt {

constexpr u32 wqe_slots = header_slots + 1;
constexpr u32 wqe_bytes = wqe_slots * slot_bytes;
constexpr u32 max_inline = slot_bytes;

struct Wqe {
  Seg slot[wqe_slots];
};

// `imm`: immediate value, or the key to invalidate.
WV_HD constexpr Seg header(wqe_type type, u8 flags, u32 length, u32 imm = 0) {
  return __builtin_bit_cast(Seg, SendHeader{static_cast<u8>(type), flags, wqe_slots, 0, imm, length, 0});
}
WV_HD constexpr Seg remote(u64 addr, u32 rkey) {
  return __builtin_bit_cast(Seg, RdmaSlot{addr, rkey, 0});
}
WV_HD constexpr Seg entry(u64 addr, u32 bytes, u32 lkey) {
  return __builtin_bit_cast(Seg, SgeSlot{addr, lkey, bytes});
}

WV_HD constexpr Seg atomic_header(wqe_type type, u8 flags, u64 raddr, u32 rkey) {
  return __builtin_bit_cast(Seg,
                            AtomicHeader{static_cast<u8>(type), flags, wqe_slots, 0, rkey, raddr});
}
WV_HD constexpr Seg operands(u64 swap_add, u64 compare) {
  return __builtin_bit_cast(Seg, AtomicSlot{swap_add, compare});
}

// `place`: of the receive in its ring.
WV_HD constexpr Seg receive_header(u32 place) {
  return __builtin_bit_cast(
      Seg, RecvHeader{static_cast<u8>(wqe_type::recv), 0, wqe_slots, 0, 0, place, 0});
}

// Packets of a message of so many bytes: an empty one takes one.
WV_HD constexpr u32 packets(u32 bytes, u32 log_mtu) {
  return bytes == 0 ? 1 : ((bytes - 1) >> log_mtu) + 1;
}

// Packet numbers of the WQE at `place` of its ring, which takes `count` of them.
WV_HD constexpr u64 packet_numbers(u32 first, u32 count, u32 place) {
  return Msn::of(first & 0xffffff, (first + count) & 0xffffff, static_cast<u16>(place * wqe_slots))
      .raw;
}

// The doorbell of a queue of 2^log_size entries of `units` each, at `next`, which is not masked.
WV_HD constexpr u64 doorbell(doorbell_kind kind, u32 queue, u64 next, u32 log_size, u32 units = 1) {
  const u32 place = static_cast<u32>(next & ((u64{1} << log_size) - 1));
  return DoorbellWord::of(place * units, (next >> log_size & 1) != 0, false, queue & 0xfffff, true,
                          static_cast<u8>(kind))
      .raw;
}

}  // namespace bnxt
}  // namespace wv
