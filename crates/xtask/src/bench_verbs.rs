//! `cargo xtask bench-verbs`: Debian's perftest, unmodified, by `warpverbs run`, and `warpverbs perf`, taking
//! turns on this machine.

use crate::bench::{Turns, build, ours};
use crate::figures::{Load, Within, median, spread, table};
use crate::workspace;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use warpverbs_bench::units;

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

/// One figure, and the wanted ratio of perftest's to ours.
struct Figure {
    name: &'static str,
    bytes: u64,
    /// Half a round trip, or messages a second.
    is_latency: bool,
    /// Messages in half a second, about.
    messages: u64,
    wanted: Within,
}

const fn rate(name: &'static str, bytes: u64, messages: u64, least: f64) -> Figure {
    Figure { name, bytes, is_latency: false, messages, wanted: Within::AtLeast(least) }
}

const FIGURES: [Figure; 4] = [
    rate("8 bytes", 8, 300_000, 0.8),
    rate("64 KiB", 64 << 10, 20_000, 0.9),
    rate("1 MiB", 1 << 20, 2000, 0.9),
    Figure {
        name: "8 bytes, half a round trip",
        bytes: 8,
        is_latency: true,
        messages: 20_000,
        wanted: Within::AtMost(1.15),
    },
];

/// The bound of the latency holds where both ends and their NICs have a core each.
const CORES_FOR_LATENCY: usize = 4;

impl Figure {
    /// The result of `perf`, posted by the host, over the link that `warpverbs run` takes between
    /// programs of a host. perftest's NICs are threads of their own.
    fn perf(&self, program: &PathBuf, seconds: f64) -> Result<f64> {
        let (flags, pointer) = match self.is_latency {
            true => ("--lat --engine thread", "/latency/p50_ns"),
            false => ("--bw", "/messages_per_s"),
        };
        let Self { bytes, .. } = self;
        let line = format!("write local --link shm {flags} -b {bytes} -e {bytes} -D {seconds}");
        ours::number(&ours::run(program, &line)?[0], pointer)
    }

    fn perftest(&self, program: &Path, seconds: f64) -> Result<f64> {
        let count = (self.messages as f64 * seconds / 0.5).max(100.0) as u64;
        let name = if self.is_latency { "ib_write_lat" } else { "ib_write_bw" };
        let line = format!("{name} -F -x 0 -s {} -n {count}", self.bytes);
        let text = pair(program, &line)?;
        // Bytes, iterations, then the least, largest and typical microseconds, or two bandwidths and
        // million messages a second.
        let number = column(&text, self.bytes, 4)?;
        Ok(number * if self.is_latency { 1e3 } else { 1e6 })
    }

    fn show(&self, value: f64) -> String {
        match self.is_latency {
            true => units::nanos(value),
            false if self.bytes < 4096 => units::per_second(value),
            false => units::rate(value * self.bytes as f64),
        }
    }
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

/// A running program, which does not outlive this value.
struct Running(Child);

impl Running {
    fn start(program: &Path, line: &str) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("run").arg("--").args(line.split_whitespace()).stdin(Stdio::null());
        command.env_remove("WARPVERBS_FAULT").env_remove("WARPVERBS_PCAP");
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        Ok(Self(command.spawn().with_context(|| program.display().to_string())?))
    }

    fn finish(mut self, until: Instant) -> Result<String> {
        while self.0.try_wait()?.is_none() {
            ensure!(Instant::now() < until, "perftest has not ended after {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let stdout = self.0.stdout.take().context("its output")?;
        let text = std::io::read_to_string(stdout)?;
        ensure!(self.0.wait()?.success(), "perftest failed: {text}");
        Ok(text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // `warpverbs run` has the program for a child, which listens or writes until it is killed.
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        for child in std::fs::read_to_string(children).unwrap_or_default().split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", child]).status();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program with itself; what the client printed.
fn pair(program: &Path, line: &str) -> Result<String> {
    let until = Instant::now() + LIMIT;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let line = format!("{line} -p {port}");
    let server = Running::start(program, &line)?;
    while !is_listening(port) {
        ensure!(Instant::now() < until, "{line} does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let client = Running::start(program, &format!("{line} localhost"))?;
    let text = client.finish(until)?;
    server.finish(until)?;
    Ok(text)
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

fn built() -> Result<PathBuf> {
    let program = build()?;
    let folder = program.parent().and_then(Path::parent).context("a target folder")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--package", "warpverbs-preload"]);
    cargo.env("CARGO_TARGET_DIR", folder).current_dir(workspace::root()?);
    ensure!(cargo.status()?.success(), "the build of warpverbs-preload failed");
    Ok(program)
}

/// Measures and prints; a missed bound is a finding, not a failure.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    let program = match &bench.program {
        Some(program) => program.canonicalize().with_context(|| program.display().to_string())?,
        None => built()?,
    };
    let load = Load::now();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut rows = Vec::new();
    for figure in &FIGURES {
        let (mut perftest, mut perf) = (Vec::new(), Vec::new());
        for round in 0..bench.turns.rounds {
            for is_perftest in [round % 2 == 0, round % 2 != 0] {
                match is_perftest {
                    true => perftest.push(figure.perftest(&program, bench.turns.seconds)?),
                    false => perf.push(figure.perf(&program, bench.turns.seconds)?),
                }
            }
            eprintln!("{}: round {} of {}", figure.name, round + 1, bench.turns.rounds);
        }
        let ratios: Vec<f64> = perftest.iter().zip(&perf).map(|(a, b)| a / b).collect();
        let ratio = median(&ratios);
        let counts = !figure.is_latency || cores >= CORES_FOR_LATENCY;
        rows.push(vec![
            figure.name.to_owned(),
            figure.show(median(&perftest)),
            figure.show(median(&perf)),
            format!("{ratio:.2}"),
            spread(&ratios),
            figure.wanted.to_string(),
            if counts { figure.wanted.verdict(ratio).into() } else { "four cores".into() },
        ]);
    }
    println!(
        "perftest by `warpverbs run` and `warpverbs perf write local`, WRITEs between two processes; \
         {} rounds of about {} s, medians; {cores} cores",
        bench.turns.rounds, bench.turns.seconds
    );
    load.warning().into_iter().for_each(|warning| println!("{warning}"));
    let heads = ["WRITE", "perftest", "perf", "ratio", "of rounds", "wanted", ""];
    println!("{}", table(&heads, rows));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::column;

    const PERFTEST: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      300              17.31              17.12              0.000274
";

    #[test]
    fn rates_are_found_in_what_programs_print() {
        assert_eq!(column(PERFTEST, 65536, 4).ok(), Some(0.000274));
        assert!(column(PERFTEST, 8, 4).is_err(), "a size that was not measured");
        assert!(column("8 0.00 0.000000\n", 8, 2).is_err(), "a rate of nothing");
    }
}
