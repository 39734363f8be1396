//! NIXL beside this project: builds `warpverbs`, or its Python package, finds NIXL's wheel and runs
//! `crates/xtask/nixl/run.sh` or `python.py`, which need no cargo themselves.

use crate::bench::compared::seconds;
use crate::bench::ours;
use crate::{python, workspace};
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages that `pip` installs without `--wheel`.
const PACKAGES: [&str; 2] = [NIXL, "numpy"];
const NIXL: &str = "nixl-cu13==1.5.1";

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
    /// Measures the two Python packages by the calls that programs make; ours is built and installed, with
    /// NIXL's beside it, into an environment in the target folder
    #[arg(long, conflicts_with_all = ["program", "out"])]
    python: bool,
    /// Which Python
    #[arg(long, default_value = "python3")]
    interpreter: PathBuf,
    /// A built `warpverbs`; otherwise it is built
    #[arg(long)]
    program: Option<PathBuf>,
    /// Folder for the JSON of each turn
    #[arg(long)]
    out: Option<PathBuf>,
    /// File for the JSON of `--python`
    #[arg(long, requires = "python")]
    json: Option<PathBuf>,
}

pub(crate) fn run(bench: &Bench) -> Result<()> {
    if bench.python {
        return packages(bench);
    }
    let program = ours::program(bench.program.as_deref())?;
    let scratch = tempfile::tempdir()?;
    let wheel = match &bench.wheel {
        Some(folder) => folder.clone(),
        None => install(&bench.interpreter, scratch.path())?,
    };
    workspace::script("crates/xtask/nixl/run.sh", |command| {
        command.arg(program).env("NIXL", wheel).env("PYTHON", &bench.interpreter);
        command.env("TURNS", bench.turns.to_string()).env("DURATION", bench.seconds.to_string());
        command.env_remove("GPUS").envs(bench.gpus.as_ref().map(|gpus| ("GPUS", gpus)));
        command.env_remove("OUT").envs(bench.out.as_ref().map(|out| ("OUT", out)));
    })
}

/// Both Python packages in turns.
fn packages(bench: &Bench) -> Result<()> {
    let environment = workspace::target()?.join("bench-python");
    let python = python::prepare(&bench.interpreter, &environment, &[python::BUILDS, "numpy"])?;
    let wheel = python::Build::Release.wheel(&python, &environment)?;
    python::install(&python, &wheel)?;
    if bench.wheel.is_none() {
        // Without what it names as needed: torch, of which it takes nothing here.
        python::pip(&python, &["install", "--quiet", "--no-deps", NIXL], |pip| pip)?;
    }
    let mut command = Command::new(&python);
    command.arg(workspace::root()?.join("crates/xtask/nixl/python.py"));
    command.args(["--turns", &bench.turns.to_string(), "--seconds", &bench.seconds.to_string()]);
    command.args(bench.gpus.iter().flat_map(|gpus| ["--gpus", gpus]));
    if let Some(file) = &bench.json {
        command.arg("--json").arg(file);
    }
    command.envs(bench.wheel.as_ref().map(|folder| ("PYTHONPATH", folder)));
    workspace::done(&mut command, "python.py")
}

fn install(python: &Path, scratch: &Path) -> Result<PathBuf> {
    let folder = scratch.join("nixl");
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]);
    command.arg("--target").arg(&folder).args(PACKAGES);
    workspace::done(&mut command, &format!("pip install {}", PACKAGES.join(" ")))?;
    Ok(folder)
}
