//! Device-memory TCP on a real kernel, in one guest with a module that offers a queue for it.

use super::build;
use super::skip::Skip;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::Command;

/// The script's exit status if something is not installed.
const SKIPPED: i32 = 77;

/// With the kernel headers that `sources` has.
pub(crate) fn run(sources: &Path) -> Result<()> {
    let program = build::examples("warpverbs-tcp", &["device_memory"])?.remove(0);
    let script = workspace::root()?.join("crates/devmem/guest/run.sh");
    let folder = workspace::target()?.join("vm/devmem");
    let output = Command::new(&script).arg(program).arg(folder).arg(sources).output();
    let output = output.with_context(|| script.display().to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0) => {
            print!("{text}");
            Ok(())
        }
        Some(SKIPPED) => Err(Skip(text.trim().to_owned()).into()),
        _ => bail!("{}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)),
    }
}
