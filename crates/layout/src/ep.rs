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
        EpPayload::LAYOUT,
        EpScale::LAYOUT,
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
        /// Channels of a row, side by side, that have one scale.
        pub EP_SCALED: usize as "u32" = 128,
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

    /// Elements of the rows of a dispatch.
    pub enum EpPayload: u32 as "ep_payload" {
        /// bf16, as it is.
        Bf16 = 0,
        /// bf16, which a dispatch casts to fp8 e4m3 with scales.
        Cast = 1,
        /// fp8 e4m3 with scales, as the caller has them.
        Fp8 = 2,
    }

    /// Scales of e4m3 rows: what an element is to be multiplied with.
    pub enum EpScale: u32 as "ep_scale" {
        /// An f32 each.
        F32 = 0,
        /// An f32 each, a power of two.
        PowerOfTwo = 1,
        /// The exponent of a power of two, four in a word, the first in its lowest byte.
        Ue8m0 = 2,
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

    /// The state of a channel that the blocks of a rank share. The host sets `epoch`, `ended`,
    /// `generation` and `members`, and zeroes the rest, while no call is under way.
    pub struct EpState[2048] {
        /// Of the last dispatch that all blocks have begun.
        pub epoch: u32,
        /// Blocks that have yet to end the combine of the last dispatch.
        pub leaving: u32,
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
        /// Ranks that take part, as bits.
        pub members: u64,
        /// Of the ranks that take part.
        pub generation: u32,
        /// Of the last dispatch before this one whose combine has ended, with the rows and results of all members.
        pub ended: u32,
        /// Blocks that have begun a dispatch, by its epoch's lowest bit.
        pub begun: [u32; 2],
        /// 1, by the epoch's lowest bit: a block did not do its part.
        pub left_out: [u8; 2],
        /// Zero.
        pub reserved: [u8; 6],
        /// Nanoseconds that the first block has waited for words of each rank.
        pub waited: [u64; EP_RANKS],
        /// Keeps the size a power of two.
        pub pad: [u64; 118],
    }

    /// A channel for dispatch and combine. Never written after it was handed out. Places in the heap are
    /// offsets, the same on all ranks. Regions by rank are those of the rank that writes them.
    pub struct Ep[224]: Default {
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
        /// Of each rank, `answers` rows of `hidden` for each row that it was sent.
        pub results: u64,
        /// Of each token its row, for NICs; if `staged`.
        pub stage: u64,
        /// Of each rank, for each of `tokens` rows, where its results lie for NICs, `back_bytes` apart.
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
        /// The most result rows of a row.
        pub answers: u32,
        /// Rows of input of a combine for a received row in rank-major layout.
        pub backs: u32,
        /// Multiple of rows of a flat group.
        pub align: u32,
        /// An [`EpLayout`].
        pub layout: u32 as "ep_layout",
        /// An [`EpCombine`].
        pub combine: u32 as "ep_combine",
        /// 1: some rank is reached by RDMA.
        pub staged: u32,
        /// An [`EpPayload`].
        pub payload: u32 as "ep_payload",
        /// An [`EpScale`]; of no use with bf16.
        pub scale: u32 as "ep_scale",
        /// Words of a row's scales, 0 with bf16. They lie in the heap behind the row.
        pub scale_words: u32,
        /// Bytes of a row without header and scales.
        pub payload_bytes: u32,
        /// Packed rows whose scales lie side by side, word by word; 0: those of a row do.
        pub scale_rows: u32,
        /// Bytes from the results of one received row to those of the next, as they leave by NICs; 0: the
        /// caller's rows are in the heap, where NICs read them.
        pub back_bytes: u32,
        /// The least experts of a rank.
        pub least_experts: u32,
        /// 2^32 over the most and over the least experts of a rank, rounded up; 0 where these are 0. A number below 2^16
        /// times one of them, shifted right by 32, is the number divided.
        pub owner_scales: [u64; 2],
        /// Rows of the own combine, which ranks that loads lead to read here; 0: they do not.
        pub outputs: u64,
    }
}
