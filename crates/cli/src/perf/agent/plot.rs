//! Bandwidth and latency against the bytes of a list.

use super::row::AgentRow;
use crate::perf::plot::{self, Line, Panel};
use crate::stats::Summary;
use crate::units;
use anyhow::Result;
use std::path::Path;

/// Writes the plot of `rows` to `file`.
pub(super) fn write(rows: &[AgentRow], file: &Path) -> Result<()> {
    plot::write(&panels(rows), "warpverbs perf agent", file)
}

/// A line for each pair of memories, operation, size of a block and so on: all but the number of
/// blocks, or where that is 1, all but the size.
fn panels(rows: &[AgentRow]) -> Vec<Panel> {
    let p50 = |row: &AgentRow| row.transfer.map(|times: Summary| times.p50_ns as f64);
    let bandwidth = Panel::of("bandwidth", units::rate, lines(rows, |row| Some(row.bytes_per_s)));
    let latency = Panel::of("post to done, p50", units::nanos, lines(rows, p50));
    [bandwidth, latency].into_iter().flatten().collect()
}

fn lines(rows: &[AgentRow], value: impl Fn(&AgentRow) -> Option<f64>) -> Vec<Line> {
    plot::lines(rows.iter().filter_map(|row| Some((name(row), (row.span() as f64, value(row)?)))))
}

fn name(row: &AgentRow) -> String {
    let word = |word: String| word.to_lowercase();
    let blocks = match row.blocks {
        1 => "one block".to_owned(),
        _ => {
            let layout = word(format!("{:?}", row.layout));
            format!("blocks of {}, {layout}", units::bytes(row.bytes))
        }
    };
    let threads =
        if row.threads == 1 { String::new() } else { format!(", {} threads", row.threads) };
    let (op, here, there) = (word(format!("{:?}", row.op)), row.local.name(), row.remote.name());
    format!("{op} {here}:{there}, {blocks}{threads}")
}
