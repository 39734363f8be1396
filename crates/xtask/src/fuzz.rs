//! `cargo xtask fuzz`: each fuzz target for a bounded time, with AddressSanitizer.
//!
//! The flags are those that cargo-fuzz passes. The compiler of the workspace takes them with
//! `RUSTC_BOOTSTRAP`, so neither a nightly compiler nor cargo-fuzz is needed.

use crate::workspace;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Outputs of build scripts and macros are not instrumented if a target is named.
pub(crate) const TRIPLE: &str = "x86_64-unknown-linux-gnu";

const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    --cfg fuzzing -Clink-dead-code -Zsanitizer=address -Ccodegen-units=1 \
    -Cdebug-assertions=on -Coverflow-checks=on";

/// Every target, with the options of libFuzzer that suit its input.
pub(crate) const TARGETS: [(&str, &[&str]); 15] = [
    ("nic_ops", &["-max_len=4096", "-len_control=0"]),
    ("nic_wqe", &["-max_len=2048"]),
    ("wqe_parse", &["-max_len=512"]),
    ("bnxt_parse", &["-max_len=512"]),
    ("ionic_parse", &["-max_len=512"]),
    ("roce_packet", &["-max_len=512"]),
    ("rc_packets", &["-max_len=2000", "-len_control=0"]),
    ("agent_bytes", &["-max_len=800"]),
    ("nixl_calls", &["-max_len=3000", "-len_control=0"]),
    ("store_message", &["-max_len=600"]),
    ("control_message", &["-max_len=300"]),
    ("tcp_frames", &["-max_len=2000", "-len_control=0"]),
    ("devmem_control", &["-max_len=1000"]),
    ("uverbs_calls", &["-max_len=6000", "-len_control=0"]),
    ("gfx_code", &["-max_len=5000"]),
];

/// The targets, and the time for each.
#[derive(Args)]
pub(crate) struct Fuzz {
    /// Seconds for each target.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Folder of build outputs and of inputs found; beside those of the workspace otherwise.
    #[arg(long, value_name = "FOLDER")]
    build: Option<PathBuf>,
    /// Targets; all of them otherwise.
    targets: Vec<String>,
}

pub(crate) fn run(options: &Fuzz) -> Result<()> {
    let folder = match &options.build {
        Some(folder) => folder.clone(),
        None => workspace::target()?.join("fuzz"),
    };
    let known = |name: &String| TARGETS.iter().any(|(target, _)| target == name);
    if let Some(unknown) = options.targets.iter().find(|name| !known(name)) {
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        bail!("no fuzz target is called {unknown:?}; expected one of {}", names.join(", "));
    }
    build(&folder)?;
    for (name, arguments) in TARGETS {
        if options.targets.is_empty() || options.targets.iter().any(|target| target == name) {
            fuzz(&folder, name, arguments, options.seconds)?;
        }
    }
    Ok(())
}

fn build(folder: &Path) -> Result<()> {
    let mut cargo = workspace::cargo(workspace::root()?.join("fuzz"));
    cargo.args(["build", "--quiet", "--release", "--locked", "--bins", "--target", TRIPLE]);
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", folder);
    workspace::done(&mut cargo, "cargo build of the fuzz targets")
}

/// New inputs go to a folder of their own; the committed corpus is only read.
fn fuzz(folder: &Path, name: &str, arguments: &[&str], seconds: u64) -> Result<()> {
    let fuzz = workspace::root()?.join("fuzz");
    let (found, artifacts) = (folder.join("corpus").join(name), fuzz.join("artifacts").join(name));
    for folder in [&found, &artifacts] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut program = Command::new(folder.join(TRIPLE).join("release").join(name));
    program.args(arguments).args(["-timeout=5", "-print_final_stats=1"]);
    program.arg(format!("-max_total_time={seconds}"));
    program.arg(format!("-artifact_prefix={}/", artifacts.display()));
    let output = program.args([&found, &fuzz.join("corpus").join(name)]).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{text}\n{name} fails; the input is in {}", artifacts.display());
    }
    let runs = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    println!("{name}: {} runs in {seconds} s, no finding", runs.unwrap_or("?").trim());
    Ok(())
}
