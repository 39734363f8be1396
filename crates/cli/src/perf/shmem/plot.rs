//! Bandwidth against blocks, and what a call or a round takes against its bytes.

use super::ShmemRow;
use crate::perf::plot::{self, Line, Panel};
use crate::units;
use anyhow::Result;
use std::path::Path;

/// Writes the plot of `rows` to `file`.
pub(super) fn write(rows: &[ShmemRow], file: &Path) -> Result<()> {
    plot::write(&panels(rows), "warpverbs perf shmem", file)
}

fn panels(rows: &[ShmemRow]) -> Vec<Panel> {
    let rate = |row: &ShmemRow| Some((f64::from(row.blocks), row.gb_per_s? * 1e9));
    let bandwidth = Panel::of("bandwidth", units::rate, lines(rows, rate));
    // Rows of kernels; the axis of sizes is logarithmic, and 0 bytes have no place on it.
    let time = |row: &ShmemRow| match (row.bytes, row.blocks) {
        (0, _) | (_, 0) => None,
        (bytes, _) => Some((bytes as f64, row.us? * 1e3)),
    };
    let times = Panel::of("mean of a round or call", units::nanos, lines(rows, time));
    [bandwidth.map(|panel| panel.over("blocks")), times].into_iter().flatten().collect()
}

/// A line for each call and group.
fn lines(rows: &[ShmemRow], point: impl Fn(&ShmemRow) -> Option<(f64, f64)>) -> Vec<Line> {
    let named = |row: &ShmemRow| Some((format!("{}, {}", row.what, row.by), point(row)?));
    plot::lines(rows.iter().filter_map(named))
}
