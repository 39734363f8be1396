//! NIXL beside this project: builds `warpverbs`, finds NIXL's wheel and runs
//! `crates/xtask/nixl/run.sh`, which needs no cargo itself.

use crate::bench::compared::seconds;
use crate::bench::ours;
use crate::workspace;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages that `pip` installs without `--wheel`.
const PACKAGES: [&str; 2] = ["nixl-cu13==1.5.1", "numpy"];

/// Options of `bench-nixl`.
#[derive(Args)]
pub(crate) struct Bench {
    /// Two CUDA devices, such as 0,1; without it host memory alone
    #[arg(long)]
    gpus: Option<String>,
    /// Turns of each; of several the best median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    turns: u32,
    /// Seconds for each row
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    seconds: f64,
    /// Where there is no network: a folder with the content of NIXL's wheel, and of numpy's if
    /// Python has none; otherwise pip installs both into a scratch folder
    #[arg(long)]
    wheel: Option<PathBuf>,
    /// Which Python
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// A built `warpverbs`; otherwise it is built
    #[arg(long)]
    program: Option<PathBuf>,
    /// Folder for the JSON of each turn
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) fn run(bench: &Bench) -> Result<()> {
    let program = ours::program(bench.program.as_deref())?;
    let scratch = tempfile::tempdir()?;
    let wheel = match &bench.wheel {
        Some(folder) => folder.clone(),
        None => install(&bench.python, scratch.path())?,
    };
    workspace::script("crates/xtask/nixl/run.sh", |command| {
        command.arg(program).env("NIXL", wheel).env("PYTHON", &bench.python);
        command.env("TURNS", bench.turns.to_string()).env("DURATION", bench.seconds.to_string());
        command.env_remove("GPUS").envs(bench.gpus.as_ref().map(|gpus| ("GPUS", gpus)));
        command.env_remove("OUT").envs(bench.out.as_ref().map(|out| ("OUT", out)));
    })
}

fn install(python: &Path, scratch: &Path) -> Result<PathBuf> {
    let folder = scratch.join("nixl");
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]);
    command.arg("--target").arg(&folder).args(PACKAGES);
    workspace::done(&mut command, &format!("pip install {}", PACKAGES.join(" ")))?;
    Ok(folder)
}
