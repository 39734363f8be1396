//! Programs of the workspace, for guests, built as this one was.

use crate::workspace;
use anyhow::Result;
use std::path::PathBuf;

/// Builds the program `name` of a package; where it lies.
pub(crate) fn program(package: &str, name: &str) -> Result<PathBuf> {
    workspace::build(&["--package", package, "--bin", name])?;
    Ok(workspace::target()?.join("debug").join(name))
}

/// The same, built for speed.
pub(crate) fn fast_program(package: &str, name: &str) -> Result<PathBuf> {
    workspace::build(&["--release", "--package", package, "--bin", name])?;
    Ok(workspace::target()?.join("release").join(name))
}

/// Builds examples of a package; where they lie.
pub(crate) fn examples(package: &str, names: &[&str]) -> Result<Vec<PathBuf>> {
    let mut words = vec!["--package", package];
    if package == "warpverbs" {
        words.extend(["--features", "full"]);
    }
    words.extend(names.iter().flat_map(|name| ["--example", name]));
    workspace::build(&words)?;
    let folder = workspace::target()?.join("debug/examples");
    Ok(names.iter().map(|name| folder.join(name)).collect())
}
