//! The Python package: builds the wheel, installs it into an environment of its own, and runs its tests;
//! on request also programs of NIXL's, unchanged.

mod consumers;
mod environment;
mod programs;
mod wheel;

use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
pub(crate) use environment::{install, pip, prepare};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
pub(crate) use wheel::Build;

/// Packages for the build and the tests.
const PACKAGES: [&str; 5] = [BUILDS, "mypy", "numpy", "pytest", "pytest-timeout"];

/// The package that builds wheels.
pub(crate) const BUILDS: &str = "maturin>=1.9.4,<2";

/// Options of `python`.
#[derive(Args)]
pub(crate) struct Python {
    /// Where there are sources of NIXL: their Python tests and examples run on the wheel, and a table says
    /// what came of it
    #[arg(long)]
    sources: Option<PathBuf>,
    /// The environment to install into, made if it is not there; otherwise one in the target folder
    #[arg(long)]
    venv: Option<PathBuf>,
    /// The interpreter that makes it
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Installs torch too, several gigabytes; most programs of NIXL's need it
    #[arg(long)]
    torch: bool,
    /// Builds with optimisation, as a wheel for users is built
    #[arg(long)]
    release: bool,
    /// Builds the wheel and leaves it in the target folder's `wheels`, nothing else
    #[arg(long)]
    wheel: bool,
    /// Builds with optimisation for machines of this target of Rust's and a C library from glibc 2.28 on, such as
    /// x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu, by zig's compiler
    #[arg(long, value_name = "TRIPLE", requires = "wheel")]
    target: Option<String>,
    /// Fetches programs that use NIXL, and runs their tests and classes on the wheel; installs torch too
    #[arg(long)]
    consumers: bool,
    /// Of those only the ones that take seconds
    #[arg(long, requires = "consumers")]
    quick: bool,
    /// Runs them on NIXL's own package, too
    #[arg(long, requires = "consumers")]
    nixl: bool,
    /// Where they are kept; otherwise in the target folder
    #[arg(long, requires = "consumers")]
    cache: Option<PathBuf>,
    /// Words for pytest, such as -k NAME
    #[arg(last = true)]
    pytest: Vec<OsString>,
}

/// Whether a wheel can be built for a target of Rust's: its standard library and zig are at hand.
///
/// # Errors
/// Why not.
pub(crate) fn can_build(target: &str) -> Result<()> {
    let mut rustc = Command::new("rustc");
    let out = rustc.args(["--print", "target-libdir", "--target", target]).output()?;
    let folder = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
    ensure!(out.status.success() && folder.exists(), "rustup target add {target}");
    let environment = workspace::target()?.join("python");
    let zig = Build::Portable(target).packages();
    prepare(Path::new("python3"), &environment, zig).context("zig")?;
    Ok(())
}

pub(crate) fn run(options: &Python) -> Result<()> {
    let environment = match &options.venv {
        Some(folder) => std::path::absolute(folder)?,
        None => workspace::target()?.join("python"),
    };
    let torch = options.torch.then_some("torch");
    let build = match &options.target {
        Some(target) => Build::Portable(target),
        None if options.release => Build::Release,
        None => Build::Quick,
    };
    let packages = PACKAGES.into_iter().chain(torch).chain(build.packages().iter().copied());
    let packages: Vec<&str> = packages.collect();
    let python = prepare(&options.python, &environment, &packages)?;
    let wheel = build.wheel(&python, &environment)?;
    if options.wheel {
        return Ok(());
    }
    install(&python, &wheel)?;
    let mut tests = Command::new(&python);
    tests.current_dir(workspace::root()?.join("crates/python"));
    tests
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--timeout", "120"])
        .args(&options.pytest);
    workspace::done(&mut tests, "pytest crates/python")?;
    // Not where the sources are: the installed package is meant.
    let mut stubs = Command::new(&python);
    stubs.current_dir(&environment).args(["-m", "mypy.stubtest", "warpverbs._native"]);
    workspace::done(&mut stubs, "stubtest warpverbs._native")?;
    let mut types = Command::new(&python);
    types.current_dir(&environment).args(["-m", "mypy", "-p", "warpverbs"]);
    workspace::done(&mut types, "mypy -p warpverbs")?;
    if let Some(sources) = &options.sources {
        programs::run(&python, sources)?;
    }
    if options.consumers {
        let cache = match &options.cache {
            Some(folder) => folder.clone(),
            None => workspace::target()?.join("consumers"),
        };
        consumers::run(&python, &cache, options.quick, options.nixl)?;
    }
    Ok(())
}
