//! One figure of ours beside another's, round by round, and the document of a comparison.

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use warpverbs_bench::busy::Watch;
use warpverbs_bench::output::{Bound, Columns, Finding, Measured, Row};
use warpverbs_bench::stats::median;
use warpverbs_bench::units;

/// How long and how often.
#[derive(Args)]
pub(crate) struct Turns {
    /// Turns of each contender; medians count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// Seconds of each measurement, about
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Seconds of a measurement.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=10.0).contains(seconds));
    seconds.ok_or_else(|| "expected 0.001 to 10".into())
}

/// The quantity that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum What {
    /// Median of half a round trip.
    #[serde(rename = "ns")]
    Latency,
    /// Messages a second.
    #[serde(rename = "messages/s")]
    Rate,
    /// Bytes a second.
    #[serde(rename = "bytes/s")]
    Bandwidth,
}

/// A row: one figure of two contenders. Others use the machine, too, so the verdict is about the median
/// of the ratios of each round, whose two figures were measured one after the other.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    name: String,
    unit: What,
    /// Not a number where a measurement failed.
    ours: Vec<f64>,
    beside: String,
    theirs: Vec<f64>,
    ratios: Vec<f64>,
    /// Their median.
    ratio: f64,
    #[serde(skip)]
    wanted: Option<Bound>,
}

impl Compared {
    pub(crate) fn new(name: impl Into<String>, unit: What, beside: impl Into<String>) -> Self {
        let (name, beside, ratio, wanted) = (name.into(), beside.into(), f64::NAN, None);
        Self { name, unit, ours: vec![], beside, theirs: vec![], ratios: vec![], ratio, wanted }
    }

    pub(crate) fn wanted(self, wanted: impl Into<Option<Bound>>) -> Self {
        Self { wanted: wanted.into(), ..self }
    }

    /// The figures of one round after the other.
    pub(crate) fn with(mut self, ours: &[f64], theirs: &[f64]) -> Self {
        self.ours.extend(ours);
        self.theirs.extend(theirs);
        let both = self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs);
        self.ratios = both.filter(|ratio| ratio.is_finite()).collect();
        self.ratio = median(&self.ratios);
        self
    }

    /// The figures of every round, in each of which the other contender begins.
    pub(crate) fn measured(
        self,
        rounds: u32,
        mut ours: impl FnMut(u32) -> Result<f64>,
        mut theirs: impl FnMut(u32) -> Result<f64>,
    ) -> Result<Self> {
        (0..rounds).try_fold(self, |row, round| {
            let before = if round % 2 == 0 { Some(ours(round)?) } else { None };
            let theirs = theirs(round)?;
            let ours = before.map_or_else(|| ours(round), Ok)?;
            eprintln!("{}: round {} of {rounds}", row.name, round + 1);
            Ok(row.with(&[ours], &[theirs]))
        })
    }

    fn show(&self, values: &[f64]) -> String {
        let value = median(values);
        match self.unit {
            What::Latency => units::nanos(value),
            What::Rate => units::per_second(value),
            What::Bandwidth => units::rate(value),
        }
    }

    fn finding(&self) -> Option<Finding> {
        let what = format!("{} beside {}", self.name, self.beside);
        Some(Finding::new(what, self.ratio, self.wanted?))
    }
}

impl Row for Compared {
    fn columns(&self) -> Columns {
        let low = self.ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.ratios.iter().copied().fold(0.0, f64::max);
        vec![
            ("figure", self.name.clone()),
            ("ours", self.show(&self.ours)),
            ("beside", format!("{} ({})", self.show(&self.theirs), self.beside)),
            ("ratio", format!("{:.2}", self.ratio)),
            ("of rounds", format!("{low:.2} to {high:.2}")),
        ]
    }
}

