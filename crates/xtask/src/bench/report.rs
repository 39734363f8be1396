//! Results, as tables and as JSON.

use super::{Figure, What};
use crate::figures::{Load, Within, median, spread, table};
use anyhow::Result;
use serde_json::{Value, json};
use warpverbs_bench::units;

/// One figure of each contender, round by round.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    what: What,
    wanted: Option<Within>,
    /// The baseline of the comparison.
    beside: &'static str,
    pub(crate) ours: Vec<f64>,
    pub(crate) theirs: Vec<f64>,
}

/// The rate on so many queue pairs, round by round.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) qps: u64,
    pub(crate) bytes: u64,
    pub(crate) rates: Vec<f64>,
}

/// Everything.
pub(crate) struct Report {
    ucx: String,
    rounds: u32,
    seconds: f64,
    cores: usize,
    load: Load,
    pub(crate) rows: Vec<Row>,
    pub(crate) loss: Option<Row>,
    pub(crate) curve: Vec<Curve>,
    /// Failed measurements, and why they failed.
    pub(crate) failures: Vec<String>,
}

impl Row {
    pub(crate) fn new(figure: &Figure) -> Self {
        let (what, size, op) = (figure.what, units::bytes(figure.bytes), figure.op());
        let name = match what {
            What::Latency => format!("{size} {op} latency, p50"),
            What::Rate => format!("{size} {op} rate"),
            What::Bandwidth => format!("{size} {op} bandwidth"),
        };
        let (ours, theirs, beside) = (Vec::new(), Vec::new(), figure.test());
        Self { name, what, wanted: figure.wanted, beside, ours, theirs }
    }

    /// Ours with loss beside ours without.
    pub(crate) fn of_loss() -> Self {
        Self {
            name: "1 MiB write bandwidth, 1 % lost".into(),
            what: What::Bandwidth,
            wanted: Some(Within::AtLeast(0.25)),
            beside: "without loss",
            ours: Vec::new(),
            theirs: Vec::new(),
        }
    }

    /// Of each round.
    fn ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect()
    }

    fn is_met(&self) -> Option<bool> {
        self.wanted.map(|wanted| wanted.is_met(median(&self.ratios())))
    }

    fn show(&self, value: f64) -> String {
        match self.what {
            What::Latency => units::nanos(value),
            What::Rate => units::per_second(value),
            What::Bandwidth => units::rate(value),
        }
    }

    fn cells(&self) -> Vec<String> {
        let ratios = self.ratios();
        let verdict = self.wanted.map(|wanted| wanted.verdict(median(&ratios)));
        vec![
            self.name.clone(),
            self.show(median(&self.ours)),
            format!("{} ({})", self.show(median(&self.theirs)), self.beside),
            format!("{:.2}", median(&ratios)),
            spread(&ratios),
            self.wanted.map(|wanted| wanted.to_string()).unwrap_or_default(),
            verdict.unwrap_or_default().to_owned(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "unit": match self.what {
                What::Latency => "ns",
                What::Rate => "messages/s",
                What::Bandwidth => "bytes/s",
            },
            "ours": self.ours,
            "beside": self.beside,
            "theirs": self.theirs,
            "ratios": self.ratios(),
            "ratio": median(&self.ratios()),
            "wanted": self.wanted.map(|wanted| wanted.to_string()),
            "met": self.is_met(),
        })
    }
}

