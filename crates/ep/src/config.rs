//! Sizes and choices of a layer, the same on all ranks.

use crate::EpError;
use std::fmt;
use std::ops::Range;
use warpverbs_gpu::layout::{
    EP_LANES, EP_RANKS, EP_SCALED, EP_TOP_K, EpCombine, EpLayout, EpPayload, EpScale,
};
use warpverbs_shmem::Heap;

/// Rows of a rank that are numbered by 32 bits, with some to spare for padding.
const MOST_ROWS: u64 = 1 << 31;

/// Where the rows lie that a dispatch brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// In the heap as they came: `ranks` × `tokens` places, by source and slot. Nothing is copied.
    RankMajor,
    /// By local expert, in groups of `ranks` × `tokens` places; by source and token in a group.
    ExpertMajor,
    /// By local expert, each group padded to a multiple of `align` rows.
    Flat {
        /// 1 to 1024 rows.
        align: u32,
    },
}

/// Rows that a combine sends back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Combine {
    /// One row for each token and rank: the sum over the rank's experts, weighted and added in f32 in
    /// order of the token's choices, and rounded. The token's rank adds those rows in f32 by rank, and
    /// rounds once more.
    Reduced,
    /// Every expert's row. The token's rank weights and adds them in f32 in order of its choices, and
    /// rounds once.
    Exact,
    /// The caller's own sums, one row for each received one: rank-major layout alone. The token's rank
    /// adds them as with [`Combine::Reduced`].
    Summed,
}

/// Elements of the rows of a dispatch. Results are bf16 in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Payload {
    /// bf16, as it is.
    Bf16,
    /// The caller's rows are bf16. They are cast to fp8 e4m3 as they leave, with a scale for each 128
    /// channels.
    Cast(Scale),
    /// The caller's rows are fp8 e4m3, with scales of this kind.
    Fp8(Scale),
}

/// Scales of fp8 rows, one for each 128 channels; the last is for the rest. An element is worth its e4m3
/// times the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scale {
    /// f32. A cast has 1/448 of the largest finite magnitude, and of no less than 1e-4.
    F32,
    /// f32, a power of two: that number rounded up.
    PowerOfTwo,
    /// The 8 bits of a power of two's exponent, four in a u32, the first in its lowest byte; bytes that
    /// belong to no channel are 0.
    Ue8m0,
}

/// Where the scales of packed rows lie: words of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScaleOrder {
    /// Row by row.
    Rows,
    /// Word by word, as bulk copies of a GEMM take them: the first word of every row of a group, then the
    /// second. A group is an expert's in [`Layout::ExpertMajor`], all rows in [`Layout::Flat`], and as long
    /// as the next multiple of 4 of its most rows, so that columns begin at multiples of 16 bytes.
    Columns,
}

/// Sizes and choices of a layer. All ranks give the same, which is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpConfig {
    pub(crate) tokens: u32,
    pub(crate) hidden: u32,
    pub(crate) top_k: u32,
    pub(crate) experts: u32,
    pub(crate) layout: Layout,
    pub(crate) combine: Combine,
    pub(crate) channels: u32,
    pub(crate) payload: Payload,
    pub(crate) order: ScaleOrder,
    pub(crate) in_place: bool,
}

/// Facts of a heap on which the size of a channel depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// Number of ranks.
    pub ranks: u32,
    /// Queue pairs to a rank, at least 1: blocks are shared out among them.
    pub lanes: u32,
    /// Whether any rank is reached by RDMA, by any other: rows are then staged for NICs.
    pub staged: bool,
}

impl Ways {
    /// Of a heap; the same on all its ranks.
    pub fn of(heap: &Heap) -> Self {
        let qps = heap.rdma_lanes();
        Self { ranks: heap.world(), lanes: qps.max(1), staged: qps != 0 }
    }
}

impl Layout {
    pub(crate) fn code(self) -> EpLayout {
        match self {
            Self::RankMajor => EpLayout::RankMajor,
            Self::ExpertMajor => EpLayout::ExpertMajor,
            Self::Flat { .. } => EpLayout::Flat,
        }
    }

    pub(crate) fn align(self) -> u32 {
        match self {
            Self::Flat { align } => align,
            Self::RankMajor | Self::ExpertMajor => 1,
        }
    }
}

