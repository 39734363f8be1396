//! Lines over sizes or other numbers, as an SVG file. Both axes are logarithmic.

use crate::output::{Measured, Row};
use crate::units;
use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use std::ops::Range;
use std::path::PathBuf;

/// Width, and height of one panel, in pixels.
const WIDTH: u32 = 900;
const PANEL: u32 = 380;

pub(crate) struct Line {
    pub(crate) name: String,
    /// Size in bytes, or what else the panel has lines over, and value.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines of named points, sorted by size; a line's place is that of its first point.
fn lines(points: impl IntoIterator<Item = (String, (f64, f64))>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (name, point) in points {
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}

pub(crate) struct Panel {
    name: &'static str,
    show: fn(f64) -> String,
    over: &'static str,
    show_over: fn(u64) -> String,
    pub(crate) lines: Vec<Line>,
}

/// Rows that are drawn.
pub(crate) trait Drawn: Row + Sized {
    /// Panels of a plot of rows.
    fn panels(rows: &[Self]) -> Vec<Panel>;
}

/// The form of the output.
#[derive(Args, Clone, Debug)]
pub(crate) struct Output {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Draw the figures of all rows as well
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// As [`Measured::print_up_to`], and draws what there is to a file, if one is given: panels one below
/// the other, written in one go.
pub(crate) fn print_and_plot<R: Drawn>(
    measured: &Measured<R>,
    end: Result<()>,
    output: &Output,
) -> Result<()> {
    let write = |file: &PathBuf| {
        let svg = draw(&R::panels(&measured.rows), &format!("warpverbs {}", measured.command))?;
        std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))
    };
    let file = output.plot.as_ref().filter(|_| !measured.rows.is_empty());
    let drawn = file.map_or(Ok(()), write);
    measured.print_up_to(end, output.json).and(drawn)
}

pub(crate) fn draw(panels: &[Panel], title: &str) -> Result<String> {
    let mut svg = String::new();
    {
        let size = (WIDTH, PANEL * panels.len().max(1) as u32 + 40);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let body = root.titled(title, ("sans-serif", 18)).map_err(failed)?;
        for (area, panel) in body.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
            panel.draw(area)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

impl Panel {
    /// Of points by the names of their lines; `None` if nothing of it was measured.
    pub(crate) fn of(
        name: &'static str,
        show: fn(f64) -> String,
        points: impl IntoIterator<Item = (String, (f64, f64))>,
    ) -> Option<Self> {
        let lines = lines(points);
        let sized = Self { name, show, over: "size", show_over: units::bytes, lines };
        (!sized.lines.is_empty()).then_some(sized)
    }

    /// Over plain numbers of something, not bytes.
    pub(crate) fn over(self, what: &'static str) -> Self {
        Self { over: what, show_over: |number| number.to_string(), ..self }
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
            .x_label_formatter(&|x| (self.show_over)(x.exp2().round() as u64))
            .y_label_formatter(&|y| (self.show)(tidy(*y)))
            .x_desc(self.over)
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

    #[test]
    fn ticks_are_few_and_round() {
        let axis = Axis::of_sizes([8.0, 1048576.0].into_iter());
        assert_eq!((axis.low, axis.high, axis.ticks.len()), (3.0, 20.0, 9));
        let axis = Axis::of_values([30.0, 700.0].into_iter());
        let values: Vec<f64> = axis.ticks.iter().map(|tick| tidy(*tick)).collect();
        assert_eq!(values, [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
    }
}
