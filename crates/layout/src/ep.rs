//! Expert parallelism: a channel as kernels see it, `kernels/include/warpverbs/ep.h`.

use crate::header::Header;

pub(crate) const HEADER: Header = Header {
    path: "layout/ep.h",
    table: "layout/src/ep.rs",
    namespace: "wv",
    includes: &["layout/heap.h"],
    items: &[
        NUMBERS,
        EpLayout::LAYOUT,
        EpCombine::LAYOUT,
        EpWord::LAYOUT,
        EpState::LAYOUT,
        Ep::LAYOUT,
    ],
};

crate::layout! {
    consts NUMBERS {
        /// The most ranks of a channel: sets of ranks are words of 64 bits.
        pub EP_RANKS: usize as "u32" = 64,
        /// The most experts of a token: a warp has as many lanes.
        pub EP_TOP_K: usize as "u32" = 32,
        /// The most queue pairs to a rank, each a lane of its own.
        pub EP_LANES: usize as "u32" = 64,
        /// Of an `EpWord` for results: there are none, because the rows were missing.
        pub EP_REFUSED: u32 = 0x80000000,
    }

    /// Where the rows lie that a dispatch brings.
    pub enum EpLayout: u32 as "ep_layout" {
        /// In the heap as they came, by source and slot.
        RankMajor = 0,
        /// A group for each expert, all groups of the largest size.
        ExpertMajor = 1,
        /// A group for each expert, each padded to a multiple of `align` rows.
        Flat = 2,
    }

    /// Rows that a combine sends back.
    pub enum EpCombine: u32 as "ep_combine" {
        /// The weighted sum over a rank's experts, one row for each token and rank.
        Reduced = 0,
        /// Every expert's row; its token's rank weights and adds.
        Exact = 1,
        /// The caller's rows, which are weighted sums already; rank-major.
        Summed = 2,
    }

    /// A word that one rank writes in another's heap. It is never reset: who waits for one compares
    /// generation and epoch.
    pub word EpWord[raw: u64] {
        /// Rows, or lanes that are in use.
        value: u32 = 0..32,
        /// Number of the dispatch, modulo 2^24.
        epoch: u32 = 32..56,
        /// Of the ranks that take part.
        generation: u8 as "u32" = 56..64,
    }

    /// The state of a channel that the blocks of a rank share; zero but for `epoch` before the first call.
    pub struct EpState[1024] {
        /// Of the last dispatch that all blocks have begun.
        pub epoch: u32,
        /// Blocks that have begun the next one.
        pub begun: u32,
        /// Epoch of the last complete plan of what is sent.
        pub planned: u64,
        /// Epoch of the last complete plan of what is received.
        pub counted: u64,
        /// Ranks whose rows did not come, by the epoch's lowest bit.
        pub missing: [u64; 2],
        /// Ranks that took no rows or gave no results, by the epoch's lowest bit.
        pub unanswered: [u64; 2],
        /// Blocks of each lane that have sent their rows.
        pub sent: [u32; EP_LANES],
        /// Blocks of each lane that have sent their results.
        pub returned: [u32; EP_LANES],
        /// Keeps the size a power of two.
        pub pad: [u64; 57],
    }

    /// A channel for dispatch and combine. Never written after it was handed out. Places in the heap are
    /// offsets, the same on all ranks. Regions by rank are those of the rank that writes them.
    pub struct Ep[192]: Default {
        /// Address of the `Heap`.
        pub heap: u64,
        /// Address of the `EpState`.
        pub state: u64,
        /// Address of two plans, for even and odd epochs.
        pub plans: u64,
        /// Bytes of a plan.
        pub plan_bytes: u64,
        /// Words of each rank, a signal: rows that are to come.
        pub announced: u64,
        /// Words of each rank, a signal for each lane: the rows have come.
        pub arrived: u64,
        /// Words of each rank, a signal for each lane: rows are consumed, results have come.
        pub returned: u64,
        /// Of each rank, its rows for each local expert, u32.
        pub counts: u64,
        /// The same for each rank as they leave.
        pub counts_out: u64,
        /// Of each rank, `tokens` rows.
        pub rows: u64,
        /// Of each token, `answers` rows of `hidden`.
        pub results: u64,
        /// Of each token its row, for NICs; if `staged`.
        pub stage: u64,
        /// Of each rank, `tokens` times `backs` rows of `hidden`, for NICs; if `staged`.
        pub stage_back: u64,
        /// Bytes from one rank's words of a kind to the next one's.
        pub line: u32,
        /// Bytes of a row's header: token, zero, set of ranks, then experts, weights and places.
        pub header_bytes: u32,
        /// Bytes of a row with its header.
        pub row_bytes: u32,
        /// Elements of a row, a multiple of 8.
        pub hidden: u32,
        /// The most tokens of a rank.
        pub tokens: u32,
        /// Experts of a token.
        pub top_k: u32,
        /// Experts of all ranks.
        pub experts: u32,
        /// Ranks, the first of which have one expert more where the numbers do not divide.
        pub ranks: u32,
        /// The own rank.
        pub rank: u32,
        /// The most experts of a rank.
        pub most_experts: u32,
        /// Queue pairs to a rank, at least 1.
        pub lanes: u32,
        /// Result rows of a token.
        pub answers: u32,
        /// Result rows of a received row, and rows of input of a combine for one in rank-major layout.
        pub backs: u32,
        /// Multiple of rows of a flat group.
        pub align: u32,
        /// An [`EpLayout`].
        pub layout: u32 as "ep_layout",
        /// An [`EpCombine`].
        pub combine: u32 as "ep_combine",
        /// 1: some rank is reached by RDMA.
        pub staged: u32,
        /// Of the ranks that take part.
        pub generation: u32,
        /// Zero.
        pub reserved: [u32; 4],
    }
}
