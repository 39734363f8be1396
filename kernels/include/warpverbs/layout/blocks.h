// Generated from crates/layout/src/blocks.rs.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

// Piece that a warp copies at a time: up to 64 KiB. Addresses have 56 bits; the 8 bits above
// them hold a byte of the length less 1.
struct alignas(16) BlockPiece {
  u64 from;  // The address to read, and the low byte.
  u64 to;  // The address to write, and the high byte.
};
static_assert(sizeof(BlockPiece) == 16 && alignof(BlockPiece) == 16, "BlockPiece");
WV_AT(BlockPiece, from, 0);
WV_AT(BlockPiece, to, 8);

constexpr u32 piece_address_bits = 56;  // Bits of an address in a BlockPiece.

#undef WV_AT

}  // namespace wv
