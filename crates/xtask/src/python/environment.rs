//! Environments of Python, and pip in them.

use crate::workspace;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An environment with these packages, made if it is not there; returns its interpreter.
pub(crate) fn prepare(
    interpreter: &Path,
    environment: &Path,
    packages: &[&str],
) -> Result<PathBuf> {
    let python = environment.join("bin/python");
    if !python.exists() {
        let mut make = Command::new(interpreter);
        workspace::done(make.args(["-m", "venv"]).arg(environment), "python3 -m venv")?;
    }
    pip(&python, &["install", "--quiet"], |pip| pip.args(packages))?;
    Ok(python)
}

/// Installs a wheel over the one that is there.
pub(crate) fn install(python: &Path, wheel: &Path) -> Result<()> {
    let words = ["install", "--quiet", "--no-deps", "--force-reinstall"];
    pip(python, &words, |pip| pip.arg(wheel))
}

pub(crate) fn pip(
    python: &Path,
    words: &[&str],
    more: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<()> {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--disable-pip-version-check"]).args(words);
    workspace::done(more(&mut pip), &format!("pip {}", words.join(" ")))
}
