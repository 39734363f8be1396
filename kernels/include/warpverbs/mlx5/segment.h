// Encoders of WQE segments: plain values in, one 16-byte segment (a DS unit) out, fields already big-endian.
// No memory is touched here; store a Seg with one 16-byte store.
//
//   WRITE, 1 SGE   ctrl(.., 3) raddr data
//   SEND, 1 SGE    ctrl(.., 2) data
//   atomic         ctrl(.., 4) raddr atomic_* data
//   masked CS 8 B  ctrl(.., 5) raddr masked_cs8_data masked_cs8_mask data   (2 WQEBBs)
#pragma once

#include "warpverbs/mlx5/bswap.h"
#include "warpverbs/mlx5/opcode.h"

namespace wv {
namespace mlx5 {

// Control segment byte 11: FM in bits 7..5, CE in bits 3..2, SE in bit 1. Or the values together.
constexpr u8 solicited = 0x02;
WV_HD constexpr u8 fm_ce_se(fm f, ce c, bool se = false) {
  return static_cast<u8>(static_cast<u8>(f) << 5 | static_cast<u8>(c) << 2 | (se ? solicited : 0));
}

WV_HD constexpr u32 wqebbs(u32 ds) { return (ds + 3) / 4; }

// First word of the control segment. `index` is the WQE's first WQEBB, unmasked; its low 16 bits
// are used.
WV_HD constexpr u32 ctrl_word0(u64 index, opcode op, u8 opmod = opmod_none) {
  return bswap32(static_cast<u32>(opmod) << 24 | static_cast<u32>(index & 0xffff) << 8 |
                 static_cast<u32>(op));
}

// Second word of the control segment; constant for a QP and a WQE shape.
WV_HD constexpr u32 ctrl_word1(u32 qpn, u32 ds) { return bswap32(qpn << 8 | ds); }

// `imm`: immediate value, or the rkey of SEND_INVAL and LOCAL_INVAL; native order.
WV_HD constexpr Seg ctrl(u64 index, opcode op, u32 qpn, u32 ds, u8 flags, u32 imm = 0,
                         u8 opmod = opmod_none) {
  return Seg{{ctrl_word0(index, op, opmod), ctrl_word1(qpn, ds), static_cast<u32>(flags) << 24,
              bswap32(imm)}};
}

// Two be64 halves.
WV_HD constexpr Seg pair(u64 first, u64 second) {
  return Seg{{bswap32(hi32(first)), bswap32(lo32(first)), bswap32(hi32(second)),
              bswap32(lo32(second))}};
}

WV_HD constexpr Seg raddr(u64 addr, u32 rkey) {
  return Seg{{bswap32(hi32(addr)), bswap32(lo32(addr)), bswap32(rkey), 0}};
}

// `byte_count`: 1 .. 2^31 - 1. Zero-length entries are left out, not written.
WV_HD constexpr Seg data(u64 addr, u32 byte_count, u32 lkey) {
  return Seg{{bswap32(byte_count), bswap32(lkey), bswap32(hi32(addr)), bswap32(lo32(addr))}};
}

// Ends a receive WQE that has more room than entries.
WV_HD constexpr Seg data_terminator() { return data(0, 0, lkey_terminator); }

// The 4 bytes before inline data.
WV_HD constexpr u32 inline_header(u32 bytes) { return bswap32(bytes | inline_bit); }
// DS units of `bytes` of inline data with their header.
WV_HD constexpr u32 inline_ds(u32 bytes) { return (bytes + 4 + 15) / 16; }
// Up to 12 bytes of inline data, as words in memory order.
WV_HD constexpr Seg inline12(u32 bytes, u32 a, u32 b = 0, u32 c = 0) {
  return Seg{{inline_header(bytes), a, b, c}};
}

WV_HD constexpr Seg atomic_cs(u64 compare, u64 swap) { return pair(swap, compare); }
WV_HD constexpr Seg atomic_fa(u64 add) { return pair(add, 0); }

// `boundary`: a bit set stops the carry out of that bit; 0 is an ordinary add.
WV_HD constexpr Seg masked_fa4(u32 add, u32 boundary) {
  return Seg{{bswap32(add), bswap32(boundary), 0, 0}};
}
WV_HD constexpr Seg masked_fa8(u64 add, u64 boundary) { return pair(add, boundary); }

WV_HD constexpr Seg masked_cs4(u32 compare, u32 compare_mask, u32 swap, u32 swap_mask) {
  return Seg{{bswap32(swap), bswap32(compare), bswap32(swap_mask), bswap32(compare_mask)}};
}
// The 8-byte form takes two segments, values then masks.
WV_HD constexpr Seg masked_cs8_data(u64 compare, u64 swap) { return pair(swap, compare); }
WV_HD constexpr Seg masked_cs8_mask(u64 compare_mask, u64 swap_mask) {
  return pair(swap_mask, compare_mask);
}

// First segment of an SRQ WQE.
WV_HD constexpr Seg srq_next(u16 next_wqe_index) {
  return Seg{{static_cast<u32>(bswap16(next_wqe_index)) << 16, 0, 0, 0}};
}

}  // namespace mlx5
}  // namespace wv
