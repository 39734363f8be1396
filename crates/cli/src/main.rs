//! The `warpverbs` program: describes this machine (`doctor`), measures it (`perf`), tests a NIC
//! (`conform`), and runs unmodified programs on the software NIC (`run`).
#![forbid(unsafe_code)]

mod conform;
mod doctor;
mod local;
mod perf;
mod print;
mod run;
mod stats;

use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;
use warpverbs::transport::{Context, ContextBuilder, VerbsProvider, Way};
use warpverbs_units as units;

/// GPU kernels that drive an RDMA NIC themselves
#[derive(Parser)]
#[command(name = "warpverbs", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What this machine has, what `auto` would choose, and why
    Doctor(doctor::DoctorArgs),
    /// Run every case of the conformance suite on a NIC, connected to itself or to another
    Conform(conform::ConformArgs),
    /// Run an unmodified program of libibverbs on the software NIC
    Run(run::RunArgs),
    /// Measure, and check the data that was moved
    #[command(subcommand)]
    Perf(Box<perf::PerfCommand>),
}

/// Words that every command and example understands.
#[derive(Args, Clone, Debug)]
struct Common {
    /// Where kernels run: auto, simt, cuda or cuda:N
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    gpu: String,
    /// The NIC that consumes the queues: auto, soft or a name
    #[arg(long, default_value = "auto", env = "WARPVERBS_NIC")]
    nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    way: Way,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

impl Common {
    /// Everything there is, RDMA devices in the way that was asked for.
    fn context(&self) -> ContextBuilder {
        Context::builder().verbs(VerbsProvider::default().with_way(self.way))
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("WARPVERBS_LOG"))
        .with_writer(std::io::stderr)
        .init();
    let outcome = match Cli::parse().command {
        Command::Run(args) => {
            return run::run(&args).unwrap_or_else(|error| {
                print::failure(&error);
                ExitCode::FAILURE
            });
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Perf(command) => perf::run(&command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print::failure(&error);
            ExitCode::FAILURE
        }
    }
}
