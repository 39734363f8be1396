//! The cases of `perf ep`.

use clap::ValueEnum;
use serde::Serialize;
use std::ops::Range;
use std::time::Duration;
use warpverbs::ep::{Combine, EpConfig, Layout, Payload, Scale, Ways};
use warpverbs::gpu::Dim;
use warpverbs::raw::ep::Regions;

/// How long ranks wait for each other.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// Calls of a kernel before and while it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    pub(super) warmup: u32,
    pub(super) iters: u32,
}

/// Sizes of a layer, for each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) tokens: u32,
    pub(super) hidden: u32,
    pub(super) top_k: u32,
    pub(super) experts: u32,
}

impl Sizes {
    /// Of a bf16 row.
    pub(super) fn row_bytes(&self) -> u64 {
        2 * u64::from(self.hidden)
    }

    fn config(&self) -> EpConfig {
        EpConfig::new(self.tokens, self.hidden, self.top_k, self.experts)
    }

    /// The experts of a rank.
    pub(super) fn experts_of(&self, ranks: u32, rank: u32) -> Range<u32> {
        self.config().experts_of(ranks, rank)
    }
}

/// Where received rows lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// By expert, in groups of the largest size
    Expert,
    /// By expert, groups packed
    Flat,
    /// As they came; nothing is copied
    Rank,
}

/// Rows that come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Back {
    /// A row for each token and rank
    Reduced,
    /// Every expert's row; in rank-major layout not measured
    Exact,
}

/// Elements of the rows of a dispatch. Results are bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Elements {
    /// bf16
    Bf16,
    /// e4m3 with an f32 scale for 128 channels, cast from the caller's bf16 as it leaves
    Cast,
    /// The same, cast by the caller before
    Fp8,
}

/// Of fp8 rows, as DeepEP has them by default.
pub(super) const SCALE: Scale = Scale::F32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) elements: Elements,
    pub(super) by: By,
    pub(super) back: Back,
    /// Rank-major results are stored from outside the heap.
    pub(super) outside: bool,
    pub(super) sizes: Sizes,
    pub(super) dim: Dim,
}

impl Case {
    pub(super) fn config(&self) -> EpConfig {
        let config = self.sizes.config().payload(match self.elements {
            Elements::Bf16 => Payload::Bf16,
            Elements::Cast => Payload::Cast(SCALE),
            Elements::Fp8 => Payload::Fp8(SCALE),
        });
        match (self.by, self.back) {
            (By::Rank, _) => {
                config.layout(Layout::RankMajor).combine(Combine::Summed).in_place(!self.outside)
            }
            (By::Expert, back) => config.layout(Layout::ExpertMajor).combine(back.combine()),
            (By::Flat, back) => config.layout(Layout::Flat { align: 1 }).combine(back.combine()),
        }
    }

    pub(super) fn name(&self) -> String {
        let Self { elements, by, back, sizes, dim, .. } = self;
        let grid = format!("{} blocks of {}", dim.blocks(), dim.threads());
        format!("{} tokens, {elements:?}, {by:?}-major, {back:?}, {grid}", sizes.tokens)
    }

    /// Of an element of a dispatch's row.
    fn element_bytes(&self) -> u64 {
        if self.elements == Elements::Bf16 { 2 } else { 1 }
    }

    /// Of a dispatch's row without header and scales.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.element_bytes() * u64::from(self.sizes.hidden)
    }

    /// Of a dispatch's row with its scales.
    pub(super) fn scaled_row_bytes(&self) -> u64 {
        self.payload_bytes() + 4 * u64::from(self.config().scale_words())
    }

    /// With its header as well: what travels.
    pub(super) fn moved_row_bytes(&self) -> u64 {
        Regions::new(&self.config(), Ways { ranks: 1, lanes: 1, staged: false }, 0).row_bytes
    }

    /// The first packed row of each of a rank's experts.
    pub(super) fn bases(&self, rows: &[u64], ranks: u32) -> Vec<u64> {
        let most = u64::from(ranks) * u64::from(self.sizes.tokens);
        let of = |(e, _): (usize, &u64)| match self.by {
            By::Flat => rows[..e].iter().sum(),
            By::Expert | By::Rank => e as u64 * most,
        };
        rows.iter().enumerate().map(of).collect()
    }
}

impl Back {
    fn combine(self) -> Combine {
        match self {
            Self::Reduced => Combine::Reduced,
            Self::Exact => Combine::Exact,
        }
    }
}

/// Names of [`Times`], in the kernel's order.
pub(super) const PHASES: [&str; 13] = [
    "begin", "planned", "credited", "stored", "sent", "counted", "arrived", "received", "begin",
    "returned", "told", "answered", "summed",
];
/// Where a dispatch and a combine begin and end.
pub(super) const DISPATCH: [usize; 2] = [0, 7];
pub(super) const COMBINE: [usize; 2] = [8, 12];

/// Nanoseconds from the begin of a dispatch or combine to each of its phases, by call.
pub(super) type Times = Vec<[u32; 13]>;

/// From what the kernel wrote.
pub(super) fn times_of(words: &[u64]) -> Times {
    let call = |words: &[u64; 13]| {
        let since = |phase: usize| {
            let begin = !words[if phase < COMBINE[0] { DISPATCH[0] } else { COMBINE[0] }];
            match phase == DISPATCH[0] || phase == COMBINE[0] {
                true => 0,
                false => u32::try_from(words[phase].saturating_sub(begin)).unwrap_or(u32::MAX),
            }
        };
        std::array::from_fn(since)
    };
    words.as_chunks::<13>().0.iter().map(call).collect()
}

/// The latest rank of each call and phase.
pub(super) fn latest(ranks: &[Times]) -> Times {
    let mut all = ranks.first().cloned().unwrap_or_default();
    for times in ranks {
        for (most, one) in all.iter_mut().zip(times) {
            most.iter_mut().zip(one).for_each(|(most, one)| *most = (*most).max(*one));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_their_begin_and_the_latest_rank_counts() {
        let mut words = [0u64; 13];
        (words[0], words[7], words[8], words[12]) = (!100, 160, !200, 290);
        let one = times_of(&words);
        assert_eq!((one[0][0], one[0][7], one[0][12]), (0, 60, 90));
        // No block was in this phase.
        assert_eq!(one[0][6], 0);
        words[7] = 170;
        let all = latest(&[one, times_of(&words)]);
        assert_eq!((all[0][7], all[0][12]), (70, 90));
    }
}
