//! Bandwidth and latency against size.

use super::row::NetRow;
use crate::perf::plot::{self, Line, Panel};
use crate::units;
use anyhow::Result;
use std::path::Path;

/// Writes the plot of `rows` to `file`.
pub(crate) fn write(rows: &[NetRow], title: &str, file: &Path) -> Result<()> {
    plot::write(&panels(rows), title, file)
}

fn panels(rows: &[NetRow]) -> Vec<Panel> {
    [bandwidth(rows), latency(rows)].into_iter().flatten().collect()
}

fn bandwidth(rows: &[NetRow]) -> Option<Panel> {
    let line =
        |qps| Line { name: queue_pairs(qps), points: points(rows, qps, |row| row.bytes_per_s) };
    Panel::of("bandwidth", units::rate, counts(rows).into_iter().map(line))
}

/// Of the first queue pair of the smallest number of them: the others add nothing to it.
fn latency(rows: &[NetRow]) -> Option<Panel> {
    let qps = counts(rows).into_iter().min()?;
    let p50 = points(rows, qps, |row| row.latency.map(|times| times.p50_ns as f64));
    let p99 = points(rows, qps, |row| row.latency.map(|times| times.p99_ns as f64));
    let lines = [("p50", p50), ("p99", p99)];
    let lines = lines.map(|(name, points)| Line { name: name.to_owned(), points });
    Panel::of("latency", units::nanos, lines)
}

/// Numbers of queue pairs, in the order in which they were measured.
fn counts(rows: &[NetRow]) -> Vec<u32> {
    let mut counts: Vec<u32> = rows.iter().map(|row| row.qps).collect();
    counts.dedup();
    counts
}

fn queue_pairs(count: u32) -> String {
    if count == 1 { "1 queue pair".into() } else { format!("{count} queue pairs") }
}

fn points(rows: &[NetRow], qps: u32, value: impl Fn(&NetRow) -> Option<f64>) -> Vec<(f64, f64)> {
    let rows = rows.iter().filter(|row| row.qps == qps);
    rows.filter_map(|row| Some((row.bytes as f64, value(row)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::Op;
    use crate::stats::Summary;
    use std::time::Duration;

    fn rows() -> Vec<NetRow> {
        let sizes = [8u64, 64, 4096, 1 << 20];
        let row = |(qps, bytes): (u32, u64)| {
            let mut row = NetRow::new(Op::Write, bytes, qps);
            row.latency = Summary::of(vec![9000 + bytes, 12_000 + bytes]);
            row.add_rate(1000 * u64::from(qps), Duration::from_millis(1 + bytes / 1000));
            row
        };
        [1, 16].into_iter().flat_map(|qps| sizes.map(|bytes| (qps, bytes))).map(row).collect()
    }

    fn words(svg: &str) -> Vec<String> {
        let parsed = roxmltree::Document::parse(svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
        assert_eq!(parsed.root_element().tag_name().name(), "svg");
        let texts = parsed.descendants().filter(|node| node.has_tag_name("text"));
        texts.filter_map(|node| Some(node.text()?.trim().to_owned())).collect()
    }

    #[test]
    fn a_plot_has_axes_with_units_and_a_line_for_each_series() {
        let svg = plot::draw(&panels(&rows()), "perf write <a & b>").unwrap();
        let words = words(&svg);
        for word in [
            "perf write <a & b>",
            "size",
            "bandwidth",
            "latency",
            "8 B",
            "512 KiB",
            "100 µs",
            "10 MB/s",
            "1 queue pair",
            "16 queue pairs",
            "p50",
            "p99",
        ] {
            assert!(words.iter().any(|found| found == word), "{word} is not in {words:?}");
        }
        assert_eq!(svg.matches("<circle").count(), 8 + 8);
        let sizes = words.iter().filter(|word| word.ends_with('B') && word.len() < 9).count();
        assert!(sizes <= 2 * 13, "{words:?}");
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let mut rows = rows();
        rows.iter_mut().for_each(|row| row.latency = None);
        let words = words(&plot::draw(&panels(&rows), "t").unwrap());
        assert!(!words.contains(&"latency".to_owned()), "{words:?}");
        assert!(plot::draw(&panels(&[]), "nothing").is_ok());
        rows.truncate(1);
        assert!(plot::draw(&panels(&rows), "one point").is_ok());
    }
}
