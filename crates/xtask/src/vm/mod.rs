//! Two virtual machines whose NICs talk to each other: Linux's `rdma_rxe`, and ours.
//!
//! A guest is Debian's kernel with a root file system of busybox, the programs under test, and the
//! libraries they need, all in memory. Nothing of the host is mounted, and nothing needs root.

mod accel;
mod bed;
mod build;
mod case;
mod channel;
mod devmem;
mod guest;
pub(crate) mod image;
mod interop;
mod kernel;
mod options;
mod perftest;
mod rates;
mod run;
mod skip;
mod smoke;
mod tcp;
mod test;
mod verbs;

use anyhow::{Result, ensure};
use bed::Bed;
use case::Part;
use clap::Subcommand;
use options::Options;
use skip::Skip;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

/// The tasks of two guests.
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
    /// Interop, test, perftest (one round), tcp and verbs, in one pair of guests.
    All {
        #[command(flatten)]
        options: Options,
        /// How often a case is tried that fails
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9))]
        tries: u32,
    },
    /// A shell in guest 1 (10.99.0.1), with guest 2 (10.99.0.2) beside it.
    Shell(Options),
}

/// Runs a task. Prints what this machine lacks for it, which fails only under `--require`.
pub(crate) fn run(task: &Task) -> Result<()> {
    let (options, outcome) = match task {
        Task::Smoke(options) => (options, cases(options, 1, || Ok(vec![smoke::part(options)]))),
        Task::Interop { options, json } => {
            (options, cases(options, 1, || Ok(vec![interop::part(options, json.as_deref())?])))
        }
        Task::Verbs(options) => (options, cases(options, 1, || Ok(vec![verbs::part()?]))),
        Task::Test { options, choice } => {
            (options, cases(options, 1, || Ok(vec![test::part(choice)?])))
        }
        Task::Tcp(options) => (options, cases(options, 1, || Ok(vec![tcp::part()?]))),
        Task::Perftest { options, rounds } => {
            (options, cases(options, 1, || Ok(vec![perftest::part(rounds)?])))
        }
        Task::All { options, tries } => (options, cases(options, *tries, || all(options))),
        Task::Devmem { options, headers } => (options, devmem::run(headers)),
        Task::Rates { options, rounds } => (options, rates::run(options, rounds)),
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

/// Everything but the test of the bed itself, which ends a guest.
fn all(options: &Options) -> Result<Vec<Part>> {
    Ok(vec![
        interop::part(options, None)?,
        test::part(&test::Choice::default())?,
        perftest::part(&perftest::Rounds::one())?,
        tcp::part()?,
        verbs::part()?,
    ])
}

/// Boots two guests for all of these, and runs their cases.
fn cases(options: &Options, tries: u32, parts: impl FnOnce() -> Result<Vec<Part>>) -> Result<()> {
    let parts = parts()?;
    let programs: BTreeSet<_> = parts.iter().flat_map(|part| part.programs.clone()).collect();
    let programs: Vec<_> = programs.into_iter().collect();
    let mut bed = match Bed::boot(options, &programs) {
        Err(error) if tries > 1 && !error.is::<Skip>() => {
            println!("tried again: {error:#}");
            Bed::boot(options, &programs)?
        }
        booted => booted?,
    };
    let mut failed = Vec::new();
    for part in &parts {
        let began = Instant::now();
        let outcome = case::run(&mut bed, &part.cases, tries);
        println!("{} took {} s\n", part.name, began.elapsed().as_secs());
        failed.extend(outcome.err().map(|error| format!("{}: {error:#}", part.name)));
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}
