//! How fast WRITEs are between two guests: Debian's `ib_write_bw`, our transport over libibverbs
//! posted to by the host and by a kernel, and our own NIC. Same guests, same sizes, by turns.

mod report;

use super::bed::{Bed, FIRST, Nic, SECOND};
use super::build;
use super::options::Options;
use super::perftest::PORT;
use crate::bench_verbs::column;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use report::Report;
use std::path::PathBuf;
use std::time::Duration;

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

    /// Messages a second.
    fn run(self, bed: &mut Bed, (bytes, count): (u64, u32)) -> Result<f64> {
        match self {
            Self::Perftest => perftest(bed, bytes, count),
            Self::Ours { nic, kernel } => ours(bed, nic, kernel, bytes, count),
        }
    }
}

pub(crate) fn run(options: &Options, rounds: &Rounds) -> Result<()> {
    let mut report = Report::new(rounds.rounds);
    let mut bed =
        Bed::boot(options, &[build::fast_program("warpverbs-bench", "warpverbs-interop")?])?;
    bed.have([Nic::Rxe; 2])?;
    measure(&mut bed, true, rounds.rounds, &mut report);
    if !rounds.targets_only {
        bed.have([Nic::Soft; 2])?;
        measure(&mut bed, false, rounds.rounds, &mut report);
    }
    println!("{}", report.text());
    if let Some(file) = &rounds.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        std::fs::write(file, text + "\n").with_context(|| file.display().to_string())?;
    }
    match report.failures.len() {
        0 => Ok(()),
        failed => bail!("{failed} measurement(s) failed: {}", report.failures.join("; ")),
    }
}

/// All contenders with rxe, or all without. Those of one size follow each other at once, and take
/// turns in being the first, so that what else the machine does meets all of them. One that fails
/// does not keep the others from being measured.
fn measure(bed: &mut Bed, rxe: bool, rounds: u32, report: &mut Report) {
    let mut turn: Vec<_> = (0..CONTENDERS.len()).collect();
    turn.retain(|&at| CONTENDERS[at].1.needs_rxe() == rxe);
    for round in 1..=rounds {
        eprintln!("{}: round {round} of {rounds}", if rxe { "rxe" } else { "our NIC" });
        for (size, &of) in SIZES.iter().enumerate() {
            for &at in &turn {
                let (name, contender) = CONTENDERS[at];
                let rate = contender.insist(bed, of).unwrap_or_else(|error| {
                    report.failures.push(format!("{name}, {} bytes: {error:#}", of.0));
                    f64::NAN
                });
                report.rates[at][size].push(rate);
            }
            turn.rotate_left(1);
        }
    }
}

fn perftest(bed: &mut Bed, bytes: u64, count: u32) -> Result<f64> {
    let line = format!("ib_write_bw -d rxe0 -x 1 -F -s {bytes} -n {count}");
    let [_, text] = bed.pair_on(PORT, &line, &format!("{line} {FIRST}"), LIMIT)?;
    // Bytes, iterations, MB/s at most, MB/s, million messages a second.
    column(&text, bytes, 4).map(|rate| rate * 1e6)
}

/// As many under way as perftest has.
fn ours(bed: &mut Bed, nic: &str, kernel: bool, bytes: u64, count: u32) -> Result<f64> {
    let kernel = if kernel { "--kernel" } else { "" };
    let serve = format!("warpverbs-interop --nic {nic} --bind {FIRST} rate-serve");
    let ask = format!(
        "warpverbs-interop --nic {nic} --bind {SECOND} rate {FIRST} --sizes {bytes}x{count} \
         --depth 128 {kernel}"
    );
    let [_, text] = bed.pair(&serve, &ask, LIMIT)?;
    // Bytes, MB/s, million messages a second.
    column(&text, bytes, 2).map(|rate| rate * 1e6)
}
