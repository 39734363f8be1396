//! The rank of each row, and its place there.

use crate::{EpConfig, Layout, Ways};

/// The tokens of a rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// For each token `hidden` bf16, or as many e4m3, two in a word, the first in the lower byte.
    pub rows: &'a [u16],
    /// With e4m3: [`EpConfig::scale_words`] for each token.
    pub scales: &'a [u32],
    /// `top_k` for each token. A number that is no expert, and one that the token has named before, counts as -1.
    pub experts: &'a [i32],
    /// `top_k` for each token.
    pub weights: &'a [f32],
}

/// A row as it comes to a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Number of the token at its rank.
    pub token: u32,
    /// Ranks to which the token goes, as bits.
    pub ranks: u64,
    /// The experts that it goes to, by choice; -1 for none.
    pub experts: Vec<i32>,
    /// By choice.
    pub weights: Vec<f32>,
    /// bf16, or e4m3, two in a word.
    pub row: Vec<u16>,
    /// Words of its scales, none with bf16.
    pub scales: Vec<u32>,
}

/// The rows that a dispatch brings to one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispatched {
    /// Rows by source and slot.
    pub rows: Vec<Vec<Row>>,
    /// Of each local expert: source and slot of its rows, in order.
    pub groups: Vec<Vec<(usize, usize)>>,
    /// Of each local expert: number of its first row.
    pub bases: Vec<u32>,
    /// Of each local expert and source: first << 32 | count, from the base.
    pub ranges: Vec<u64>,
}

impl EpConfig {
    /// Owner of an expert.
    fn owner_of(&self, ranks: u32, expert: u32) -> u32 {
        (0..ranks).find(|&rank| self.experts_of(ranks, rank).contains(&expert)).unwrap_or(ranks)
    }

    /// Choices of one token, without what is wrong in them.
    fn choices(&self, experts: &[i32]) -> Vec<i32> {
        let good = |j: usize| {
            let expert = experts[j];
            let known = u32::try_from(expert).is_ok_and(|expert| expert < self.experts);
            known && !experts[..j].contains(&expert)
        };
        (0..experts.len()).map(|j| if good(j) { experts[j] } else { -1 }).collect()
    }

    /// The rows of a rank's batch as they leave.
    pub(super) fn rows_of(&self, ranks: u32, batch: &Batch<'_>) -> Vec<Row> {
        let (k, words) = (self.top_k as usize, self.given_words() as usize);
        let scales = self.given_scales() as usize;
        let tokens = batch.experts.chunks(k).enumerate();
        tokens
            .map(|(token, experts)| {
                let experts = self.choices(experts);
                let routed = experts.iter().filter(|expert| **expert >= 0);
                let owners = routed.map(|expert| self.owner_of(ranks, *expert as u32));
                let given = &batch.rows[token * words..][..words];
                let (row, scales) =
                    self.payload_of(given, &batch.scales[token * scales..][..scales]);
                Row {
                    token: token as u32,
                    ranks: owners.fold(0, |ranks, owner| ranks | 1 << owner),
                    weights: batch.weights[token * k..][..k].to_vec(),
                    row,
                    scales,
                    experts,
                }
            })
            .collect()
    }
}

/// The rows that each rank gets of the batches of all.
pub fn dispatch(config: &EpConfig, ways: Ways, batches: &[Batch<'_>]) -> Vec<Dispatched> {
    let sent: Vec<_> = batches.iter().map(|batch| config.rows_of(ways.ranks, batch)).collect();
    (0..ways.ranks).map(|rank| received(config, ways, rank, &sent)).collect()
}

fn received(config: &EpConfig, ways: Ways, rank: u32, sent: &[Vec<Row>]) -> Dispatched {
    let to_here = |row: &&Row| row.ranks >> rank & 1 != 0;
    let rows: Vec<Vec<Row>> =
        sent.iter().map(|rows| rows.iter().filter(to_here).cloned().collect()).collect();
    let mut all = Dispatched { rows, ..Dispatched::default() };
    let mut base = 0;
    for expert in config.experts_of(ways.ranks, rank) {
        let mut group = Vec::new();
        for (source, rows) in all.rows.iter().enumerate() {
            let mine = |(slot, row): (usize, &Row)| {
                row.experts.contains(&(expert as i32)).then_some((source, slot))
            };
            let first = group.len() as u64;
            group.extend(rows.iter().enumerate().filter_map(mine));
            all.ranges.push(first << 32 | (group.len() as u64 - first));
        }
        all.bases.push(base);
        base += match config.layout {
            Layout::Flat { align } => (group.len() as u32).next_multiple_of(align),
            Layout::RankMajor | Layout::ExpertMajor => ways.ranks * config.tokens,
        };
        all.groups.push(group);
    }
    all
}
