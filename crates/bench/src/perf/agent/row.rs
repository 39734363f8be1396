//! Rows of the output.

use super::memory::Mem;
use super::plan::{Case, Layout, Pair, Way};
use crate::output::{Columns, Row};
use crate::rig::plan::word;
use crate::rig::plot::{Drawn, Panel};
use crate::stats::Summary;
use crate::units;
use serde::Serialize;
use std::time::Duration;
use warpverbs::agent::Telemetry;

/// One list between two memories.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AgentRow {
    pub(super) op: Way,
    pub(super) local: Mem,
    pub(super) remote: Mem,
    /// Of each block.
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) layout: Layout,
    pub(super) threads: u32,
    /// Which path the bytes took.
    path: String,
    /// Pieces after neighbours were merged.
    pieces: usize,
    /// Checking both lists.
    prepare: Option<Summary>,
    /// A transfer of checked lists, by index.
    make: Option<Summary>,
    /// A transfer of lists, in one call.
    initialize: Option<Summary>,
    /// Inside of the call that posts.
    post: Option<Summary>,
    /// From post to done; of an exchange, one round there and back, of which only the mean is known.
    pub(super) transfer: Option<Summary>,
    transfers: u64,
    /// Of all threads together.
    pub(super) bytes_per_s: f64,
    /// `equal`: nothing else is ever printed.
    data: &'static str,
}

impl AgentRow {
    /// Of transfers.
    pub(super) fn of(
        pair: Pair,
        case: &Case,
        telemetry: &Telemetry,
        [prepare, make, initialize]: [Option<Summary>; 3],
    ) -> Self {
        let paths: Vec<_> = telemetry.paths.iter().map(ToString::to_string).collect();
        let pieces = telemetry.descriptors;
        Self { pieces, prepare, make, initialize, ..Self::new(pair, case, paths.join(", ")) }
    }

    pub(super) fn new(pair: Pair, case: &Case, path: String) -> Self {
        Self {
            op: case.way,
            local: pair.here,
            remote: pair.there,
            bytes: case.shape.bytes,
            blocks: case.shape.count,
            layout: case.layout,
            threads: case.threads,
            path,
            pieces: 1,
            prepare: None,
            make: None,
            initialize: None,
            post: None,
            transfer: None,
            transfers: 0,
            bytes_per_s: 0.0,
            data: "equal",
        }
    }

    pub(super) fn add(
        &mut self,
        post: Vec<u64>,
        transfer: Vec<u64>,
        transfers: u64,
        took: Duration,
    ) {
        self.post = Summary::of(post);
        self.transfer = Summary::of(transfer);
        self.transfers = transfers;
        let bytes = self.bytes * self.blocks * transfers;
        self.bytes_per_s = bytes as f64 / took.as_secs_f64().max(1e-9);
    }

    /// Bytes of the list of one thread.
    pub(super) fn span(&self) -> u64 {
        self.bytes * self.blocks
    }

    /// Name of its line in a plot.
    fn line(&self) -> String {
        let blocks = match self.blocks {
            1 => "one block".to_owned(),
            _ => format!("blocks of {}, {}", units::bytes(self.bytes), word(self.layout)),
        };
        let threads =
            if self.threads == 1 { String::new() } else { format!(", {} threads", self.threads) };
        let (op, here, there) = (word(self.op), word(self.local), word(self.remote));
        format!("{op} {here}:{there}, {blocks}{threads}")
    }
}

impl Row for AgentRow {
    fn columns(&self) -> Columns {
        let time = |of: &Option<Summary>, which: fn(&Summary) -> u64| {
            of.as_ref().map(|summary| units::nanos(which(summary) as f64)).unwrap_or_default()
        };
        let layout = if self.blocks == 1 { String::new() } else { word(self.layout) };
        vec![
            ("op", word(self.op)),
            ("memory", format!("{}:{}", word(self.local), word(self.remote))),
            ("block", units::bytes(self.bytes)),
            ("blocks", self.blocks.to_string()),
            ("layout", layout),
            ("threads", self.threads.to_string()),
            ("path", self.path.clone()),
            ("pieces", self.pieces.to_string()),
            ("prepare", time(&self.prepare, |s| s.p50_ns)),
            ("make", time(&self.make, |s| s.p50_ns)),
            ("initialize", time(&self.initialize, |s| s.p50_ns)),
            ("post", time(&self.post, |s| s.p50_ns)),
            ("p50", time(&self.transfer, |s| s.p50_ns)),
            ("p90", time(&self.transfer, |s| s.p90_ns)),
            ("p99", time(&self.transfer, |s| s.p99_ns)),
            ("max", time(&self.transfer, |s| s.max_ns)),
            ("bandwidth", units::rate(self.bytes_per_s)),
            ("data", self.data.to_owned()),
        ]
    }
}

impl Drawn for AgentRow {
    /// A line for each pair of memories, operation, size of a block and so on: all but the number of
    /// blocks, or where that is 1, all but the size.
    fn panels(rows: &[Self]) -> Vec<Panel> {
        let point = |row: &Self, value| (row.line(), (row.span() as f64, value));
        let bandwidth = rows.iter().map(|row| point(row, row.bytes_per_s));
        let latency = rows.iter().filter_map(|row| Some(point(row, row.transfer?.p50_ns as f64)));
        let bandwidth = Panel::of("bandwidth", units::rate, bandwidth);
        let latency = Panel::of("post to done, p50", units::nanos, latency);
        bandwidth.into_iter().chain(latency).collect()
    }
}
