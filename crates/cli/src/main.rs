//! The `warpverbs` program, for operators: describes a machine (`doctor`), measures it (`perf`), tests
//! a NIC (`conform`), and runs unmodified programs on the software NIC (`run`).
#![forbid(unsafe_code)]

mod doctor;
mod run;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use warpverbs_bench::print;
use warpverbs_bench::{conform, perf};

/// GPU kernels that drive an RDMA NIC themselves
#[derive(Parser)]
#[command(name = "warpverbs", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Describe this machine, what `auto` would choose, and why
    Doctor(doctor::DoctorArgs),
    /// Run every case of the conformance suite on a NIC, connected to itself or to another
    Conform(Box<conform::ConformArgs>),
    /// Run an unmodified program of libibverbs on the software NIC
    Run(run::RunArgs),
    /// Measure, and check the data that was moved
    Perf(Box<perf::PerfArgs>),
}

/// Logs to standard error what `WARPVERBS_LOG` says, otherwise errors.
fn log() {
    let wished = std::env::var("WARPVERBS_LOG").unwrap_or_default();
    let filter = wished.parse::<Targets>().unwrap_or_else(|error| {
        eprintln!(
            "WARPVERBS_LOG is {wished:?}: {error}; expected levels and targets, such as info,warpverbs_nic=debug"
        );
        Targets::new().with_default(LevelFilter::ERROR)
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines).with(filter).init();
}

fn main() -> ExitCode {
    log();
    let outcome = match Cli::parse().command {
        Command::Run(args) => {
            return run::run(&args).unwrap_or_else(|error| {
                print::failure(&error);
                ExitCode::FAILURE
            });
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Perf(args) => perf::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print::failure(&error);
            ExitCode::FAILURE
        }
    }
}
