//! `cargo xtask busy`: all tests and all examples, several times, beside processes that do nothing but
//! use processors. A busy machine is a normal machine: whatever fails here is a defect.

use crate::workspace;
use anyhow::{Result, ensure};
use clap::Args;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use warpverbs_bench::child::{self, Running};

/// No test and no example takes longer, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(3600);

/// Every example, with the arguments of each of its processes.
const EXAMPLES: [(&str, &[&str]); 24] = [
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
    ("moe_layer", &["--procs 3"]),
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
    /// Is one of these processes
    #[arg(long, hide = true)]
    spin: bool,
}

fn spinners(count: u32) -> Result<Vec<Running>> {
    let program = std::env::current_exe()?;
    let start = |_| {
        let mut command = child::command(&program);
        command.args(["busy", "--spin"]).stdin(Stdio::null()).stdout(Stdio::null());
        Running::start("a busy process", &mut command)
    };
    (0..count).map(start).collect()
}

pub(crate) fn run(options: &Busy) -> Result<()> {
    if options.spin {
        loop {
            std::hint::spin_loop();
        }
    }
    check_table()?;
    let tests: Vec<&str> = options.tests.split_whitespace().collect();
    // Compiling is not what is tried.
    cargo(&["test", "--no-run"], &tests)?;
    if !options.no_examples {
        cargo(&["build", "--features", "full", "--examples"], &[])?;
    }
    let _spinners = spinners(options.processes)?;
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
    let line = format!("cargo {} {}", what.join(" "), arguments.join(" "));
    let mut cargo = workspace::cargo(workspace::root()?);
    cargo.args(what).args(arguments).stdin(Stdio::null());
    finish(vec![Running::start(line.trim(), &mut cargo)?])
}

/// Runs all processes of an example beside each other.
fn example(name: &str, processes: &[&str]) -> Result<()> {
    let program = workspace::target()?.join("debug/examples").join(name);
    let start = |arguments: &&str| {
        let mut command = Command::new(&program);
        command.args(arguments.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null());
        Running::start(*arguments, &mut command)
    };
    finish(processes.iter().map(start).collect::<Result<_>>()?)
}

/// Waits for all of them. When one fails or takes too long, those that are left are killed.
fn finish(running: Vec<Running>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    running.into_iter().try_for_each(|program| program.finish(end).map(drop))
}
