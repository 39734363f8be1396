//! Two virtual machines whose NICs talk to each other: Linux's `rdma_rxe`, and ours.
//!
//! A guest is Debian's kernel with a root file system of busybox, the programs under test, and the
//! libraries they need, all in memory. Nothing of the host is mounted, and nothing needs root.

mod accel;
mod bed;
mod build;
mod channel;
mod devmem;
mod folder;
mod guest;
mod image;
mod interop;
mod kernel;
mod perftest;
mod rates;
mod run;
mod skip;
mod smoke;
mod tcp;
mod test;
mod verbs;

use anyhow::Result;
use bed::Bed;
use clap::{Args, Subcommand, ValueEnum};
use skip::Skip;
use std::path::PathBuf;

/// What two guests are booted for.
#[derive(Subcommand)]
pub(crate) enum Task {
    /// Linux's RoCEv2 at both ends, with Debian's own programs: does the bed work?
    Smoke(Options),
    /// Linux's RoCEv2 in guest 1 and ours in guest 2, through every operation both ways.
    Interop {
        #[command(flatten)]
        options: Options,
        /// A file that gets every case as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Our crate over libibverbs, on Linux's RoCEv2 at both ends.
    Verbs(Options),
    /// The workspace's own programs between two guests: with our NIC at both ends, with Linux's
    /// RoCEv2 at both, and mixed.
    Test {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        choice: test::Choice,
    },
    /// How fast WRITEs are: Debian's `ib_write_bw`, ours over libibverbs, and our own NIC.
    Rates {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        rounds: rates::Rounds,
    },
    /// The transport of device-memory TCP, on NICs without device memory.
    Tcp(Options),
    /// Debian's perftest between Linux's RoCEv2 and `warpverbs run`, in both directions, and rates.
    Perftest {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        rounds: perftest::Rounds,
    },
    /// Device-memory TCP in one guest, on a kernel that has it: bound, received, returned.
    Devmem {
        #[command(flatten)]
        options: Options,
        /// Where packages of kernel headers lie
        #[arg(long, value_name = "FOLDER", default_value = "/usr/src")]
        headers: PathBuf,
    },
    /// One command in guest 1, or one in each at the same time.
    Run {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        what: run::What,
    },
    /// A shell in guest 1 (10.99.0.1), with guest 2 (10.99.0.2) beside it.
    Shell(Options),
}

/// How the guests are made.
#[derive(Args)]
pub(crate) struct Options {
    /// Path MTU in bytes; without it, all that the task knows.
    #[arg(long, value_enum)]
    mtu: Option<Mtu>,
    /// How guests are executed.
    #[arg(long, value_enum, default_value = "auto")]
    accel: accel::Choice,
    /// Fails where guests cannot be booted, instead of a warning.
    #[arg(long)]
    require: bool,
    /// Keeps the consoles of the guests.
    #[arg(long)]
    keep_logs: bool,
    /// Captures what guest 1 sends and receives, for Wireshark.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

/// Path MTUs that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mtu {
    #[value(name = "1024")]
    B1024,
    #[value(name = "4096")]
    B4096,
}

impl Mtu {
    fn bytes(self) -> u32 {
        match self {
            Self::B1024 => 1024,
            Self::B4096 => 4096,
        }
    }
}

/// Runs a task. Prints what this machine lacks for it, which fails only under `--require`.
pub(crate) fn run(task: &Task) -> Result<()> {
    let (options, outcome) = match task {
        Task::Smoke(options) => (options, smoke::run(options)),
        Task::Interop { options, json } => (options, interop::run(options, json.as_deref())),
        Task::Verbs(options) => (options, verbs::run(options)),
        Task::Test { options, choice } => (options, test::run(options, choice)),
        Task::Tcp(options) => (options, tcp::run(options)),
        Task::Devmem { options, headers } => (options, devmem::run(headers)),
        Task::Rates { options, rounds } => (options, rates::run(options, rounds)),
        Task::Perftest { options, rounds } => (options, perftest::run(options, rounds)),
        Task::Run { options, what } => (options, run::run(options, what)),
        Task::Shell(options) => (options, Bed::shell(options, &[])),
    };
    match outcome {
        Err(error) if error.is::<Skip>() && !options.require => {
            println!("\n******** SKIPPED, nothing was tried: {error} ********\n");
            Ok(())
        }
        outcome => outcome,
    }
}
