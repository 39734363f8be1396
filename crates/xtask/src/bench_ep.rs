//! Other libraries' dispatch and combine beside this project: builds `warpverbs` and runs
//! `crates/xtask/ep/run.sh`, which needs no cargo itself.

use crate::bench::ours;
use crate::workspace;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// Options of `bench-ep`.
#[derive(Args)]
pub(crate) struct Bench {
    /// A folder with checkouts of `DeepEP` and `flashinfer`, or of one of them
    #[arg(long)]
    sources: PathBuf,
    /// Turns of each; the best median counts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=9))]
    turns: u32,
    /// A built `warpverbs`; otherwise it is built
    #[arg(long)]
    program: Option<PathBuf>,
}

pub(crate) fn run(bench: &Bench) -> Result<()> {
    let program = ours::program(bench.program.as_deref())?;
    let peers = workspace::target()?.join("bench-ep");
    workspace::script("crates/xtask/ep/run.sh", |command| {
        command.arg(program).env("SOURCES", &bench.sources).env("PEERS", peers);
        command.env("TURNS", bench.turns.to_string());
    })
}
