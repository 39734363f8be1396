//! `cargo xtask bench-verbs`: Debian's perftest, unmodified, by `warpverbs run`, and `warpverbs perf`, taking
//! turns on this machine.

use crate::bench::compared::{Compared, Report, Turns, What, cores};
use crate::bench::ours;
use crate::vm::image::find;
use crate::workspace;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use warpverbs_bench::child::{self, Running};
use warpverbs_bench::output::Bound;

/// How long a program may take on a machine that others keep busy.
const LIMIT: Duration = Duration::from_secs(120);

/// Options of `bench-verbs`.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    turns: Turns,
    /// A built `warpverbs` with libwarpverbs_preload.so beside it; otherwise both are built
    #[arg(long)]
    program: Option<PathBuf>,
}

/// One figure, and the wanted ratio of perftest's to that of `perf`.
struct Figure {
    name: &'static str,
    what: What,
    bytes: u64,
    /// Messages in half a second, about.
    messages: u64,
    wanted: Bound,
}

const fn figure(
    (name, what): (&'static str, What),
    bytes: u64,
    messages: u64,
    wanted: Bound,
) -> Figure {
    Figure { name, what, bytes, messages, wanted }
}

const FIGURES: [Figure; 4] = [
    figure(("8 bytes by perftest", What::Rate), 8, 300_000, Bound::AtLeast(0.8)),
    figure(("64 KiB by perftest", What::Bandwidth), 64 << 10, 20_000, Bound::AtLeast(0.9)),
    figure(("1 MiB by perftest", What::Bandwidth), 1 << 20, 2000, Bound::AtLeast(0.9)),
    figure(
        ("8 bytes by perftest, half a round trip", What::Latency),
        8,
        20_000,
        Bound::AtMost(1.15),
    ),
];

/// The bound of the latency is for machines where both ends and their NICs have a core each.
const CORES_FOR_LATENCY: usize = 4;

impl Figure {
    /// The result of `perf`, posted by the host, over the link that `warpverbs run` takes between
    /// programs of a host. perftest's NICs are threads of their own.
    fn perf(&self, program: &Path, seconds: f64) -> Result<f64> {
        let flags = if self.what == What::Latency { "--lat --engine thread" } else { "--bw" };
        let line = format!("write local --link shm {flags}");
        ours::figure(program, &line, (self.what, self.bytes, seconds))
    }

    fn perftest(&self, program: &Path, seconds: f64) -> Result<f64> {
        let count = (self.messages as f64 * seconds / 0.5).max(100.0) as u64;
        let name = if self.what == What::Latency { "ib_write_lat" } else { "ib_write_bw" };
        let line = format!("{name} -F -x 0 -s {} -n {count}", self.bytes);
        self.read(&pair(program, &line)?)
    }

    /// The figure in what perftest's client printed.
    fn read(&self, text: &str) -> Result<f64> {
        let bytes = self.bytes;
        Ok(match self.what {
            // Bytes, iterations, then the least, largest and typical microseconds.
            What::Latency => column(text, bytes, 4)? * 1e3,
            What::Rate => messages_per_s(text, bytes)?,
            What::Bandwidth => messages_per_s(text, bytes)? * bytes as f64,
        })
    }
}

/// Messages a second in what a bandwidth test printed: bytes, iterations, MB/s at most, MB/s, million
/// messages a second. MB are of 2^20 bytes and have two digits behind the point, the millions six, which
/// are too few where messages are long.
pub(crate) fn messages_per_s(text: &str, bytes: u64) -> Result<f64> {
    let messages_per_megabyte = f64::from(1 << 20) / bytes as f64;
    Ok(match 0.01 * messages_per_megabyte < 1.0 {
        true => column(text, bytes, 3)? * messages_per_megabyte,
        false => column(text, bytes, 4)? * 1e6,
    })
}

/// A number of the row that begins with `bytes`.
pub(crate) fn column(text: &str, bytes: u64, column: usize) -> Result<f64> {
    let bytes = bytes.to_string();
    let row = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = row.into_iter().find(|words| words.first() == Some(&bytes.as_str()));
    let number = row.as_ref().and_then(|words| words.get(column)?.parse::<f64>().ok());
    match number {
        Some(number) if number > 0.0 => Ok(number),
        _ => bail!("no rate at {bytes} bytes in\n{text}"),
    }
}

/// Runs a program of perftest with itself; what the client printed.
fn pair(program: &Path, line: &str) -> Result<String> {
    let until = Instant::now() + LIMIT;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let line = format!("{line} -p {port}");
    let mut server = start(program, &line)?;
    while !is_listening(port) {
        if server.ended()?.is_some() {
            bail!("{line} ended before it listened: {}", server.finish(until)?.trim());
        }
        ensure!(Instant::now() < until, "{line} does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let client = start(program, &format!("{line} localhost"))?;
    let text = client.finish_beside(&mut server, until)?;
    server.finish(until)?;
    Ok(text)
}

fn start(program: &Path, line: &str) -> Result<Running> {
    let mut command = ours::command(program);
    command.args(["run", "--"]).args(child::bound()).args(line.split_whitespace());
    Running::start(line, command.stdin(Stdio::null()).stdout(Stdio::piped()))
}

fn is_listening(port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        table.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.get(1).is_some_and(|local| local.ends_with(&wanted)) && words[3] == "0A"
        })
    })
}

