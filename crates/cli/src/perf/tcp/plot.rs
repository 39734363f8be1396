//! Bandwidth and latency against the size of a message.

use super::row::TcpRow;
use crate::perf::plot::{self, Line, Panel};
use crate::units;
use anyhow::Result;
use std::path::Path;

/// Writes the plot of `rows` to `file`.
pub(super) fn write(rows: &[TcpRow], file: &Path) -> Result<()> {
    plot::write(&panels(rows), "warpverbs perf tcp", file)
}

/// One panel for each unit; in each a line for messages and one for writes, beside those of the bare
/// loop and UCX.
fn panels(rows: &[TcpRow]) -> Vec<Panel> {
    let bandwidth: [Contender; 3] = [
        ("", |row| row.bytes_per_s),
        (", bare loop", |row| row.bare_bytes_per_s),
        (", UCX", |row| row.ucx_bytes_per_s),
    ];
    let latency: [Contender; 2] = [("", |row| row.p50_ns), (", UCX", |row| row.ucx_p50_ns)];
    let bandwidth = Panel::of("bandwidth", units::rate, lines(rows, &bandwidth));
    let latency = Panel::of("half a round trip, p50", units::nanos, lines(rows, &latency));
    [bandwidth, latency].into_iter().flatten().collect()
}

/// Whose figure, and where it is.
type Contender = (&'static str, fn(&TcpRow) -> Option<f64>);

fn lines(rows: &[TcpRow], contenders: &[Contender]) -> Vec<Line> {
    plot::lines(contenders.iter().flat_map(|(whose, value)| {
        let point = |row: &TcpRow| Some((row.bytes as f64, value(row)?));
        rows.iter()
            .filter_map(move |row| Some((format!("{}{whose}", row.test.name()), point(row)?)))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::tcp::case::Test;

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
        let drawn = plot::draw(&panels(&rows), "warpverbs perf tcp").unwrap();
        for text in ["write bandwidth", "write bandwidth, bare loop", "message latency", "8 B"] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert!(!drawn.contains("UCX"));
        let writes = lines(&rows, &[("", |row| row.bytes_per_s)]);
        assert_eq!(writes[0].points, [(65536.0, 2e9), (1_048_576.0, 3e9)]);
    }
}
