//! `cargo xtask verbs-layouts`: the declarations of libibverbs against an independent binding.

use crate::workspace;
use anyhow::{Context as _, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::Command;

const PACKAGE: &str = "crates/verbs/layouts";

/// Where it is built.
#[derive(Args)]
pub(crate) struct Layouts {
    /// Folder of build outputs; beside those of the workspace otherwise.
    #[arg(long, value_name = "FOLDER")]
    build: Option<PathBuf>,
}

pub(crate) fn run(options: &Layouts) -> Result<()> {
    for program in ["cmake", "pkg-config"] {
        let found = Command::new(program).arg("--version").output();
        found.with_context(|| format!("{program}, which ibverbs-sys is built with"))?;
    }
    let package = workspace::root()?.join(PACKAGE);
    let build = match &options.build {
        Some(folder) => folder.clone(),
        None => workspace::target()?.join("verbs-layouts"),
    };
    let mut cargo = workspace::cargo(&package);
    cargo.args(["test", "--quiet", "--locked", "--", "--nocapture"]);
    // The build script asks for the cmake of this name: ours configures and builds nothing.
    cargo.env("CMAKE", package.join("cmake.sh")).env("CARGO_TARGET_DIR", build);
    workspace::done(&mut cargo, &format!("cargo test in {PACKAGE}"))
}
