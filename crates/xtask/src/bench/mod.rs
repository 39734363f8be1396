//! `cargo xtask bench-peers`: UCX over TCP and this project over RoCEv2, taking turns on this
//! machine.

pub(crate) mod compared;
pub(crate) mod ours;

use anyhow::{Context as _, Result};
use clap::Args;
use compared::{Compared, Report, Turns, What};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use warpverbs_bench::output::Bound;
use warpverbs_bench::{ucx, units};

/// Options of `bench-peers`.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    turns: Turns,
    /// Leaves out loss and numbers of queue pairs.
    #[arg(long)]
    targets_only: bool,
    /// A built `warpverbs`; otherwise it is built
    #[arg(long)]
    program: Option<PathBuf>,
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
    wanted: Option<Bound>,
    /// Messages that UCX moves in half a second, about.
    iterations: u64,
}

/// Operations under way, at most: UCX's tests know no bound.
const DEPTH: u32 = 4096;

const fn write(what: What, bytes: u64, wanted: Bound, iterations: u64) -> Figure {
    Figure { kind: Kind::Write, what, bytes, wanted: Some(wanted), iterations }
}

const fn send(what: What, bytes: u64, iterations: u64) -> Figure {
    Figure { kind: Kind::Send, what, bytes, wanted: None, iterations }
}

const FIGURES: [Figure; 8] = [
    write(What::Latency, 8, Bound::AtMost(1.0), 30_000),
    write(What::Rate, 8, Bound::AtLeast(4.0), 200_000),
    write(What::Bandwidth, 4 << 10, Bound::AtLeast(2.0), 60_000),
    write(What::Bandwidth, 64 << 10, Bound::AtLeast(2.0), 8_000),
    write(What::Bandwidth, 1 << 20, Bound::AtLeast(1.5), 500),
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

    fn name(&self) -> String {
        let (size, op) = (units::bytes(self.bytes), self.op());
        match self.what {
            What::Latency => format!("{size} {op} latency, p50"),
            What::Rate => format!("{size} {op} rate"),
            What::Bandwidth => format!("{size} {op} bandwidth"),
        }
    }

    fn ours(&self, program: &Path, seconds: f64) -> Result<f64> {
        let line = match self.what {
            What::Latency => format!("{} local --lat", self.op()),
            _ => format!("{} local --bw --tx-depth {DEPTH}", self.op()),
        };
        ours::figure(program, &line, (self.what, self.bytes, seconds))
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
    let (ucx, program) = (ucx::version()?, ours::program(bench.program.as_deref())?);
    let Turns { rounds, seconds, json } = bench.turns;
    let mut report = Report::begin();
    for figure in &FIGURES {
        let row = Compared::new(figure.name(), figure.what, figure.test()).wanted(figure.wanted);
        let ours = |_| figure.ours(&program, seconds);
        let row = row.measured(rounds, ours, |_| figure.theirs(seconds));
        report.add(row.map(Some).with_context(|| figure.test()));
    }
    if !bench.targets_only {
        report.add(loss(rounds, seconds, &program).map(Some).context("loss"));
        report.add(curve(rounds, seconds, &program).context("queue pairs"));
    }
    let contenders = format!(
        "UCX {ucx} over TCP and warpverbs over RoCEv2, both on 127.0.0.1: two processes, one thread \
         each that polls; about {seconds} s each"
    );
    let (measured, end) = report.end("bench-peers", contenders, rounds);
    measured.print_up_to(end, json)
}

/// 1 MiB with one datagram in a hundred lost by either end, beside the same without.
fn loss(rounds: u32, seconds: f64, program: &Path) -> Result<Compared> {
    let rate = |flags: String| {
        let line = format!("write local --bw {flags}");
        ours::figure(program, &line, (What::Bandwidth, 1 << 20, seconds))
    };
    let row = Compared::new("1 MiB write bandwidth, 1 % lost", What::Bandwidth, "without loss");
    row.wanted(Bound::AtLeast(0.25)).measured(
        rounds,
        |round| rate(format!("--loss 1% --seed {}", round + 1)),
        |_| rate(String::new()),
    )
}

/// 16 and 256 queue pairs of one NIC beside one: rates of 8 bytes, bandwidths of 4 KiB.
fn curve(rounds: u32, seconds: f64, program: &Path) -> Result<Vec<Compared>> {
    // By size and number of queue pairs, of every round.
    let mut rates: BTreeMap<(u64, u64), Vec<f64>> = BTreeMap::new();
    for _ in 0..rounds {
        let line = format!("write local --bw -b 8 -e 4K -f 512 -q 1,16,256 -D {seconds}");
        for row in ours::run(program, &line)? {
            let (bytes, qps) = (ours::number(&row, "/bytes")?, ours::number(&row, "/qps")?);
            let pointer = if bytes < 4096.0 { "/messages_per_s" } else { "/bytes_per_s" };
            let rate = ours::number(&row, pointer)?;
            rates.entry((bytes as u64, qps as u64)).or_default().push(rate);
        }
    }
    let more = rates.iter().filter(|((_, qps), _)| *qps > 1);
    let row = more.map(|((bytes, qps), many)| {
        let (what, word) = match bytes {
            0..4096 => (What::Rate, "rate"),
            _ => (What::Bandwidth, "bandwidth"),
        };
        let name = format!("{} write {word}, {qps} queue pairs", units::bytes(*bytes));
        Compared::new(name, what, "one").with(many, &rates[&(*bytes, 1)])
    });
    Ok(row.collect())
}