impl Report {
    pub(crate) fn new(ucx: String, rounds: u32, seconds: f64) -> Self {
        Self {
            ucx,
            rounds,
            seconds,
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            load: Load::now(),
            rows: Vec::new(),
            loss: None,
            curve: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// The result of a measurement; a failure is kept.
    pub(crate) fn note<T>(&mut self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| self.failures.push(format!("{error:#}"))).ok()
    }

    pub(crate) fn print(&self, json: bool) -> Result<()> {
        if json {
            println!("{}", serde_json::to_string_pretty(&self.json())?);
        } else {
            println!("{}", self.text());
        }
        Ok(())
    }

    fn text(&self) -> String {
        let Self { ucx, rounds, seconds, cores, load, .. } = self;
        let mut lines = vec![format!(
            "UCX {ucx} over TCP and warpverbs over RoCEv2, both on 127.0.0.1: two processes, one \
             thread each that polls; {rounds} rounds of about {seconds} s, medians; {cores} cores"
        )];
        lines.extend(load.warning());
        if !self.rows.is_empty() {
            let heads = ["figure", "ours", "UCX", "ratio", "of rounds", "wanted", ""];
            lines.push(table(&heads, self.rows.iter().map(Row::cells)));
        }
        if let Some(loss) = &self.loss {
            let heads = ["figure", "ours", "beside", "ratio", "of rounds", "wanted", ""];
            lines.push(table(&heads, [loss.cells()]));
        }
        if !self.curve.is_empty() {
            let heads = ["queue pairs", "size", "messages", "bandwidth", "of one queue pair's"];
            lines.push(table(&heads, self.curve.iter().map(|point| self.curve_cells(point))));
        }
        lines.join("\n")
    }

    /// Over the rate on the fewest queue pairs, same size.
    fn relative(&self, point: &Curve) -> f64 {
        let first = self.curve.iter().find(|other| other.bytes == point.bytes).unwrap_or(point);
        median(&point.rates) / median(&first.rates)
    }

    fn curve_cells(&self, point: &Curve) -> Vec<String> {
        let rate = median(&point.rates);
        vec![
            point.qps.to_string(),
            units::bytes(point.bytes),
            units::per_second(rate),
            units::rate(rate * point.bytes as f64),
            format!("{:.2}", self.relative(point)),
        ]
    }

    fn json(&self) -> Value {
        let point = |point: &Curve| {
            json!({
                "qps": point.qps,
                "bytes": point.bytes,
                "messages_per_s": point.rates,
                "relative": self.relative(point),
            })
        };
        json!({
            "schema": 1,
            "command": "bench-peers",
            "ucx": self.ucx,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "cores": self.cores,
            "load_before": self.load.0,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "loss": self.loss.as_ref().map(Row::json),
            "failures": self.failures,
            "queue_pairs": self.curve.iter().map(point).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::FIGURES;
    use super::*;

    fn row(figure: usize, ours: &[f64], theirs: &[f64]) -> Row {
        let (ours, theirs) = (ours.to_vec(), theirs.to_vec());
        Row { ours, theirs, ..Row::new(&FIGURES[figure]) }
    }

    #[test]
    fn a_bound_is_for_the_median_of_the_rounds() {
        let latency = row(0, &[8.0, 9.0, 30.0], &[10.0, 10.0, 10.0]);
        assert_eq!((median(&latency.ratios()), latency.is_met()), (0.9, Some(true)));
        let rate = row(1, &[8.0, 8.0, 8.0], &[1.0, 4.0, 4.0]);
        assert_eq!((median(&rate.ratios()), rate.is_met()), (2.0, Some(false)));
        assert!(rate.cells().contains(&"missed".to_owned()), "{:?}", rate.cells());
        assert_eq!(row(5, &[1.0], &[1.0]).is_met(), None);
    }

    #[test]
    fn both_forms_show_everything() {
        let mut report = Report::new("1.13".into(), 1, 0.5);
        report.rows.push(row(0, &[8e3], &[1e4]));
        let loss = Row { ours: vec![1e8], theirs: vec![2e8], ..Row::of_loss() };
        report.loss = Some(loss);
        report.curve = [(1, 4.0), (16, 3.0)]
            .map(|(qps, rate)| Curve { qps, bytes: 8, rates: vec![rate] })
            .into();
        let (text, json) = (report.text(), report.json());
        for word in ["8 µs", "10 µs (ucp_put_lat)", "0.80", "0.50", "≥ 0.25", "0.75"] {
            assert!(text.contains(word), "{word} is not in {text}");
        }
        assert_eq!(json["queue_pairs"][1]["relative"], 0.75);
        assert_eq!((&json["loss"]["met"], &json["rows"][0]["met"]), (&true.into(), &true.into()));
    }
}
