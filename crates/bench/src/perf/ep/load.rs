//! Tokens of all ranks, from a seed. Every rank knows those of the others, and so what it must get.

use super::plan::{Elements, SCALE, Sizes};
use crate::rig::pattern::mix;
use warpverbs::raw::ep::reference::cast;

/// The tokens of all ranks in one case.
pub(super) struct Load {
    pub(super) seed: u64,
    pub(super) sizes: Sizes,
    pub(super) ranks: u32,
    /// Of each rank: `top_k` different experts of each token.
    experts: Vec<Vec<u32>>,
}

/// Rows that move in one dispatch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// From a rank to others, the most of any rank.
    pub(super) remote: u64,
    /// The same for each expert, not each rank.
    pub(super) remote_choices: u64,
    /// Choices of a rank, its own experts' as well: the most of any rank.
    pub(super) choices: u64,
}

impl Load {
    pub(super) fn new(seed: u64, sizes: Sizes, ranks: u32) -> Self {
        let choose = |rank: u32| {
            let all = (0..sizes.tokens).flat_map(|token| {
                let mut left: Vec<u32> = (0..sizes.experts).collect();
                (0..sizes.top_k).map(move |j| {
                    let at = [rank, token, j].into_iter().fold(seed, |x, n| mix(x ^ u64::from(n)));
                    left.swap_remove((at % left.len() as u64) as usize)
                })
            });
            all.collect()
        };
        Self { seed, sizes, ranks, experts: (0..ranks).map(choose).collect() }
    }

    /// Experts of each choice of a rank's tokens.
    pub(super) fn experts(&self, rank: u32) -> &[u32] {
        &self.experts[rank as usize]
    }

    pub(super) fn choices(&self, rank: u32, token: u32) -> &[u32] {
        let k = self.sizes.top_k as usize;
        &self.experts(rank)[token as usize * k..][..k]
    }

    /// How many experts of a token belong to a rank.
    pub(super) fn local(&self, rank: u32, token: u32, owner: u32) -> u32 {
        let own = self.sizes.experts_of(self.ranks, owner);
        self.choices(rank, token).iter().filter(|expert| own.contains(expert)).count() as u32
    }

    /// Tokens of `from` that go to `to`, in order: their places there.
    pub(super) fn slots(&self, from: u32, to: u32) -> Vec<u32> {
        (0..self.sizes.tokens).filter(|&token| self.local(from, token, to) != 0).collect()
    }

    pub(super) fn moved(&self) -> Moved {
        let mut most = Moved::default();
        for rank in 0..self.ranks {
            let others = (0..self.ranks).filter(|&to| to != rank);
            let (rows, choices) = others.fold((0, 0), |(rows, choices), to| {
                let slots = self.slots(rank, to);
                let here: u64 = slots.iter().map(|&t| u64::from(self.local(rank, t, to))).sum();
                (rows + slots.len() as u64, choices + here)
            });
            most.remote = most.remote.max(rows);
            most.remote_choices = most.remote_choices.max(choices);
            most.choices = most.choices.max(self.experts(rank).len() as u64);
        }
        most
    }

    /// A token's row `times` over, bf16 as bytes. Elements have a sign, 8 exponents and 3 significant bits, so
    /// that 32 of them are added without rounding.
    pub(super) fn push_row(&self, rank: u32, token: u32, times: u32, row: &mut Vec<u8>) {
        let begin = mix(mix(self.seed ^ u64::from(rank)) ^ u64::from(token));
        for pack in 0..u64::from(self.sizes.hidden) / 8 {
            let random = mix(begin ^ pack << 32).to_le_bytes();
            for byte in random {
                let bits = u32::from(byte);
                let one = (bits & 0x80) << 24 | (123 + (bits >> 4 & 7)) << 23 | (bits & 3) << 21;
                let value = f32::from_bits(one) * times as f32;
                row.extend(((value.to_bits() >> 16) as u16).to_le_bytes());
            }
        }
    }

    /// A token's row as it arrives, and its scales as bytes.
    pub(super) fn arriving(&self, rank: u32, token: u32, elements: Elements) -> (Vec<u8>, Vec<u8>) {
        let mut row = Vec::new();
        self.push_row(rank, token, 1, &mut row);
        if elements == Elements::Bf16 {
            return (row, Vec::new());
        }
        let halves: Vec<u16> =
            row.as_chunks().0.iter().map(|two| u16::from_le_bytes(*two)).collect();
        let (row, words) = cast(SCALE, &halves);
        (row, words.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    /// Sources and tokens of an expert's rows, in order.
    pub(super) fn of_expert(&self, expert: u32) -> Vec<(u32, u32)> {
        let all = (0..self.ranks).flat_map(|rank| (0..self.sizes.tokens).map(move |t| (rank, t)));
        all.filter(|&(rank, token)| self.choices(rank, token).contains(&expert)).collect()
    }

    /// All rows of a rank, each `times` over.
    pub(super) fn rows(&self, rank: u32, times: u32) -> Vec<u8> {
        let mut rows =
            Vec::with_capacity(self.sizes.row_bytes() as usize * self.sizes.tokens as usize);
        (0..self.sizes.tokens).for_each(|token| self.push_row(rank, token, times, &mut rows));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_choose_different_experts_and_every_row_has_its_owner() {
        let sizes = Sizes { tokens: 40, hidden: 16, top_k: 5, experts: 11 };
        let load = Load::new(7, sizes, 3);
        for rank in 0..3 {
            for token in 0..40 {
                let mut choices = load.choices(rank, token).to_vec();
                choices.sort_unstable();
                choices.dedup();
                assert_eq!(choices.len(), 5);
                assert_eq!((0..3).map(|to| load.local(rank, token, to)).sum::<u32>(), 5);
            }
        }
        assert_ne!(load.experts(0), load.experts(1));
        let owners = (0..3).map(|rank| sizes.experts_of(3, rank));
        assert_eq!(owners.collect::<Vec<_>>(), [0..4, 4..8, 8..11]);
        let moved = load.moved();
        assert_eq!(moved.choices, 200);
        assert!(moved.remote <= 80 && moved.remote_choices <= 200, "{moved:?}");
    }

    #[test]
    fn rows_are_added_without_rounding() {
        let sizes = Sizes { tokens: 2, hidden: 64, top_k: 1, experts: 1 };
        let load = Load::new(3, sizes, 1);
        let float = |bytes: &[u8]| {
            let halves = bytes.as_chunks::<2>().0.iter();
            let value = |half: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
            halves.map(value).collect::<Vec<_>>()
        };
        let once = float(&load.rows(0, 1));
        for times in [2, 7, 31, 32] {
            let all = float(&load.rows(0, times));
            assert!(once.iter().zip(&all).all(|(one, all)| one * times as f32 == *all));
        }
        assert_ne!(once[..64], once[64..]);
    }
}