impl Combine {
    pub(crate) fn code(self) -> EpCombine {
        match self {
            Self::Reduced => EpCombine::Reduced,
            Self::Exact => EpCombine::Exact,
            Self::Summed => EpCombine::Summed,
        }
    }
}

impl Payload {
    pub(crate) fn code(self) -> EpPayload {
        match self {
            Self::Bf16 => EpPayload::Bf16,
            Self::Cast(_) => EpPayload::Cast,
            Self::Fp8(_) => EpPayload::Fp8,
        }
    }

    pub(crate) fn scale(self) -> Scale {
        match self {
            Self::Bf16 => Scale::F32,
            Self::Cast(scale) | Self::Fp8(scale) => scale,
        }
    }
}

impl Scale {
    pub(crate) fn code(self) -> EpScale {
        match self {
            Self::F32 => EpScale::F32,
            Self::PowerOfTwo => EpScale::PowerOfTwo,
            Self::Ue8m0 => EpScale::Ue8m0,
        }
    }
}

impl EpConfig {
    /// For up to `tokens` tokens of a rank, rows of `hidden` elements, `top_k` of `experts` experts for
    /// a token. bf16, expert-major, reduced, one channel.
    pub fn new(tokens: u32, hidden: u32, top_k: u32, experts: u32) -> Self {
        Self {
            tokens,
            hidden,
            top_k,
            experts,
            layout: Layout::ExpertMajor,
            combine: Combine::Reduced,
            channels: 1,
            payload: Payload::Bf16,
            order: ScaleOrder::Rows,
            in_place: false,
        }
    }

    /// Where received rows lie.
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Rows that are sent back.
    pub fn combine(self, combine: Combine) -> Self {
        Self { combine, ..self }
    }

    /// Dispatches that may be under way at once, each with its combine: 1 to 16.
    pub fn channels(self, channels: u32) -> Self {
        Self { channels, ..self }
    }

    /// Elements of rows.
    pub fn payload(self, payload: Payload) -> Self {
        Self { payload, ..self }
    }

    /// Where scales of packed rows lie.
    pub fn scale_order(self, order: ScaleOrder) -> Self {
        Self { order, ..self }
    }

    /// The rows of every combine lie in the heap, where NICs read them: nothing is staged. In [`Layout::RankMajor`] they lie
    /// in the channel ([`Ep::outputs`](crate::Ep::outputs)), and ranks that loads lead to read them there as well: they stay
    /// as they are until the next call's rows have come (`dispatch_recv`). Not with [`Combine::Reduced`], whose sums no
    /// caller has.
    pub fn in_place(self, in_place: bool) -> Self {
        Self { in_place, ..self }
    }

