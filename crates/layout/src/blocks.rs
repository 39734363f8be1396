//! Lists of blocks that one launch copies, `kernels/include/warpverbs/blocks.h`.

use crate::header::Header;

pub(crate) const HEADER: Header = Header {
    path: "layout/blocks.h",
    table: "layout/src/blocks.rs",
    namespace: "wv",
    includes: &["arch/types.h"],
    items: &[BlockPiece::LAYOUT, PIECES],
};

crate::layout! {
    /// Piece that a warp copies at a time: up to 64 KiB. Addresses have 56 bits; the 8 bits above
    /// them hold a byte of the length less 1.
    pub struct BlockPiece[16] align(16): Default, PartialEq, Eq {
        /// The address to read, and the low byte.
        pub from: u64,
        /// The address to write, and the high byte.
        pub to: u64,
    }

    consts PIECES {
        /// Bits of an address in a BlockPiece.
        pub PIECE_ADDRESS_BITS: u32 = 56,
    }
}

impl BlockPiece {
    /// The longest piece, bytes.
    pub const MOST: u64 = 1 << 16;

    /// Whether a piece can name all of the `len` bytes from `addr` on.
    pub const fn reaches(addr: u64, len: u64) -> bool {
        match addr.checked_add(len) {
            Some(end) => end >> PIECE_ADDRESS_BITS == 0,
            None => false,
        }
    }

    /// Of 1 to [`BlockPiece::MOST`] bytes, at addresses that it [`reaches`](BlockPiece::reaches).
    pub const fn new(from: u64, to: u64, len: u64) -> Self {
        debug_assert!(len != 0 && len <= Self::MOST);
        let (low, high) = ((len - 1) & 0xff, (len - 1) >> 8);
        Self { from: from | low << PIECE_ADDRESS_BITS, to: to | high << PIECE_ADDRESS_BITS }
    }
}
