//! Lists of blocks that one launch copies, `kernels/include/warpverbs/blocks.h`.

use crate::Header;

pub(crate) const HEADER: Header = Header {
    path: "layout/blocks.h",
    table: "layout/src/blocks.rs",
    namespace: "wv",
    includes: &["arch/types.h"],
    items: &[BlockRun::LAYOUT, BlockList::LAYOUT],
};

crate::layout! {
    /// Blocks of equal size, at equal distances on either side.
    pub struct BlockRun[48]: Default {
        /// Address of the first block's target.
        pub to: u64,
        /// Address of the first block.
        pub from: u64,
        /// Bytes from the start of a target to that of the next.
        pub to_stride: u64,
        /// Bytes from the start of a block to that of the next.
        pub from_stride: u64,
        /// Size of each block, not 0.
        pub bytes: u64,
        /// Pieces of all runs before this one.
        pub first: u64,
    }

    /// Each block is cut into pieces of `1 << log_piece` bytes, the last of which may be shorter. Pieces
    /// are numbered through the list, so that they can be shared out evenly however large the blocks are.
    pub struct BlockList[32]: Default {
        /// Address of `run_count` times [`BlockRun`].
        pub runs: u64,
        /// Runs.
        pub run_count: u64,
        /// Pieces of all runs.
        pub pieces: u64,
        /// 4 or more: pieces keep the alignment of their block.
        pub log_piece: u32,
        /// Zero.
        pub reserved: u32,
    }
}
