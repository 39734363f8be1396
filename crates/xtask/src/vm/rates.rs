//! How fast WRITEs are between two guests: Debian's `ib_write_bw`, our transport over libibverbs
//! posted to by the host and by a kernel, and our own NIC. Same guests, same sizes, by turns.

use super::bed::{Bed, FIRST, Nic};
use super::build;
use super::options::Options;
use super::perftest::PORT;
use crate::bench::compared::{Compared, Report, What};
use crate::bench::ours;
use crate::bench_verbs::messages_per_s;
use anyhow::{Context as _, Result};
use clap::Args;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use warpverbs_bench::output::Bound;
use warpverbs_bench::units;

/// For one measurement on an emulated machine, with room.
const LIMIT: Duration = Duration::from_secs(300);
/// Bytes of a message, and how many are timed: a second or two on an emulated machine.
const SIZES: [(u64, u32); 3] = [(8, 6000), (65536, 600), (1 << 20, 40)];

/// Times that a measurement is tried in one round.
const ATTEMPTS: u32 = 5;

/// How often.
#[derive(Args)]
pub(crate) struct Rounds {
    /// Turns of each contender; medians count.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Leaves out our own NIC, which no bound is about.
    #[arg(long)]
    targets_only: bool,
    /// A file that gets everything as JSON, round by round.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The program and NIC that write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    /// `ib_write_bw` over rxe.
    Perftest,
    /// Ours, through `nic`.
    Ours { nic: &'static str, kernel: bool },
}

/// The first three use rxe, which takes the UDP port from the others.
const CONTENDERS: [(&str, Contender); 5] = [
    ("ib_write_bw", Contender::Perftest),
    ("rxe, host posts", Contender::Ours { nic: "rxe0", kernel: false }),
    ("rxe, kernel posts", Contender::Ours { nic: "rxe0", kernel: true }),
    ("our NIC, host posts", Contender::Ours { nic: "soft", kernel: false }),
    ("our NIC, kernel posts", Contender::Ours { nic: "soft", kernel: true }),
];

/// `ib_write_bw`, ours by the host, ours by a kernel: in [`CONTENDERS`].
const PERFTEST: usize = 0;
const HOST: usize = 1;
const KERNEL: usize = 2;

/// Messages a second of every contender, by size, round by round; not a number where there is none.
type Rates = [[Vec<f64>; SIZES.len()]; CONTENDERS.len()];

impl Contender {
    fn needs_rxe(self) -> bool {
        !matches!(self, Self::Ours { nic: "soft", .. })
    }

    /// As [`Self::run`]. Emulated guests lose packets while the host is busy, and rxe then ends a
    /// connection now and then, whoever posts: a failure is printed, and tried again.
    fn insist(self, bed: &mut Bed, size: (u64, u32)) -> Result<f64> {
        for _ in 1..ATTEMPTS {
            match self.run(bed, size) {
                Ok(rate) => return Ok(rate),
                Err(error) => eprintln!("tried again: {error:#}"),
            }
        }
        self.run(bed, size)
    }

