//! `cargo xtask busy`: all tests and all examples, several times, beside processes that do nothing but
//! use processors. A busy machine is a normal machine: whatever fails here is a defect.

use crate::workspace;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// No test and no example takes longer, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(3600);
/// Between looks at a process that runs.
const PAUSE: Duration = Duration::from_millis(50);

/// Every example, with the arguments of each of its processes.
const EXAMPLES: [(&str, &[&str]); 23] = [
    ("dist_atomic", &["--procs 2"]),
    ("dist_send_recv", &["--procs 2"]),
    ("dist_write", &["--procs 2"]),
    ("gpu_interchange", &[""]),
    ("heap_interchange", &[""]),
    ("host_post", &[""]),
    ("kv_blocks", &[""]),
    ("loopback_atomic", &[""]),
    ("loopback_read", &[""]),
    ("loopback_send_recv", &[""]),
    ("loopback_write", &[""]),
    ("loopback_write_inline", &[""]),
    ("shmem_allgather", &["--procs 3"]),
    ("shmem_allreduce", &["--procs 3"]),
    ("shmem_barrier", &["--procs 3"]),
    ("shmem_pipeline", &["--procs 3 --streams 4"]),
    ("shmem_ring", &["--procs 3"]),
    ("simple_write", &["--mode initiator", "--mode target"]),
    ("stream_backpressure", &[""]),
    ("tcpx_connection", &["server", "client 127.0.0.1"]),
    ("tcpx_transfer", &["server", "client 127.0.0.1 --bytes 8M"]),
    ("two_processes", &[""]),
    ("unified", &[""]),
];

/// How busy, and how often.
#[derive(Args)]
pub(crate) struct Busy {
    /// Rounds of all tests and examples
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Processes that only use processors
    #[arg(long, default_value_t = 16)]
    processes: u32,
    /// Arguments of `cargo test` instead of `--workspace`
    #[arg(
        long,
        value_name = "ARGUMENTS",
        default_value = "--workspace",
        allow_hyphen_values = true
    )]
    tests: String,
    /// Leaves out the examples
    #[arg(long)]
    no_examples: bool,
    /// Is one of these processes, until its input ends
    #[arg(long, hide = true)]
    spin: bool,
}

/// Processes of ours; they end with this value, and also with this process, however it ends.
struct Spinners(Vec<Child>);

impl Spinners {
    fn start(count: u32) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut started = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(&program);
            command.args(["busy", "--spin"]).stdin(Stdio::piped()).stdout(Stdio::null());
            started.0.push(command.spawn().context("a busy process")?);
        }
        Ok(started)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have been killed by somebody else.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Uses a processor until the other end of its input is closed, which its starter's end does too.
fn spin() -> ! {
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    loop {
        std::hint::spin_loop();
    }
}

pub(crate) fn run(options: &Busy) -> Result<()> {
    if options.spin {
        spin();
    }
    check_table()?;
    let tests: Vec<&str> = options.tests.split_whitespace().collect();
    // Compiling is not what is tried.
    cargo(&["test", "--no-run"], &tests)?;
    if !options.no_examples {
        cargo(&["build", "--features", "full", "--examples"], &[])?;
    }
    let _spinners = Spinners::start(options.processes)?;
    let mut failed = Vec::new();
    for round in 1..=options.rounds {
        let began = Instant::now();
        if let Err(error) = cargo(&["test", "--no-fail-fast"], &tests) {
            failed.push(format!("round {round}: {error:#}"));
        }
        for (name, processes) in EXAMPLES.iter().filter(|_| !options.no_examples) {
            if let Err(error) = example(name, processes) {
                failed.push(format!("round {round}: example {name}: {error:#}"));
            }
        }
        let (took, count) = (began.elapsed().as_secs(), failed.len());
        println!("busy: round {round} of {} took {took} s; {count} failed so far", options.rounds);
    }
    failed.iter().for_each(|line| println!("{line}"));
    ensure!(failed.is_empty(), "{} failed", failed.len());
    Ok(())
}

/// The table names each example, and nothing else.
fn check_table() -> Result<()> {
    let mut files = Vec::new();
    for entry in workspace::root()?.join("examples").read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            files.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    files.sort();
    let table = EXAMPLES.map(|(name, _)| name);
    ensure!(files == table, "examples are {files:?}, the table of `xtask busy` has {table:?}");
    Ok(())
}

fn cargo(what: &[&str], arguments: &[&str]) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(what).args(arguments).current_dir(workspace::root()?).stdin(Stdio::null());
    let line = format!("cargo {} {}", what.join(" "), arguments.join(" "));
    finish(vec![cargo.spawn()?]).with_context(|| format!("`{}`", line.trim()))
}

/// Runs all processes of an example beside each other.
fn example(name: &str, processes: &[&str]) -> Result<()> {
    let program = workspace::target()?.join("debug/examples").join(name);
    let children = processes.iter().map(|arguments| start(&program, arguments));
    finish(children.collect::<Result<_>>()?)
}

fn start(program: &Path, arguments: &str) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().with_context(|| program.display().to_string())
}

/// Waits for all of them; ends those that are left when one takes too long.
fn finish(mut children: Vec<Child>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    let mut failed = None;
    while !children.is_empty() {
        if Instant::now() > end {
            for child in &mut children {
                let _ = child.kill();
                let _ = child.wait();
            }
            bail!("not done after {LIMIT:?}");
        }
        let mut running = Vec::new();
        for mut child in children {
            match child.try_wait()? {
                None => running.push(child),
                Some(status) if status.success() => {}
                Some(status) => failed = Some(status),
            }
        }
        children = running;
        thread::sleep(PAUSE);
    }
    match failed {
        Some(status) => bail!("{status}"),
        None => Ok(()),
    }
}
