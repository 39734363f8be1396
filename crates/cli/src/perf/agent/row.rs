//! What is printed.

use super::client::Making;
use super::memory::Mem;
use super::plan::{Case, Layout, Pair, Way};
use crate::perf::output::Row;
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
    /// Blocks of a list.
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
    pub(super) fn of(pair: Pair, case: &Case, telemetry: &Telemetry, making: Making) -> Self {
        let paths: Vec<_> = telemetry.paths.iter().map(ToString::to_string).collect();
        let Making { prepare, make, initialize } = making;
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
}

impl Row for AgentRow {
    const HEADS: &'static [&'static str] = &[
        "op",
        "memory",
        "block",
        "blocks",
        "layout",
        "threads",
        "path",
        "pieces",
        "prepare",
        "make",
        "initialize",
        "post",
        "p50",
        "p90",
        "p99",
        "max",
        "bandwidth",
        "data",
    ];

    fn cells(&self) -> Vec<String> {
        let time = |of: &Option<Summary>, which: fn(&Summary) -> u64| {
            of.as_ref().map(|summary| units::nanos(which(summary) as f64)).unwrap_or_default()
        };
        let word = |word: &str| word.to_lowercase();
        vec![
            word(&format!("{:?}", self.op)),
            format!("{}:{}", self.local.name(), self.remote.name()),
            units::bytes(self.bytes),
            self.blocks.to_string(),
            if self.blocks == 1 { String::new() } else { word(&format!("{:?}", self.layout)) },
            self.threads.to_string(),
            self.path.clone(),
            self.pieces.to_string(),
            time(&self.prepare, |s| s.p50_ns),
            time(&self.make, |s| s.p50_ns),
            time(&self.initialize, |s| s.p50_ns),
            time(&self.post, |s| s.p50_ns),
            time(&self.transfer, |s| s.p50_ns),
            time(&self.transfer, |s| s.p90_ns),
            time(&self.transfer, |s| s.p99_ns),
            time(&self.transfer, |s| s.max_ns),
            units::rate(self.bytes_per_s),
            self.data.to_owned(),
        ]
    }
}
