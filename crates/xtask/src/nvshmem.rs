//! NVSHMEM beside this project: builds `warpverbs` and runs `crates/xtask/nvshmem/run.sh`, which needs
//! no cargo itself.

use crate::bench::ours;
use crate::workspace;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// Options of `bench-nvshmem`.
#[derive(Args)]
pub(crate) struct Bench {
    /// Calls or rounds of each row
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
    /// A built `warpverbs`; otherwise it is built
    #[arg(long)]
    program: Option<PathBuf>,
}

pub(crate) fn run(bench: &Bench) -> Result<()> {
    let program = ours::program(bench.program.as_deref())?;
    workspace::script("crates/xtask/nvshmem/run.sh", |command| {
        command.arg(program).arg(bench.iters.to_string());
    })
}
