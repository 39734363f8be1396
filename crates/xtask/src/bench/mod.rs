//! `cargo xtask bench-peers`: UCX over TCP and this project over RoCEv2, taking turns on this
//! machine.

pub(crate) mod ours;
mod report;

pub(crate) use ours::build;

use crate::figures::Within;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use report::{Curve, Report, Row};
use std::path::PathBuf;
use warpverbs_bench::ucx;

/// How long and how often.
#[derive(Args)]
pub(crate) struct Turns {
    /// Turns of each contender; medians count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// Seconds of each measurement, about
    #[arg(long, default_value_t = 0.5)]
    pub(crate) seconds: f64,
}

/// Options of `bench-peers`.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    turns: Turns,
    /// Leaves out loss and numbers of queue pairs.
    #[arg(long)]
    targets_only: bool,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// The quantity that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Median of half a round trip.
    Latency,
    /// Messages a second.
    Rate,
    /// Bytes a second.
    Bandwidth,
}

/// Which operation, and which of UCX's is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// WRITE, and UCX's put: the target's program takes no part.
    Write,
    /// SEND, and UCX's tagged message: the receiver takes it.
    Send,
}

/// One figure, and its wanted ratio to UCX's.
struct Figure {
    kind: Kind,
    what: What,
    bytes: u64,
    /// Bound of ours over UCX's, if there is one.
    wanted: Option<Within>,
    /// Messages that UCX moves in half a second, about.
    iterations: u64,
}

/// Operations under way, at most: UCX's tests know no bound.
const DEPTH: u32 = 4096;

const fn write(what: What, bytes: u64, wanted: Within, iterations: u64) -> Figure {
    Figure { kind: Kind::Write, what, bytes, wanted: Some(wanted), iterations }
}

const fn send(what: What, bytes: u64, iterations: u64) -> Figure {
    Figure { kind: Kind::Send, what, bytes, wanted: None, iterations }
}

const FIGURES: [Figure; 8] = [
    write(What::Latency, 8, Within::AtMost(1.0), 30_000),
    write(What::Rate, 8, Within::AtLeast(4.0), 200_000),
    write(What::Bandwidth, 4 << 10, Within::AtLeast(2.0), 60_000),
    write(What::Bandwidth, 64 << 10, Within::AtLeast(2.0), 8_000),
    write(What::Bandwidth, 1 << 20, Within::AtLeast(1.5), 500),
    send(What::Latency, 8, 60_000),
    send(What::Rate, 8, 200_000),
    send(What::Bandwidth, 64 << 10, 8_000),
];

impl Figure {
    /// UCX's test of the same.
    fn test(&self) -> &'static str {
        match (self.kind, self.what) {
            (Kind::Write, What::Latency) => "ucp_put_lat",
            (Kind::Write, _) => "ucp_put_bw",
            (Kind::Send, What::Latency) => "tag_lat",
            (Kind::Send, _) => "tag_bw",
        }
    }

    fn op(&self) -> &'static str {
        match self.kind {
            Kind::Write => "write",
            Kind::Send => "send",
        }
    }

    fn ours(&self, program: &PathBuf, seconds: f64) -> Result<f64> {
        let Self { what, bytes, .. } = self;
        let bw = format!("--bw --tx-depth {DEPTH}");
        let (kind, pointer) = match what {
            What::Latency => ("--lat", "/latency/p50_ns"),
            What::Rate => (bw.as_str(), "/messages_per_s"),
            What::Bandwidth => (bw.as_str(), "/bytes_per_s"),
        };
        let line = format!("{} local {kind} -b {bytes} -e {bytes} -D {seconds}", self.op());
        ours::number(&ours::run(program, &line)?[0], pointer)
    }

    fn theirs(&self, seconds: f64) -> Result<f64> {
        let iterations = (self.iterations as f64 * seconds / 0.5).max(20.0) as u64;
        let figures = ucx::run(self.test(), self.bytes, iterations, iterations.min(200))?;
        Ok(match self.what {
            What::Latency => figures.p50_ns,
            What::Rate => figures.messages_per_s,
            What::Bandwidth => figures.bytes_per_s,
        })
    }
}

/// Measures and prints; a missed bound is a finding, not a failure.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    let ucx = ucx::version()?;
    let program = ours::build()?;
    let mut report = Report::new(ucx, bench.turns.rounds, bench.turns.seconds);
    measure(bench, &program, &mut report);
    report.print(bench.json)?;
    match report.failures.len() {
        0 => Ok(()),
        failed => bail!("{failed} measurement(s) failed: {}", report.failures.join("; ")),
    }
}

/// One that fails does not keep the others from being measured.
fn measure(bench: &Bench, program: &PathBuf, report: &mut Report) {
    for figure in &FIGURES {
        let row = compare(figure, bench, program);
        let row = report.note(row.with_context(|| figure.test().to_owned()));
        report.rows.extend(row);
    }
    if !bench.targets_only {
        report.loss = report.note(loss(bench, program).context("loss"));
        report.curve = report.note(curve(bench, program).context("curve")).unwrap_or_default();
    }
}

/// Both in every round, in turning order.
fn compare(figure: &Figure, bench: &Bench, program: &PathBuf) -> Result<Row> {
    let mut row = Row::new(figure);
    for round in 0..bench.turns.rounds {
        for ours in [round % 2 == 0, round % 2 != 0] {
            match ours {
                true => row.ours.push(figure.ours(program, bench.turns.seconds)?),
                false => row.theirs.push(figure.theirs(bench.turns.seconds)?),
            }
        }
        eprintln!("{}: round {} of {}", row.name, round + 1, bench.turns.rounds);
    }
    Ok(row)
}

/// 1 MiB with one datagram in a hundred lost by either end, beside the same without.
fn loss(bench: &Bench, program: &PathBuf) -> Result<Row> {
    let mut row = Row::of_loss();
    for round in 0..bench.turns.rounds {
        let seed = round + 1;
        for lost in [false, true] {
            let flags = if lost { format!("--loss 1% --seed {seed}") } else { String::new() };
            let line = format!("write local --bw -b 1M -e 1M -D {} {flags}", bench.turns.seconds);
            let rate = ours::number(&ours::run(program, &line)?[0], "/bytes_per_s")?;
            if lost { row.ours.push(rate) } else { row.theirs.push(rate) }
        }
    }
    Ok(row)
}

/// Rates on 1, 16 and 256 queue pairs of one NIC.
fn curve(bench: &Bench, program: &PathBuf) -> Result<Vec<Curve>> {
    let mut curve: Vec<Curve> = Vec::new();
    for _ in 0..bench.turns.rounds {
        let line =
            format!("write local --bw -b 8 -e 4K -f 512 -q 1,16,256 -D {}", bench.turns.seconds);
        for row in ours::run(program, &line)? {
            let (qps, bytes) = (ours::number(&row, "/qps")?, ours::number(&row, "/bytes")?);
            let rate = ours::number(&row, "/messages_per_s")?;
            let (qps, bytes) = (qps as u64, bytes as u64);
            match curve.iter_mut().find(|point| (point.qps, point.bytes) == (qps, bytes)) {
                Some(point) => point.rates.push(rate),
                None => curve.push(Curve { qps, bytes, rates: vec![rate] }),
            }
        }
    }
    Ok(curve)
}
