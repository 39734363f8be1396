//! A row of `perf ep`, and the bound beside it.

use super::load::Moved;
use super::plan::{Back, By, COMBINE, Case, DISPATCH, Elements, PHASES};
use super::rank::Figures;
use crate::output::{Columns, Row};
use crate::perf::shmem::Yardsticks;
use crate::rig::plan::word;
use crate::stats::Summary;
use crate::units;
use serde::Serialize;
use std::collections::BTreeMap;

/// The least time of a call beside the bytes on the wire, but for the way of a flag: to read the routing
/// and the first data, to fence, to see the flag and touch the result; nanoseconds.
const FIXED: f64 = 800.0 + 1200.0 + 800.0;

/// One direction of a case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Part {
    pub(super) time: Summary,
    /// Bytes that leave a rank for others, the most of any rank.
    wire_bytes: u64,
    wire_bytes_per_s: f64,
    /// Bytes of all rows that a result is made of, the rank's own as well, one for each expert.
    algorithm_bytes_per_s: f64,
    /// Of this machine: its own peer copy and flag.
    pub(super) bound_ns: Option<f64>,
    pub(super) over_bound: Option<f64>,
    /// Medians from the begin to each phase, of the latest block of the latest rank.
    phases_ns: BTreeMap<&'static str, u64>,
    /// The same in words, in order.
    #[serde(skip)]
    phases: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct EpRow {
    pub(super) tokens: u32,
    payload: Elements,
    layout: By,
    combine: Back,
    /// Rank-major results were stored from outside the heap.
    outside: bool,
    pub(super) blocks: u32,
    threads: u32,
    pub(super) dispatch: Part,
    pub(super) back: Part,
    /// A dispatch and its combine, one after the other: the mean.
    pair_ns: f64,
    /// An all-gather of as many rows with headers.
    gather_ns: Option<u64>,
    pub(super) channel_bytes: u64,
    data: &'static str,
}

fn part(
    figures: &Figures,
    [begin, end]: [usize; 2],
    wire_bytes: u64,
    algorithm: u64,
    yardsticks: Option<&Yardsticks>,
) -> Option<Part> {
    let of = |phase: usize| figures.times.iter().map(move |call| u64::from(call[phase]));
    let time = Summary::of(of(end).collect())?;
    let bound_ns = yardsticks.map(|yardsticks| {
        FIXED + yardsticks.flag_ns / 2.0 + wire_bytes as f64 / yardsticks.copy_bytes_per_s * 1e9
    });
    let middle = |phase| Summary::of(of(phase).collect()).map_or(0, |all| all.p50_ns);
    let phases = (begin + 1..=end).map(|phase| (PHASES[phase], middle(phase)));
    // On host SIMT kernels do not say when they are in the middle of a call.
    let phases: Vec<_> = phases.filter(|(_, ns)| *ns != 0).collect();
    let words: Vec<_> =
        phases.iter().map(|(name, ns)| format!("{name} {:.1}", *ns as f64 / 1e3)).collect();
    let rate = |bytes: u64| bytes as f64 / (time.p50_ns.max(1) as f64 / 1e9);
    Some(Part {
        time,
        wire_bytes,
        wire_bytes_per_s: rate(wire_bytes),
        algorithm_bytes_per_s: rate(algorithm),
        bound_ns,
        over_bound: bound_ns.map(|bound| time.p50_ns as f64 / bound),
        phases_ns: phases.into_iter().collect(),
        phases: words.join(", "),
    })
}

impl EpRow {
    pub(super) fn new(
        case: &Case,
        figures: &Figures,
        moved: Moved,
        yardsticks: Option<&Yardsticks>,
        gather: Option<Vec<u64>>,
    ) -> Option<Self> {
        let each = case.sizes.row_bytes();
        let back = if case.by == By::Rank || case.back == Back::Reduced {
            moved.remote
        } else {
            moved.remote_choices
        };
        Some(Self {
            tokens: case.sizes.tokens,
            payload: case.elements,
            layout: case.by,
            combine: case.back,
            outside: case.outside,
            blocks: case.dim.blocks(),
            threads: case.dim.threads(),
            dispatch: part(
                figures,
                DISPATCH,
                moved.remote * case.moved_row_bytes(),
                moved.choices * case.scaled_row_bytes(),
                yardsticks,
            )?,
            back: part(figures, COMBINE, back * each, moved.choices * each, yardsticks)?,
            pair_ns: figures.pair,
            gather_ns: gather.and_then(Summary::of).map(|all| all.p50_ns),
            channel_bytes: figures.channel,
            data: "equal",
        })
    }
}

impl EpRow {
    fn combine(&self) -> String {
        match (self.layout, self.outside) {
            (By::Rank, true) => "stored".to_owned(),
            (By::Rank, false) => "summed".to_owned(),
            (By::Expert | By::Flat, _) => word(self.combine),
        }
    }

    /// All but the blocks.
    pub(super) fn name(&self) -> String {
        let [payload, layout] = [word(self.payload), word(self.layout)];
        format!("{} tokens, {payload}, {layout}, {}", self.tokens, self.combine())
    }

    pub(super) fn is_same_but_for_blocks(&self, other: &Self) -> bool {
        let of = |row: &Self| (row.tokens, row.payload, row.layout, row.combine, row.threads);
        of(self) == of(other)
    }

    /// Where the time goes.
    pub(super) fn phases(&self) -> String {
        let (name, blocks) = (self.name(), self.blocks);
        let [dispatch, combine] = [&self.dispatch.phases, &self.back.phases];
        format!("{name}, {blocks} blocks: µs of dispatch: {dispatch}; of combine: {combine}")
    }
}

impl Row for EpRow {
    fn columns(&self) -> Columns {
        let us = |ns: f64| format!("{:.1}", ns / 1e3);
        let maybe = |ns: Option<f64>| ns.map(us).unwrap_or_default();
        let of = |part: &Part, names: [&'static str; 6]| -> Columns {
            let rates = [part.wire_bytes_per_s, part.algorithm_bytes_per_s];
            let [wire, algorithm] = rates.map(|rate| format!("{:.0}", rate / 1e9));
            let ratio = part.over_bound.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let times = [part.time.p50_ns, part.time.p99_ns].map(|ns| us(ns as f64));
            let [p50, p99] = times;
            let cells = [p50, p99, maybe(part.bound_ns), ratio, wire, algorithm];
            names.into_iter().zip(cells).collect()
        };
        let mut columns = vec![
            ("tokens", self.tokens.to_string()),
            ("payload", word(self.payload)),
            ("layout", word(self.layout)),
            ("combine", self.combine()),
            ("grid", format!("{} x {}", self.blocks, self.threads)),
        ];
        columns.extend(of(
            &self.dispatch,
            ["dispatch µs", "p99", "bound", "ratio", "wire GB/s", "algo GB/s"],
        ));
        columns.extend(of(
            &self.back,
            ["combine µs", "p99 ", "bound ", "ratio ", "wire GB/s ", "algo GB/s "],
        ));
        columns.extend([
            ("pair µs", us(self.pair_ns)),
            ("all-gather µs", maybe(self.gather_ns.map(|ns| ns as f64))),
            ("channel", units::bytes(self.channel_bytes)),
            ("data", self.data.to_owned()),
        ]);
        columns
    }
}
