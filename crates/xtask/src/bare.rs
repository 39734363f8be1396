//! `cargo xtask bare`: the tests of a machine without rdma-core, on one that has it.

use crate::workspace;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("bare.sh");
/// What a test says that needs rdma-core's headers.
const SKIPPED: &str = "needs a C compiler and rdma-core's headers";
/// The script's exit status where there are no layers.
const NO_LAYERS: i32 = 77;

/// What `unshare` may do: for anybody, or for root where that is forbidden.
const NAMESPACES: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];

/// What is tested.
#[derive(Args)]
pub(crate) struct Bare {
    /// Fails where files cannot be hidden, instead of a warning.
    #[arg(long)]
    require: bool,
    /// Arguments of `cargo test --workspace`, such as `--test it` for tests of that name only.
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Bare) -> Result<()> {
    let (layer, target) = (tempfile::tempdir()?, workspace::target()?);
    // Packages and features as in `cargo test --workspace`, so nothing is built anew.
    let Some(namespace) = NAMESPACES.into_iter().find(|words| can(words)) else {
        return skip(options);
    };
    let mut command = Command::new("unshare");
    command.args(namespace).args(["sh", "-c", SCRIPT, "bare"]);
    command.arg(layer.path()).arg(&target);
    command.arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--workspace", "--no-fail-fast"]).args(&options.arguments);
    command.env("CARGO_TARGET_DIR", &target).env_remove("WARPVERBS_REQUIRE_RDMA_CORE");
    command.current_dir(workspace::root()?).stderr(Stdio::piped());
    let mut child = command.spawn().context("unshare")?;
    let mut skipped = 0;
    for line in BufReader::new(child.stderr.take().context("a pipe")?).lines() {
        let line = line?;
        skipped += usize::from(line.contains(SKIPPED));
        eprintln!("{line}");
    }
    let status = child.wait()?;
    if status.code() == Some(NO_LAYERS) {
        return skip(options);
    }
    if !status.success() {
        bail!("without rdma-core, tests fail ({status})");
    }
    ensure!(skipped > 0, "no test has missed rdma-core, so this was no machine without it");
    println!("without rdma-core: passed; {skipped} test(s) were skipped for want of its headers");
    Ok(())
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
