// Encoders of ionic's WQEs and doorbells, of protocol 2 and 64 bytes a WQE. Plain values in, words in
// memory order out; no memory is touched here.
//
//   WRITE, READ    header  remote    entry or inline bytes
//   SEND           header  message   entry or inline bytes
//   atomic         header  remote, operands, key and address of the old value
//   receive        header  zero      entry
#pragma once

#include "warpverbs/arch/bytes.h"
#include "warpverbs/ionic/layout.h"

namespace wv {
namespace ionic {

constexpr u32 max_inline = 2 * entry_bytes;

struct Wqe {
  Seg part[4];
};

// Of the WQE at `index`, which is not masked, of a ring of 2^log_depth. `imm`: immediate value, or the
// key to invalidate; of a receive its length.
WV_HD constexpr Seg header(u64 index, u32 log_depth, u8 opcode, u8 entries, u8 flags, u32 imm = 0) {
  const bool first_lap = (index >> log_depth & 1) == 0;
  const u16 all = static_cast<u16>(flags | (first_lap ? color : 0));
  return __builtin_bit_cast(Seg, Header{index, opcode, entries, bswap16(all), bswap32(imm)});
}
// Receives have no colour.
WV_HD constexpr Seg receive_header(u64 index, u32 log_depth, u32 length) {
  const u64 place = index & ((u64{1} << log_depth) - 1);
  return __builtin_bit_cast(Seg, Header{place, 0, 1, 0, bswap32(length)});
}
WV_HD constexpr Seg remote(u64 addr, u32 rkey, u32 length) {
  return __builtin_bit_cast(Seg, RdmaBody{bswap64(addr), bswap32(rkey), bswap32(length)});
}
WV_HD constexpr Seg message(u32 length) {
  return __builtin_bit_cast(Seg, SendBody{0, 0, 0, bswap32(length)});
}
WV_HD constexpr Seg entry(u64 addr, u32 bytes, u32 lkey) {
  return __builtin_bit_cast(Seg, Entry{bswap64(addr), bswap32(bytes), bswap32(lkey)});
}

// An atomic behind its header. Its fields are those of AtomicBody, some of which lie across words of 8.
WV_HD constexpr Wqe atomic_wqe(Seg head, u64 raddr, u32 rkey, u64 swap_add, u64 compare, u64 addr,
                               u32 lkey) {
  return {{head,
           {{bswap32(hi32(raddr)), bswap32(lo32(raddr)), bswap32(rkey), bswap32(hi32(swap_add))}},
           {{bswap32(lo32(swap_add)), bswap32(hi32(compare)), bswap32(lo32(compare)), bswap32(lkey)}},
           {{bswap32(hi32(addr)), bswap32(lo32(addr)), 0, 0}}}};
}

// The doorbell of a queue of 2^log_size entries, at `next`, which is not masked.
WV_HD constexpr u64 doorbell(u32 queue, u64 next, u32 log_size) {
  const u64 place = next & ((u64{1} << log_size) - 1);
  return DoorbellWord::of(static_cast<u16>(place), 0, queue & 0xffffff).raw;
}

}  // namespace ionic
}  // namespace wv
