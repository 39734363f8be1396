//! The measurements, as tables and as JSON. The verdict is about the median of the ratios of each round:
//! the two were measured one after the other.

use super::{CONTENDERS, SIZES};
use crate::figures::{Load, Within, median, spread, table};
use serde_json::{Value, json};
use warpverbs_bench::units;

/// `ib_write_bw`, ours by the host, ours by a kernel: in [`CONTENDERS`].
const PERFTEST: usize = 0;
const HOST: usize = 1;
const KERNEL: usize = 2;

/// A ratio and its wanted value.
struct Finding {
    /// Of [`CONTENDERS`].
    ours: usize,
    /// Of the same.
    beside: usize,
    /// Of [`SIZES`].
    size: usize,
    wanted: Within,
}

const fn finding(ours: usize, beside: usize, size: usize, least: f64) -> Finding {
    Finding { ours, beside, size, wanted: Within::AtLeast(least) }
}

const FINDINGS: [Finding; 4] = [
    finding(HOST, PERFTEST, 0, 0.95),
    finding(HOST, PERFTEST, 1, 0.95),
    finding(HOST, PERFTEST, 2, 0.95),
    finding(KERNEL, HOST, 1, 0.85),
];

/// All measurements.
pub(super) struct Report {
    rounds: u32,
    load: Load,
    /// Measurements that failed, and why.
    pub(super) failures: Vec<String>,
    /// Messages a second of every contender, by size, round by round; not a number where there is
    /// none.
    pub(super) rates: [[Vec<f64>; SIZES.len()]; CONTENDERS.len()],
}

impl Report {
    pub(super) fn new(rounds: u32) -> Self {
        let rates = CONTENDERS.map(|_| SIZES.map(|_| Vec::new()));
        Self { rounds, load: Load::now(), failures: Vec::new(), rates }
    }

    /// Of each round in which there are both.
    fn ratios(&self, ours: usize, beside: usize, size: usize) -> Vec<f64> {
        let (ours, beside) = (&self.rates[ours][size], &self.rates[beside][size]);
        measured(ours.iter().zip(beside).map(|(ours, beside)| ours / beside))
    }

    pub(super) fn text(&self) -> String {
        let mut lines =
            vec![format!("WRITEs between two guests, medians of {} rounds", self.rounds)];
        lines.extend(self.load.warning());
        lines.push(self.rates());
        let heads = ["ratio", "beside", "size", "median", "of rounds", "wanted", ""];
        lines.push(table(&heads, FINDINGS.iter().map(|finding| self.cells(finding))));
        lines.join("\n")
    }

    fn rates(&self) -> String {
        let mut heads = vec!["who".to_owned()];
        heads.extend(
            SIZES.iter().flat_map(|&(bytes, _)| {
                [units::bytes(bytes), String::new(), "of ib_write_bw".into()]
            }),
        );
        let heads: Vec<_> = heads.iter().map(String::as_str).collect();
        let measured = (0..CONTENDERS.len()).filter(|&at| !self.rates[at][0].is_empty());
        table(&heads, measured.map(|at| self.rates_of(at)))
    }

    fn rates_of(&self, at: usize) -> Vec<String> {
        let mut cells = vec![CONTENDERS[at].0.to_owned()];
        for (size, &(bytes, _)) in SIZES.iter().enumerate() {
            let rate = median(&measured(self.rates[at][size].iter().copied()));
            cells.extend([units::per_second(rate), units::rate(rate * bytes as f64)]);
            cells.push(format!("{:.2}", median(&self.ratios(at, PERFTEST, size))));
        }
        cells
    }

    fn cells(&self, finding: &Finding) -> Vec<String> {
        let Finding { ours, beside, size, wanted } = finding;
        let ratios = self.ratios(*ours, *beside, *size);
        vec![
            CONTENDERS[*ours].0.to_owned(),
            CONTENDERS[*beside].0.to_owned(),
            units::bytes(SIZES[*size].0),
            format!("{:.2}", median(&ratios)),
            spread(&ratios),
            wanted.to_string(),
            wanted.verdict(median(&ratios)).to_owned(),
        ]
    }

    pub(super) fn json(&self) -> Value {
        let rates = CONTENDERS.iter().zip(&self.rates).map(|((name, _), rates)| {
            let sizes = SIZES.iter().zip(rates).map(|(&(bytes, messages), rates)| {
                json!({ "bytes": bytes, "messages": messages, "messages_per_s": rates })
            });
            json!({ "name": name, "sizes": sizes.collect::<Vec<_>>() })
        });
        let findings = FINDINGS.iter().map(|Finding { ours, beside, size, wanted }| {
            let ratios = self.ratios(*ours, *beside, *size);
            json!({
                "ours": CONTENDERS[*ours].0,
                "beside": CONTENDERS[*beside].0,
                "bytes": SIZES[*size].0,
                "ratios": ratios,
                "ratio": median(&ratios),
                "wanted": wanted.to_string(),
                "met": wanted.is_met(median(&ratios)),
            })
        });
        json!({
            "rounds": self.rounds,
            "load_before": self.load.0,
            "rates": rates.collect::<Vec<_>>(),
            "findings": findings.collect::<Vec<_>>(),
            "failures": self.failures,
        })
    }
}

fn measured(values: impl Iterator<Item = f64>) -> Vec<f64> {
    values.filter(|value| value.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_rounds_not_of_medians() {
        let mut report = Report::new(3);
        for (at, rates) in report.rates.iter_mut().take(3).enumerate() {
            // The machine is ten times as slow in the second round.
            let factor = [1.0, 0.9, 0.72][at];
            rates
                .iter_mut()
                .for_each(|rates| rates.extend([100.0, 10.0, 120.0].map(|rate| rate * factor)));
        }
        let text = report.text();
        let rows: Vec<_> = text.lines().filter(|line| line.contains("≥")).collect();
        assert_eq!(rows.len(), FINDINGS.len(), "{text}");
        let (misses, beside_host) = rows.split_at(3);
        assert!(misses.iter().all(|row| row.contains("0.90") && row.contains("missed")), "{text}");
        // 0.72 / 0.9
        assert!(beside_host[0].contains("0.80 to 0.80"), "{text}");
        assert!(!text.contains("our NIC"), "a rate that is missing is not shown: {text}");
        report.rates[HOST][0][1] = f64::NAN;
        assert_eq!(report.ratios(HOST, PERFTEST, 0).len(), 2, "a round without it is left out");
        let json = report.json();
        assert_eq!(json["findings"][3]["met"], false);
        assert_eq!(json["rates"][0]["sizes"][1]["messages_per_s"][1], 10.0);
    }
}