    fn run(self, bed: &mut Bed, (bytes, count): (u64, u32)) -> Result<f64> {
        match self {
            Self::Perftest => perftest(bed, bytes, count),
            Self::Ours { nic, kernel } => perf(bed, nic, kernel, bytes, count),
        }
    }
}

pub(crate) fn run(options: &Options, rounds: &Rounds) -> Result<()> {
    let (mut report, mut rates) = (Report::begin(), Rates::default());
    // A file that cannot be written is known before everything is measured.
    let file = rounds.json.as_deref();
    let named = || file.unwrap_or(Path::new("")).display().to_string();
    let mut json = file.map(File::create).transpose().with_context(named)?;
    let mut bed = Bed::boot(options, &[build::fast_program("warpverbs-cli", "warpverbs")?])?;
    let count = rounds.rounds;
    bed.have([Nic::Rxe; 2])?;
    measure(&mut bed, true, count, (&mut rates, &mut report.failures));
    if !rounds.targets_only {
        bed.have([Nic::Soft; 2])?;
        measure(&mut bed, false, count, (&mut rates, &mut report.failures));
    }
    // The CPU time of guests is known when they have ended.
    drop(bed);
    report.rows = compared(&rates);
    let (measured, end) = report.end("vm rates", "WRITEs between two guests".into(), count);
    let text = measured.json()? + "\n";
    let written = json.as_mut().map_or(Ok(()), |file| file.write_all(text.as_bytes()));
    measured.print_up_to(end, false).and(written.with_context(named))
}

/// All contenders with rxe, or all without. Those of one size follow each other at once, and take
/// turns in being the first, so that what else the machine does meets all of them. One that fails
/// does not keep the others from being measured.
fn measure(
    bed: &mut Bed,
    rxe: bool,
    rounds: u32,
    (rates, failures): (&mut Rates, &mut Vec<String>),
) {
    let mut turn: Vec<_> = (0..CONTENDERS.len()).collect();
    turn.retain(|&at| CONTENDERS[at].1.needs_rxe() == rxe);
    for round in 1..=rounds {
        eprintln!("{}: round {round} of {rounds}", if rxe { "rxe" } else { "our NIC" });
        for (size, &of) in SIZES.iter().enumerate() {
            for &at in &turn {
                let (name, contender) = CONTENDERS[at];
                let rate = contender.insist(bed, of).unwrap_or_else(|error| {
                    failures.push(format!("{name}, {} bytes: {error:#}", of.0));
                    f64::NAN
                });
                rates[at][size].push(rate);
            }
            turn.rotate_left(1);
        }
    }
}

/// Every contender that was measured beside `ib_write_bw`, and a kernel beside the host.
fn compared(rates: &Rates) -> Vec<Compared> {
    let row = |ours: usize, beside: usize, size: usize, least: Option<f64>| {
        let name = format!("{}, {}", CONTENDERS[ours].0, units::bytes(SIZES[size].0));
        let row = Compared::new(name, What::Rate, CONTENDERS[beside].0);
        row.wanted(least.map(Bound::AtLeast)).with(&rates[ours][size], &rates[beside][size])
    };
    let measured = (HOST..CONTENDERS.len()).filter(|&at| !rates[at][0].is_empty());
    let sizes = |at| (0..SIZES.len()).map(move |size| (at, size));
    let wanted = |at| (at == HOST).then_some(0.95);
    let mut rows: Vec<_> =
        measured.flat_map(sizes).map(|(at, size)| row(at, PERFTEST, size, wanted(at))).collect();
    rows.push(row(KERNEL, HOST, 1, Some(0.85)));
    rows
}

fn perftest(bed: &mut Bed, bytes: u64, count: u32) -> Result<f64> {
    let line = format!("ib_write_bw -d rxe0 -x 1 -F -s {bytes} -n {count}");
    let [_, text] = bed.pair([&line, &format!("{line} {FIRST}")], Some(PORT), LIMIT)?;
    messages_per_s(&text, bytes)
}

/// As many under way as perftest has.
fn perf(bed: &mut Bed, nic: &str, kernel: bool, bytes: u64, count: u32) -> Result<f64> {
    let gpu = if kernel { "--gpu simt" } else { "" };
    let (warmup, limit) = ((count / 10).max(1), LIMIT.as_secs());
    let serve = format!("warpverbs perf write server --bind {FIRST} -p {PORT} --nic {nic}");
    let ask = format!(
        "warpverbs perf write client {FIRST} -p {PORT} --nic {nic} --bw -b {bytes} -e {bytes} -n {count} \
         -w {warmup} --tx-depth 128 --row-limit {limit} {gpu} --json"
    );
    let [_, text] = bed.pair([&serve, &ask], Some(PORT), LIMIT)?;
    ours::number(&ours::rows(&text)?[0], "/messages_per_s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_that_was_measured_is_beside_perftest() {
        let mut rates = Rates::default();
        for (at, rates) in rates.iter_mut().take(3).enumerate() {
            let factor = [1.0, 0.9, 0.72][at];
            rates
                .iter_mut()
                .for_each(|rates| rates.extend([100.0, 10.0].map(|rate| rate * factor)));
        }
        let mut report = Report::begin();
        report.rows = compared(&rates);
        let (measured, _) = report.end("vm rates", "a test".into(), 2);
        let json: serde_json::Value = serde_json::from_str(&measured.json().unwrap()).unwrap();
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(7), "our own NIC was not measured");
        let findings = json["findings"].as_array().unwrap();
        // 0.9, and 0.72 / 0.9
        let ratios: Vec<_> = findings.iter().filter_map(|found| found["value"].as_f64()).collect();
        assert_eq!(
            ratios.iter().map(|ratio| (ratio * 100.0).round()).collect::<Vec<_>>(),
            [90.0, 90.0, 90.0, 80.0]
        );
        assert!(findings.iter().all(|found| found["met"] == false), "{json}");
    }
}