/// The contenders, and how often they took turns.
#[derive(Serialize)]
pub(crate) struct Setting {
    pub(crate) contenders: String,
    pub(crate) rounds: u32,
    pub(crate) cores: usize,
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { contenders, rounds, cores } = self;
        write!(f, "{contenders}; medians of {rounds} rounds; {cores} cores")
    }
}

/// The cores of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Everything that is compared; a measurement that fails does not keep the others from being made.
pub(crate) struct Report {
    watch: Watch,
    pub(crate) rows: Vec<Compared>,
    pub(crate) failures: Vec<String>,
}

impl Report {
    pub(crate) fn begin() -> Self {
        Self { watch: Watch::start(), rows: Vec::new(), failures: Vec::new() }
    }

    /// Keeps the rows of a measurement, or the reason why there are none.
    pub(crate) fn add(&mut self, measured: Result<impl IntoIterator<Item = Compared>>) {
        match measured {
            Ok(rows) => self.rows.extend(rows),
            Err(error) => self.failures.push(format!("{error:#}")),
        }
    }

    /// The document, and an error if a measurement failed. A missed bound is a finding, not a failure.
    pub(crate) fn end(
        self,
        command: &'static str,
        contenders: String,
        rounds: u32,
    ) -> (Measured<Compared, Setting>, Result<()>) {
        let findings = self.rows.iter().filter_map(Compared::finding).collect();
        let setting = Setting { contenders, rounds, cores: cores() };
        let measured = Measured::new(command, setting, self.rows).with(findings);
        let failed = self.failures.len();
        let end = || {
            ensure!(failed == 0, "{failed} measurement(s) failed: {}", self.failures.join("; "));
            Ok(())
        };
        (measured.watched(&self.watch), end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_for_the_median_of_the_rounds() {
        let latency = Compared::new("latency", What::Latency, "a").wanted(Bound::AtMost(1.0));
        // The machine is ten times as slow in the second round, and a measurement of the last one failed.
        let latency = latency.with(&[9.0, 80.0, 30.0, f64::NAN], &[10.0, 100.0, 10.0, 10.0]);
        assert_eq!((latency.ratio, latency.ratios.len()), (0.9, 3));
        let finding = latency.finding().map(|finding| finding.to_string());
        assert_eq!(finding.as_deref(), Some("latency beside a: 0.90 (wanted at most 1: met)"));
        let rate = Compared::new("rate", What::Rate, "a").with(&[8.0, 8.0, 8.0], &[1.0, 4.0, 4.0]);
        assert!(rate.finding().is_none());
        let finding = rate.wanted(Bound::AtLeast(4.0)).finding().map(|finding| finding.to_string());
        assert!(finding.is_some_and(|text| text.ends_with("2.00 (wanted at least 4: missed)")));
    }

    #[test]
    fn times_that_nobody_can_measure_are_refused() {
        assert_eq!(seconds("0.25"), Ok(0.25));
        for bad in ["0", "-1", "NaN", "inf", "11", "1 s", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn contenders_take_turns_in_being_the_first() {
        let order = std::cell::RefCell::new(String::new());
        let say = |who: char| {
            order.borrow_mut().push(who);
            Ok(if who == 'o' { 8e3 } else { 1e4 })
        };
        let row =
            Compared::new("8 B", What::Latency, "UCX").measured(3, |_| say('o'), |_| say('t'));
        assert_eq!(order.into_inner(), "ottoot");
        let (document, end) = {
            let mut report = Report::begin();
            report.add(row.map(Some));
            report.add(Err::<Option<Compared>, _>(anyhow::anyhow!("no UCX")));
            report.end("bench-test", "UCX and ours".into(), 3)
        };
        assert!(
            end.is_err_and(|error| error.to_string().ends_with("1 measurement(s) failed: no UCX"))
        );
        let json = document.json().unwrap();
        for part in ["\"unit\": \"ns\"", "\"ratio\": 0.8", "\"rounds\": 3", "\"beside\": \"UCX\""] {
            assert!(json.contains(part), "{part} is not in {json}");
        }
    }
}
