//! What is printed.

use super::case::Test;
use crate::perf::output::{Finding, Row};
use crate::units;
use anyhow::Result;
use serde::Serialize;
use warpverbs_ucx as ucx;

/// One test of one size; of several rounds the best.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TcpRow {
    pub(super) test: Test,
    pub(super) bytes: u64,
    iterations: u64,
    sockets: u16,
    /// Median of half a round trip, nanoseconds.
    pub(super) p50_ns: Option<f64>,
    pub(super) bytes_per_s: Option<f64>,
    /// CPU time of both ends for 10^9 bytes.
    cpu_s_per_gb: Option<f64>,
    pub(super) bare_bytes_per_s: Option<f64>,
    pub(super) ucx_p50_ns: Option<f64>,
    pub(super) ucx_bytes_per_s: Option<f64>,
    data: &'static str,
}

fn most(best: &mut Option<f64>, value: f64) -> bool {
    let better = best.is_none_or(|best| value > best);
    if better {
        *best = Some(value);
    }
    better
}

fn least(best: &mut Option<f64>, value: f64) {
    *best = Some(best.map_or(value, |best| best.min(value)));
}

impl TcpRow {
    pub(super) fn new(test: Test, bytes: u64, iterations: u64, sockets: u16) -> Self {
        Self {
            test,
            bytes,
            iterations,
            sockets,
            p50_ns: None,
            bytes_per_s: None,
            cpu_s_per_gb: None,
            bare_bytes_per_s: None,
            ucx_p50_ns: None,
            ucx_bytes_per_s: None,
            data: "equal",
        }
    }

    pub(super) fn latency(&mut self, p50_ns: f64) {
        least(&mut self.p50_ns, p50_ns);
    }

    pub(super) fn bandwidth(&mut self, bytes_per_s: f64, cpu_s_per_gb: f64) {
        if most(&mut self.bytes_per_s, bytes_per_s) {
            self.cpu_s_per_gb = Some(cpu_s_per_gb);
        }
    }

    pub(super) fn bare(&mut self, bytes_per_s: f64) {
        most(&mut self.bare_bytes_per_s, bytes_per_s);
    }

    /// UCX's test of the same.
    pub(super) fn ucx(&mut self, test: Test, bytes: u64, iterations: u64) -> Result<()> {
        let name = match test {
            Test::MessageLatency => "tag_lat",
            Test::WriteLatency => "ucp_put_lat",
            Test::MessageBandwidth => "tag_bw",
            Test::WriteBandwidth => "ucp_put_bw",
        };
        // Its put of long buffers may crawl: the first round sees how fast it is.
        let iterations = match self.ucx_bytes_per_s {
            Some(rate) => iterations.min((UCX_ROUND_S * rate / bytes as f64) as u64 + 1),
            None if bytes > FEW_FROM => iterations.min(2),
            None => iterations,
        };
        let figures = ucx::run(name, bytes, iterations, iterations.min(100))?;
        match test.is_latency() {
            true => least(&mut self.ucx_p50_ns, figures.p50_ns),
            false => {
                most(&mut self.ucx_bytes_per_s, figures.bytes_per_s);
            }
        }
        Ok(())
    }
}

/// From this size on, the first round of UCX is of two operations.
const FEW_FROM: u64 = 4 << 20;
/// A later round of UCX takes about so long at most.
const UCX_ROUND_S: f64 = 2.0;

impl Row for TcpRow {
    const HEADS: &'static [&'static str] = &[
        "test",
        "size",
        "count",
        "p50",
        "bandwidth",
        "CPU/GB",
        "bare loop",
        "UCX p50",
        "UCX",
        "data",
    ];

    fn cells(&self) -> Vec<String> {
        let show =
            |value: Option<f64>, unit: fn(f64) -> String| value.map(unit).unwrap_or_default();
        vec![
            self.test.name().to_owned(),
            units::bytes(self.bytes),
            self.iterations.to_string(),
            show(self.p50_ns, units::nanos),
            show(self.bytes_per_s, units::rate),
            show(self.cpu_s_per_gb, |seconds| format!("{seconds:.2} s")),
            show(self.bare_bytes_per_s, units::rate),
            show(self.ucx_p50_ns, units::nanos),
            show(self.ucx_bytes_per_s, units::rate),
            self.data.to_owned(),
        ]
    }
}

/// The ratios that are wanted.
pub(super) fn findings(rows: &[TcpRow]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in rows {
        let name = format!("{} of {}", row.test.name(), units::bytes(row.bytes));
        let mut add = |beside: &str, ours: Option<f64>, theirs: Option<f64>, wanted, bound: f64| {
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                let value = ours / theirs;
                let met = if row.test.is_latency() { value <= bound } else { value >= bound };
                findings.push(Finding {
                    what: format!("{name} over {beside}"),
                    value,
                    wanted,
                    met,
                });
            }
        };
        add("UCX's", row.p50_ns, row.ucx_p50_ns, "at most 1.0", 1.0);
        if row.bytes >= 1 << 20 {
            add("the bare loop's", row.bytes_per_s, row.bare_bytes_per_s, "at least 0.9", 0.9);
        }
        // The bound is of UCX's put; its messages are beside ours in the table.
        if row.bytes >= 1 << 20 && row.test == Test::WriteBandwidth {
            add("UCX's", row.bytes_per_s, row.ucx_bytes_per_s, "at least 1.5", 1.5);
        }
    }
    findings
}
