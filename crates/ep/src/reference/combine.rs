//! The sums of what experts made of rows.

use super::{Batch, Dispatched, Row, bf16_of, float_of};
use crate::{Combine, EpConfig, Layout, Ways};

/// The sums of each rank's tokens, bf16. `outputs` are the rows that each rank gives to the combine, as many
/// as [`EpConfig::packed_rows`].
pub fn combine(
    config: &EpConfig,
    ways: Ways,
    batches: &[Batch<'_>],
    dispatched: &[Dispatched],
    outputs: &[Vec<u16>],
) -> Vec<Vec<u16>> {
    let sums = batches.iter().enumerate().map(|(source, batch)| {
        let rows = config.rows_of(ways.ranks, batch);
        rows.iter()
            .flat_map(|row| {
                let answer = |rank| Answer { config, ways, dispatched, outputs, source, row, rank };
                let ranks = (0..ways.ranks).filter(|rank| row.ranks >> rank & 1 != 0);
                let mut sums = vec![0f32; config.hidden as usize];
                match config.combine {
                    Combine::Exact => {
                        for (j, rank) in row.owners(config, ways) {
                            add(&mut sums, row.weights[j], &answer(rank).output(j));
                        }
                    }
                    _ => ranks.for_each(|rank| add(&mut sums, 1.0, &answer(rank).reduced())),
                }
                sums.into_iter().map(bf16_of).collect::<Vec<_>>()
            })
            .collect()
    });
    sums.collect()
}

fn add(sums: &mut [f32], weight: f32, row: &[u16]) {
    for (sum, bits) in sums.iter_mut().zip(row) {
        *sum = weight.mul_add(float_of(*bits), *sum);
    }
}

impl Row {
    /// Choices that go somewhere, and the ranks they go to.
    fn owners(&self, config: &EpConfig, ways: Ways) -> Vec<(usize, u32)> {
        let owner = |(j, expert): (usize, &i32)| {
            let expert = u32::try_from(*expert).ok()?;
            let mut ranks = 0..ways.ranks;
            let owner =
                ranks.find(|rank| config.experts_of(ways.ranks, *rank).contains(&expert))?;
            Some((j, owner))
        };
        self.experts.iter().enumerate().filter_map(owner).collect()
    }
}

/// The part of one rank in a token's sum.
struct Answer<'a> {
    config: &'a EpConfig,
    ways: Ways,
    dispatched: &'a [Dispatched],
    outputs: &'a [Vec<u16>],
    source: usize,
    row: &'a Row,
    rank: u32,
}

impl Answer<'_> {
    fn here(&self) -> &Dispatched {
        &self.dispatched[self.rank as usize]
    }

    fn slot(&self) -> usize {
        let rows = &self.here().rows[self.source];
        rows.iter().position(|row| row.token == self.row.token).expect("a row that was sent")
    }

    /// Its choices that are experts of this rank.
    fn local(&self) -> Vec<usize> {
        let owners = self.row.owners(self.config, self.ways).into_iter();
        owners.filter(|(_, owner)| *owner == self.rank).map(|(j, _)| j).collect()
    }

    fn output_at(&self, number: usize) -> Vec<u16> {
        let hidden = self.config.hidden as usize;
        self.outputs[self.rank as usize][number * hidden..][..hidden].to_vec()
    }

    /// Number of the first output of its row in rank-major layout.
    fn first(&self) -> usize {
        let received = self.source * self.config.tokens as usize + self.slot();
        received * self.config.backs(self.ways) as usize
    }

    /// The output for choice `j`.
    fn output(&self, j: usize) -> Vec<u16> {
        if self.config.layout == Layout::RankMajor {
            let before = self.local().iter().position(|local| *local == j).expect("a local choice");
            return self.output_at(self.first() + before);
        }
        let first = self.config.experts_of(self.ways.ranks, self.rank).start;
        let local = (self.row.experts[j] as u32 - first) as usize;
        let place = (self.source, self.slot());
        let at = self.here().groups[local].iter().position(|row| *row == place);
        self.output_at(self.here().bases[local] as usize + at.expect("a row of the expert"))
    }

    /// The one row that it sends back.
    fn reduced(&self) -> Vec<u16> {
        if self.config.combine == Combine::Summed {
            return self.output_at(self.first()).into_iter().map(float_of).map(bf16_of).collect();
        }
        let mut sums = vec![0f32; self.config.hidden as usize];
        for j in self.local() {
            add(&mut sums, self.row.weights[j], &self.output(j));
        }
        sums.into_iter().map(bf16_of).collect()
    }
}