/// The program, with the library that it preloads beside it.
fn program(given: Option<&Path>) -> Result<PathBuf> {
    let program = ours::program(given)?;
    if given.is_none() {
        let folder = program.parent().and_then(Path::parent).context("a target folder")?;
        let mut cargo = workspace::cargo(workspace::root()?);
        cargo.args(["build", "--release", "--package", "warpverbs-preload"]);
        cargo.env("CARGO_TARGET_DIR", folder);
        workspace::done(&mut cargo, "cargo build of warpverbs-preload")?;
    }
    Ok(program)
}

/// Measures and prints; a missed bound is a finding, not a failure.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    for name in ["ib_write_bw", "ib_write_lat"] {
        find(name, "perftest")?;
    }
    let program = program(bench.program.as_deref())?;
    let Turns { rounds, seconds, json } = bench.turns;
    let mut report = Report::begin();
    for figure in &FIGURES {
        let counts = figure.what != What::Latency || cores() >= CORES_FOR_LATENCY;
        let row =
            Compared::new(figure.name, figure.what, "perf").wanted(counts.then_some(figure.wanted));
        let perftest = |_| figure.perftest(&program, seconds);
        let row = row.measured(rounds, perftest, |_| figure.perf(&program, seconds));
        report.add(row.map(Some).context(figure.name));
    }
    let contenders = format!(
        "perftest by `warpverbs run` and `warpverbs perf write local`, WRITEs between two processes; \
         about {seconds} s each"
    );
    let (measured, end) = report.end("bench-verbs", contenders, rounds);
    measured.print_up_to(end, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    // As perftest 6.06 printed them.
    const RATES: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 8          2000             6.46               0.46   \t\t   0.060261
 65536      300              17.31              17.12              0.000274
 1048576    40               4.98               4.83               0.000005
";
    const TIMES: &str = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       500          53.18          157043.87      138.08   \t       3197.45     \t-nan   \t\t71999.86 \t\t157043.87
";

    #[test]
    fn figures_are_found_in_what_perftest_prints() {
        let [rate, bandwidth, long, latency] = &FIGURES;
        let near = |found: Result<f64>, wanted: f64| (found.unwrap() / wanted - 1.0).abs() < 1e-9;
        assert!(near(rate.read(RATES), 60_261.0), "messages a second");
        assert!(near(bandwidth.read(RATES), 17.12 * 1_048_576.0), "bytes a second");
        assert!(
            near(long.read(RATES), 4.83 * 1_048_576.0),
            "5 messages a second, but more precisely"
        );
        assert!(near(latency.read(TIMES), 138_080.0), "nanoseconds, the typical ones");
        assert!(messages_per_s(RATES, 4096).is_err(), "a size that was not measured");
        assert!(column("8 0.00 0.000000\n", 8, 2).is_err(), "a rate of nothing");
    }

    #[test]
    fn a_server_that_ends_before_it_listens_is_not_waited_for() {
        // `false run -- …`
        let error = pair(Path::new("false"), "ib_write_bw -s 8").unwrap_err().to_string();
        assert!(error.contains("ib_write_bw -s 8") && error.contains("exit status: 1"), "{error}");
        let error = pair(Path::new("true"), "ib_write_bw -s 8").unwrap_err().to_string();
        assert!(error.contains("ended before it listened"), "{error}");
    }
}
