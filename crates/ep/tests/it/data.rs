//! All that goes into the calls of a case and comes out of them.

use crate::case::{Case, Routing};
use rand::RngExt;
use rand::rngs::SmallRng;
use warpverbs_ep::reference::{self, Batch, Dispatched, bf16_of};
use warpverbs_ep::{Layout, Payload, ScaleOrder};

/// Everything that goes in, by call and rank, in buffers of the largest size.
pub(crate) struct Inputs {
    pub(crate) counts: Vec<u32>,
    pub(crate) rows: Vec<u16>,
    pub(crate) scales: Vec<u32>,
    pub(crate) experts: Vec<i32>,
    pub(crate) weights: Vec<f32>,
    pub(crate) outputs: Vec<u16>,
}

/// Any number but those whose sums would be no number in most cases.
fn number(rng: &mut SmallRng) -> u16 {
    match rng.random_range(0..64) {
        0 => rng.random(),
        _ => bf16_of(rng.random_range(-8.0f32..8.0)),
    }
}

impl Inputs {
    pub(crate) fn random(case: &Case, rng: &mut SmallRng) -> Self {
        let all = (case.calls * case.ranks) as usize;
        let [tokens, hidden, k] = [case.tokens, case.hidden, case.top_k].map(|n| n as usize);
        let one: Vec<i32> = (0..case.experts as i32).collect();
        let mut experts = Vec::new();
        for _ in 0..all * tokens {
            experts.extend((0..k).map(|j| match case.routing {
                Routing::One => one[j],
                Routing::Wrong => rng.random_range(-3..case.experts as i32 + 3),
                Routing::Any => -1,
            }));
            if case.routing == Routing::Any {
                let start = experts.len() - k;
                let mut left = one.clone();
                for choice in &mut experts[start..] {
                    let expert = left.swap_remove(rng.random_range(0..left.len()));
                    *choice = if rng.random_bool(0.2) { -1 } else { expert };
                }
            }
        }
        let counts = (0..all).map(|_| rng.random_range(case.least..=case.tokens)).collect();
        let words = case.words()[0] as usize;
        let given = |rng: &mut SmallRng| match case.payload {
            Payload::Fp8(_) => rng.random(),
            _ => number(rng),
        };
        let rows = (0..all * tokens * words).map(|_| given(rng)).collect();
        let scales = (0..all * tokens * case.scaled() as usize).map(|_| rng.random()).collect();
        let weights = (0..all * tokens * k).map(|_| rng.random_range(-2.0f32..2.0)).collect();
        let outputs = (0..all * case.capacity() * hidden).map(|_| number(rng)).collect();
        Self { counts, rows, scales, experts, weights, outputs }
    }

    /// The tokens of each rank in one call.
    pub(crate) fn batches(&self, case: &Case, call: usize) -> Vec<Batch<'_>> {
        let [tokens, k, words] = [case.tokens, case.top_k, case.words()[0]].map(|n| n as usize);
        let (ranks, scaled) = (case.ranks as usize, case.scaled() as usize);
        let one = |rank: usize| {
            let (i, n) = (call * ranks + rank, self.counts[call * ranks + rank] as usize);
            Batch {
                rows: &self.rows[i * tokens * words..][..n * words],
                scales: &self.scales[i * tokens * scaled..][..n * scaled],
                experts: &self.experts[i * tokens * k..][..n * k],
                weights: &self.weights[i * tokens * k..][..n * k],
            }
        };
        (0..ranks).map(one).collect()
    }

    pub(crate) fn outputs(&self, case: &Case, call: usize) -> Vec<Vec<u16>> {
        let call = if case.pulled() { 0 } else { call };
        let each = case.capacity() * case.hidden as usize;
        let ranks = case.ranks as usize;
        let one = |rank: usize| self.outputs[(call * ranks + rank) * each..][..each].to_vec();
        (0..ranks).map(one).collect()
    }
}

/// Place of word `w` of the scales of row `n` of local expert `e`, which is row `number` of all.
fn scale_place(case: &Case, rank: u32, (e, n): (usize, usize), number: usize, w: usize) -> usize {
    let words = case.config.scale_words() as usize;
    let column = |rows: usize| rows.next_multiple_of(4);
    let group = column((case.ranks * case.tokens) as usize);
    match (case.order, case.layout) {
        (ScaleOrder::Columns, Layout::Flat { .. }) => {
            w * column(case.config.packed_rows(case.ways(), rank) as usize) + number
        }
        (ScaleOrder::Columns, _) => e * words * group + w * group + n,
        _ => number * words + w,
    }
}

/// All that came out, by call and rank.
#[derive(PartialEq, Debug)]
pub(crate) struct Outputs {
    pub(crate) packed: Vec<u16>,
    pub(crate) scales: Vec<u32>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) counts: Vec<u32>,
    pub(crate) bases: Vec<u32>,
    pub(crate) ranges: Vec<u64>,
    pub(crate) sums: Vec<u16>,
}

impl Outputs {
    /// As the reference has it; what nobody writes is zero.
    pub(crate) fn expected(case: &Case, inputs: &Inputs) -> Self {
        let mut all = Self::zero(case);
        for call in 0..case.calls as usize {
            let batches = inputs.batches(case, call);
            let dispatched = reference::dispatch(&case.config, case.ways(), &batches);
            let (config, outputs) = (&case.config, inputs.outputs(case, call));
            let sums = reference::combine(config, case.ways(), &batches, &dispatched, &outputs);
            for rank in 0..case.ranks as usize {
                let i = call * case.ranks as usize + rank;
                let start = i * (case.tokens * case.hidden) as usize;
                all.sums[start..][..sums[rank].len()].copy_from_slice(&sums[rank]);
                if case.layout != Layout::RankMajor {
                    all.pack(case, i, &dispatched[rank]);
                }
            }
        }
        all
    }

    pub(crate) fn zero(case: &Case) -> Self {
        let all = (case.calls * case.ranks) as usize;
        let [hidden, local, ranks] = [case.hidden, case.local(), case.ranks].map(|n| n as usize);
        Self {
            packed: vec![0; all * case.capacity() * case.words()[1] as usize],
            scales: vec![0; all * case.scale_room()],
            tokens: vec![0; all * case.capacity()],
            counts: vec![0; all * local],
            bases: vec![0; all * local],
            ranges: vec![0; all * local * ranks],
            sums: vec![0; all * case.tokens as usize * hidden],
        }
    }

    fn pack(&mut self, case: &Case, i: usize, dispatched: &Dispatched) {
        let [words, local, ranks] = [case.words()[1], case.local(), case.ranks].map(|n| n as usize);
        let capacity = case.capacity();
        for (e, group) in dispatched.groups.iter().enumerate() {
            let base = dispatched.bases[e] as usize;
            self.counts[i * local + e] = group.len() as u32;
            self.bases[i * local + e] = base as u32;
            for (n, (source, slot)) in group.iter().enumerate() {
                let row = &dispatched.rows[*source][*slot];
                let at = i * capacity + base + n;
                self.packed[at * words..][..words].copy_from_slice(&row.row);
                self.tokens[at] = row.token;
                for (w, scale) in row.scales.iter().enumerate() {
                    let place = scale_place(case, (i % ranks) as u32, (e, n), base + n, w);
                    self.scales[i * case.scale_room() + place] = *scale;
                }
            }
        }
        let ranges = &dispatched.ranges;
        self.ranges[i * local * ranks..][..ranges.len()].copy_from_slice(ranges);
    }
}
