//! `cargo xtask bare`: the tests of a machine without rdma-core, on one that has it.

use crate::workspace::{self, TestProgram};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("bare.sh");
/// The line of a test that needs rdma-core's headers.
const SKIPPED: &str = "needs a C compiler and rdma-core's headers";
/// The script's exit status where there are no layers.
const NO_LAYERS: i32 = 77;

/// The namespaces that `unshare` makes: for anybody, or for root where that is forbidden.
const NAMESPACES: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];

/// Packages whose tests look for rdma-core, or for what is built over it.
const PACKAGES: [&str; 10] = [
    "warpverbs-bench",
    "warpverbs-bnxt",
    "warpverbs-cli",
    "warpverbs-conformance",
    "warpverbs-mlx5",
    "warpverbs-preload",
    "warpverbs-transport",
    "warpverbs-uverbs",
    "warpverbs-verbs",
    "warpverbs-verbs-extra",
];

/// The packages and tests to run.
#[derive(Args)]
pub(crate) struct Bare {
    /// Fails where files cannot be hidden, instead of a warning.
    #[arg(long)]
    require: bool,
    /// Packages whose test programs run; otherwise all that look for rdma-core.
    #[arg(long, value_name = "PACKAGE")]
    package: Vec<String>,
    /// Arguments of the test programs, such as part of a name.
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Bare) -> Result<()> {
    let Some(namespace) = NAMESPACES.into_iter().find(|words| can(words)) else {
        return skip(options);
    };
    let (mut skipped, mut failed) = (0, Vec::new());
    for TestProgram { path: program, folder, .. } in programs(&options.package)? {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        eprintln!("without rdma-core: {name}");
        let layer = tempfile::tempdir()?;
        let mut command = Command::new("unshare");
        command.args(namespace).args(["sh", "-c", SCRIPT, "bare"]);
        command.arg(layer.path()).arg(workspace::target()?).arg(&program);
        command.args(&options.arguments).env_remove("WARPVERBS_REQUIRE_RDMA_CORE");
        let mut child = command.current_dir(folder).stderr(Stdio::piped()).spawn()?;
        for line in BufReader::new(child.stderr.take().context("a pipe")?).lines() {
            let line = line?;
            skipped += usize::from(line.contains(SKIPPED));
            eprintln!("{line}");
        }
        match child.wait()?.code() {
            Some(0) => {}
            Some(NO_LAYERS) => return skip(options),
            _ => failed.push(name),
        }
    }
    ensure!(failed.is_empty(), "without rdma-core, tests fail: {}", failed.join(", "));
    ensure!(skipped > 0, "no test has missed rdma-core, so this was no machine without it");
    println!("without rdma-core: passed; {skipped} test(s) were skipped for want of its headers");
    Ok(())
}

/// The test programs of `packages`: what runs is what ran with rdma-core.
fn programs(packages: &[String]) -> Result<Vec<TestProgram>> {
    let wanted: Vec<&str> = match packages {
        [] => PACKAGES.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    let mut programs = workspace::test_programs(&[])?;
    programs.retain(|program| {
        let folder = program.folder.file_name().unwrap_or_default().to_string_lossy();
        wanted.contains(&format!("warpverbs-{folder}").as_str())
    });
    ensure!(!programs.is_empty(), "no test program is of any of {}", wanted.join(", "));
    Ok(programs)
}

/// Whether `unshare` with `words` works here.
fn can(words: &[&str]) -> bool {
    Command::new("unshare")
        .args(words)
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn skip(options: &Bare) -> Result<()> {
    let why = "files cannot be hidden here: unshare (util-linux) and overlayfs are needed";
    ensure!(!options.require, "{why}");
    println!("\n******** SKIPPED, nothing was tried: {why} ********\n");
    Ok(())
}