    /// Every setting as a number, by name.
    pub(crate) fn fields(&self) -> [(&'static str, u64); 12] {
        [
            ("tokens", self.tokens.into()),
            ("hidden", self.hidden.into()),
            ("top_k", self.top_k.into()),
            ("experts", self.experts.into()),
            ("layout", self.layout.code() as u64),
            ("align", self.layout.align().into()),
            ("combine", self.combine.code() as u64),
            ("channels", self.channels.into()),
            ("payload", self.payload.code() as u64),
            ("scale", self.payload.scale().code() as u64),
            ("scale_order", (self.order == ScaleOrder::Columns).into()),
            ("in_place", self.in_place.into()),
        ]
    }

    /// Whether such a layer can be, on so many ranks.
    ///
    /// # Errors
    /// [`EpError::Config`] names the first setting that is wrong, and what was expected.
    pub fn check(&self, ways: Ways) -> Result<(), EpError> {
        let within = |field, value: u32, range: Range<u64>| match range.contains(&value.into()) {
            true => Ok(()),
            false => wrong(field, value, format!("{} to {}", range.start, range.end - 1)),
        };
        within("ranks", ways.ranks, 1..EP_RANKS as u64 + 1)?;
        within("lanes", ways.lanes, 1..EP_LANES as u64 + 1)?;
        within("tokens", self.tokens, 1..(1 << 20) + 1)?;
        within("hidden", self.hidden, 8..(1 << 16) + 1)?;
        within("top_k", self.top_k, 1..EP_TOP_K as u64 + 1)?;
        within("experts", self.experts, 1..(1 << 16) + 1)?;
        within("channels", self.channels, 1..17)?;
        within("align", self.layout.align(), 1..1025)?;
        if !self.hidden.is_multiple_of(8) {
            return wrong("hidden", self.hidden, "a multiple of 8".to_owned());
        }
        if self.payload != Payload::Bf16 && !self.hidden.is_multiple_of(16) {
            return wrong("hidden", self.hidden, "a multiple of 16 with fp8 rows".to_owned());
        }
        if self.in_place && self.combine == Combine::Reduced {
            return wrong("in_place", true, "false with Reduced".to_owned());
        }
        if self.top_k > self.experts {
            return wrong("top_k", self.top_k, format!("at most {} experts", self.experts));
        }
        if self.combine == Combine::Summed && self.layout != Layout::RankMajor {
            return wrong("combine", "Summed", "Summed with rank-major layout alone".to_owned());
        }
        let rows = (0..ways.ranks).map(|rank| self.packed_rows(ways, rank)).max().unwrap_or(0);
        if rows > MOST_ROWS {
            return wrong(
                "tokens",
                self.tokens,
                format!("at most 2^31 rows of a rank, not {rows}"),
            );
        }
        Ok(())
    }

    /// The experts of a rank. The first ranks have one more where the numbers do not divide.
    pub fn experts_of(&self, ranks: u32, rank: u32) -> Range<u32> {
        let (each, more) = (self.experts / ranks, self.experts % ranks);
        let first = |rank: u32| rank * each + rank.min(more);
        first(rank)..first(rank + 1)
    }

    /// Rows that a rank's buffers need room for: those of a dispatch by expert, or of the input of a
    /// combine.
    pub fn packed_rows(&self, ways: Ways, rank: u32) -> u64 {
        let local = u64::from(self.experts_of(ways.ranks, rank).len() as u32);
        let received = u64::from(ways.ranks) * u64::from(self.tokens);
        match self.layout {
            Layout::RankMajor => received * u64::from(self.backs(ways)),
            Layout::ExpertMajor => received * local,
            Layout::Flat { align } => {
                let align = u64::from(align);
                let all = received * u64::from(self.top_k).min(local);
                // Every group that is not empty may end with padding.
                all + local * (align - 1)
            }
        }
    }

    /// Whether results are read where they were made, by ranks that loads lead to.
    pub(crate) fn pulled(&self) -> bool {
        self.in_place && self.layout == Layout::RankMajor
    }

    /// The most experts of a rank.
    pub(crate) fn most_experts(&self, ranks: u32) -> u32 {
        self.experts.div_ceil(ranks)
    }

    /// The most result rows of a row.
    pub(crate) fn answers(&self, ways: Ways) -> u32 {
        match self.combine {
            Combine::Exact => self.top_k.min(self.most_experts(ways.ranks)),
            Combine::Reduced | Combine::Summed => 1,
        }
    }

    /// Bytes of a row without header and scales.
    pub(crate) fn payload_bytes(&self) -> u64 {
        u64::from(self.hidden) * if self.payload == Payload::Bf16 { 2 } else { 1 }
    }

    /// u16 of a packed row.
    pub(crate) fn packed_words(&self) -> u32 {
        (self.payload_bytes() / 2) as u32
    }

    /// u16 of a row as the caller gives it.
    pub(crate) fn given_words(&self) -> u32 {
        match self.payload {
            Payload::Bf16 | Payload::Cast(_) => self.hidden,
            Payload::Fp8(_) => self.hidden / 2,
        }
    }

    /// u32 of the scales that the caller gives with a row.
    pub(crate) fn given_scales(&self) -> u32 {
        match self.payload {
            Payload::Bf16 | Payload::Cast(_) => 0,
            Payload::Fp8(_) => self.scale_words(),
        }
    }

    /// u32 of a row's scales: 0 with bf16.
    pub fn scale_words(&self) -> u32 {
        let scales = self.hidden.div_ceil(EP_SCALED as u32);
        match self.payload {
            Payload::Bf16 => 0,
            Payload::Cast(Scale::Ue8m0) | Payload::Fp8(Scale::Ue8m0) => scales.div_ceil(4),
            Payload::Cast(_) | Payload::Fp8(_) => scales,
        }
    }

    /// Packed rows whose scales lie side by side, word by word; 0 if those of a row do.
    pub(crate) fn scale_rows(&self, ways: Ways, rank: u32) -> u64 {
        let rows = match (self.order, self.layout) {
            (ScaleOrder::Rows, _) | (_, Layout::RankMajor) => 0,
            (_, Layout::ExpertMajor) => u64::from(ways.ranks) * u64::from(self.tokens),
            (_, Layout::Flat { .. }) => self.packed_rows(ways, rank),
        };
        rows.next_multiple_of(4)
    }

    /// u32 that the scales of a rank's packed rows take: 0 in rank-major layout, where they lie in the heap.
    pub fn packed_scales(&self, ways: Ways, rank: u32) -> u64 {
        let words = u64::from(self.scale_words());
        let local = self.experts_of(ways.ranks, rank).len() as u64;
        match (self.order, self.layout) {
            (_, Layout::RankMajor) => 0,
            (ScaleOrder::Rows, _) => self.packed_rows(ways, rank) * words,
            (_, Layout::ExpertMajor) => local * self.scale_rows(ways, rank) * words,
            (_, Layout::Flat { .. }) => self.scale_rows(ways, rank) * words,
        }
    }

    /// Rows of a combine's input that belong to a received one in rank-major layout.
    pub(crate) fn backs(&self, ways: Ways) -> u32 {
        match self.combine {
            Combine::Summed => 1,
            _ => self.top_k.min(self.most_experts(ways.ranks)),
        }
    }
}

fn wrong(field: &'static str, value: impl fmt::Display, expected: String) -> Result<(), EpError> {
    Err(EpError::Config { field, value: value.to_string(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: Ways = Ways { ranks: 4, lanes: 1, staged: false };

    #[test]
    fn what_is_wrong_is_named_with_what_was_expected() {
        let good = EpConfig::new(128, 7168, 8, 256);
        good.check(WAYS).unwrap();
        let flat = |align| good.clone().layout(Layout::Flat { align });
        for (config, field, expected) in [
            (EpConfig::new(0, 8, 1, 4), "tokens", "1 to 1048576"),
            (EpConfig::new(1, 0, 1, 4), "hidden", "8 to 65536"),
            (EpConfig::new(1, 12, 1, 4), "hidden", "a multiple of 8"),
            (EpConfig::new(1, 8, 0, 4), "top_k", "1 to 32"),
            (EpConfig::new(1, 8, 33, 64), "top_k", "1 to 32"),
            (EpConfig::new(1, 8, 5, 4), "top_k", "at most 4 experts"),
            (EpConfig::new(1, 8, 1, 0), "experts", "1 to 65536"),
            (good.clone().channels(0), "channels", "1 to 16"),
            (good.clone().combine(Combine::Summed), "combine", "rank-major"),
            (flat(0), "align", "1 to 1024"),
            (
                EpConfig::new(1, 24, 1, 4).payload(Payload::Cast(Scale::F32)),
                "hidden",
                "of 16 with fp8",
            ),
            (good.clone().in_place(true), "in_place", "with Reduced"),
            (EpConfig::new(1 << 20, 8, 1, 65536), "tokens", "2^31 rows"),
        ] {
            match config.check(WAYS).unwrap_err() {
                EpError::Config { field: found, expected: said, .. } => {
                    assert_eq!(found, field, "{config:?}");
                    assert!(said.contains(expected), "{said}");
                }
                other => panic!("{other}"),
            }
        }
        assert!(good.check(Ways { ranks: 65, ..WAYS }).is_err());
        assert!(good.check(Ways { ranks: 0, ..WAYS }).is_err());
    }

    #[test]
    fn experts_are_shared_out_over_all_ranks() {
        let config = EpConfig::new(1, 8, 1, 10);
        let of = |rank| config.experts_of(4, rank);
        assert_eq!([of(0), of(1), of(2), of(3)], [0..3, 3..6, 6..8, 8..10]);
        assert_eq!(EpConfig::new(1, 8, 1, 2).experts_of(4, 3), 2..2);
    }
}
