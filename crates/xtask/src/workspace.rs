//! Where things of this workspace lie.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the root manifest.
pub(crate) fn root() -> io::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .map(Path::to_path_buf)
        .ok_or_else(|| io::Error::other(format!("{} has no workspace above it", here.display())))
}

/// The folder of build outputs that this program itself was built into.
pub(crate) fn target() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    program
        .ancestors()
        .nth(2)
        .map(Path::to_path_buf)
        .ok_or_else(|| io::Error::other(format!("{} is in no folder", program.display())))
}

/// Runs `cargo build` with `arguments`, into [`target`]; unless everything was built before, and cargo
/// is busy with something else.
pub(crate) fn build(arguments: &[&str]) -> io::Result<()> {
    if std::env::var_os("WARPVERBS_XTASK_BUILT").is_some() {
        return Ok(());
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet"]).args(arguments).current_dir(root()?);
    if cargo.env("CARGO_TARGET_DIR", target()?).status()?.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("`cargo build {}` fails", arguments.join(" "))))
}
