//! Rows of the output.

use super::case::Test;
use crate::output::{Bound, Columns, Finding, Row};
use crate::rig::plot::{Drawn, Panel};
use crate::ucx;
use crate::units;
use anyhow::Result;
use serde::Serialize;

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
    fn columns(&self) -> Columns {
        let show =
            |value: Option<f64>, unit: fn(f64) -> String| value.map(unit).unwrap_or_default();
        vec![
            ("test", self.test.name().to_owned()),
            ("size", units::bytes(self.bytes)),
            ("count", self.iterations.to_string()),
            ("p50", show(self.p50_ns, units::nanos)),
            ("bandwidth", show(self.bytes_per_s, units::rate)),
            ("CPU/GB", show(self.cpu_s_per_gb, |seconds| format!("{seconds:.2} s"))),
            ("bare loop", show(self.bare_bytes_per_s, units::rate)),
            ("UCX p50", show(self.ucx_p50_ns, units::nanos)),
            ("UCX", show(self.ucx_bytes_per_s, units::rate)),
            ("data", self.data.to_owned()),
        ]
    }
}

impl Drawn for TcpRow {
    /// In each panel a line for messages and one for writes, beside those of the bare loop and UCX.
    fn panels(rows: &[Self]) -> Vec<Panel> {
        let lines = |contenders: &[Contender]| {
            let of = |&(whose, value): &Contender| {
                let point = move |row: &Self| {
                    let name = format!("{}{whose}", row.test.name());
                    Some((name, (row.bytes as f64, value(row)?)))
                };
                rows.iter().filter_map(point).collect::<Vec<_>>()
            };
            contenders.iter().flat_map(of).collect::<Vec<_>>()
        };
        let bandwidth = lines(&[
            ("", |row| row.bytes_per_s),
            (", bare loop", |row| row.bare_bytes_per_s),
            (", UCX", |row| row.ucx_bytes_per_s),
        ]);
        let latency = lines(&[("", |row| row.p50_ns), (", UCX", |row| row.ucx_p50_ns)]);
        let bandwidth = Panel::of("bandwidth", units::rate, bandwidth);
        let latency = Panel::of("half a round trip, p50", units::nanos, latency);
        bandwidth.into_iter().chain(latency).collect()
    }
}

/// Whose figure, and where it is.
type Contender = (&'static str, fn(&TcpRow) -> Option<f64>);

/// The ratios that are wanted.
pub(super) fn findings(rows: &[TcpRow]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in rows {
        let name = format!("{} of {}", row.test.name(), units::bytes(row.bytes));
        let mut add = |beside: &str, ours: Option<f64>, theirs: Option<f64>, bound| {
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                findings.push(Finding::new(format!("{name} over {beside}"), ours / theirs, bound));
            }
        };
        add("UCX's", row.p50_ns, row.ucx_p50_ns, Bound::AtMost(1.0));
        if row.bytes >= 1 << 20 {
            add("the bare loop's", row.bytes_per_s, row.bare_bytes_per_s, Bound::AtLeast(0.9));
        }
        // The bound is of UCX's put; its messages are beside ours in the table.
        if row.bytes >= 1 << 20 && row.test == Test::WriteBandwidth {
            add("UCX's", row.bytes_per_s, row.ucx_bytes_per_s, Bound::AtLeast(1.5));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::plot;

    fn row(test: Test, bytes: u64, value: f64) -> TcpRow {
        let mut row = TcpRow::new(test, bytes, 10, 2);
        match test.is_latency() {
            true => row.latency(value),
            false => row.bandwidth(value, 0.1),
        }
        row
    }

    #[test]
    fn every_figure_of_every_contender_is_a_point() {
        let mut rows = vec![
            row(Test::WriteBandwidth, 1 << 20, 3e9),
            row(Test::WriteBandwidth, 1 << 16, 2e9),
            row(Test::MessageLatency, 8, 5000.0),
        ];
        rows[0].bare(1e9);
        let drawn = plot::draw(&TcpRow::panels(&rows), "warpverbs perf tcp").unwrap();
        for text in ["write bandwidth", "write bandwidth, bare loop", "message latency", "8 B"] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert!(!drawn.contains("UCX"));
        let bandwidth = &TcpRow::panels(&rows)[0];
        assert_eq!(bandwidth.lines[0].points, [(65536.0, 2e9), (1_048_576.0, 3e9)]);
    }
}
