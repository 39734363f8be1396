//! Bandwidth and latency against size, as an SVG file. Both axes are logarithmic.

use super::row::NetRow;
use crate::units;
use anyhow::{Context as _, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

/// Width, and height of one panel, in pixels.
const WIDTH: u32 = 900;
const PANEL: u32 = 380;

/// A line of a panel.
struct Line {
    name: String,
    /// Size in bytes and value.
    points: Vec<(f64, f64)>,
}

/// One pair of axes.
struct Panel {
    name: &'static str,
    show: fn(f64) -> String,
    lines: Vec<Line>,
}

/// Writes the plot of `rows` to `file`, in one go.
pub(crate) fn write(rows: &[NetRow], title: &str, file: &Path) -> Result<()> {
    let svg = draw(rows, title)?;
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))
}

fn draw(rows: &[NetRow], title: &str) -> Result<String> {
    let panels: Vec<_> = [bandwidth(rows), latency(rows)].into_iter().flatten().collect();
    let mut svg = String::new();
    {
        let size = (WIDTH, PANEL * panels.len().max(1) as u32 + 40);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let body = root.titled(title, ("sans-serif", 18)).map_err(failed)?;
        for (area, panel) in body.split_evenly((panels.len().max(1), 1)).iter().zip(&panels) {
            panel.draw(area)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
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

impl Panel {
    /// `None` if nothing of it was measured.
    fn of(
        name: &'static str,
        show: fn(f64) -> String,
        lines: impl IntoIterator<Item = Line>,
    ) -> Option<Self> {
        let lines: Vec<_> = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
        (!lines.is_empty()).then_some(Self { name, show, lines })
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<()> {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let x = Axis::of_sizes(all().map(|point| point.0));
        let y = Axis::of_values(all().map(|point| point.1));
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(88)
            .build_cartesian_2d(x, y)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(64)
            .y_labels(64)
            .x_label_formatter(&|x| units::bytes(x.exp2().round() as u64))
            .y_label_formatter(&|y| (self.show)(tidy(*y)))
            .x_desc("message size")
            .y_desc(self.name)
            .draw()
            .map_err(failed)?;
        for (index, line) in self.lines.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            let points: Vec<_> = line.points.iter().map(|(x, y)| (x.log2(), y.log10())).collect();
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))
                .map_err(failed)?
                .label(line.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            let marks = points.into_iter().map(|point| Circle::new(point, 3, colour.filled()));
            chart.draw_series(marks).map_err(failed)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()
            .map_err(failed)
    }
}

/// A tick's value without the noise of its logarithm.
fn tidy(log10: f64) -> f64 {
    let digits = 10f64.powf(log10.floor());
    (10f64.powf(log10) / digits).round() * digits
}

/// Ends and ticks of an axis, as logarithms.
#[derive(Debug, PartialEq)]
struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (value - self.low) / (self.high - self.low);
        from + (part * f64::from(to - from)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _hint: H) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl Axis {
    /// Powers of two, at most a dozen of them.
    fn of_sizes(sizes: impl Iterator<Item = f64>) -> Self {
        let (low, high) = ends(sizes);
        let (low, high) = (low.log2().floor(), high.log2().ceil().max(low.log2().floor() + 1.0));
        let step = ((high - low) / 12.0).ceil().max(1.0) as usize;
        let ticks = (low as i32..=high as i32).step_by(step).map(f64::from).collect();
        Self { low, high, ticks }
    }

    /// 1, 2 and 5 of every power of ten; the powers alone where that is too many.
    fn of_values(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = ends(values);
        let (low, high) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
        let each: &[f64] = if high - low > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = low as i32..=high as i32;
        let ticks = powers.flat_map(|power| each.iter().map(move |m| m.log10() + f64::from(power)));
        let ticks = ticks.filter(|tick| *tick <= high + 1e-9).collect();
        Self { low, high, ticks }
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 1.0), |(low, high), value| {
        let value = value.max(1.0);
        (low.min(value), high.max(value))
    })
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot: {error}")
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
        let svg = draw(&rows(), "perf write <a & b>").unwrap();
        let words = words(&svg);
        for word in [
            "perf write <a & b>",
            "message size",
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
        let words = words(&draw(&rows, "t").unwrap());
        assert!(!words.contains(&"latency".to_owned()), "{words:?}");
        assert!(draw(&[], "nothing").is_ok());
        rows.truncate(1);
        assert!(draw(&rows, "one point").is_ok());
    }

    #[test]
    fn ticks_are_few_and_round() {
        let axis = Axis::of_sizes([8.0, 1048576.0].into_iter());
        assert_eq!((axis.low, axis.high, axis.ticks.len()), (3.0, 20.0, 9));
        let axis = Axis::of_values([30.0, 700.0].into_iter());
        let values: Vec<f64> = axis.ticks.iter().map(|tick| tidy(*tick)).collect();
        assert_eq!(values, [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
    }
}
