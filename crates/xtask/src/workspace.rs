//! Where things of this workspace lie, and cargo in it.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of the root manifest.
pub(crate) fn root() -> io::Result<PathBuf> {
    above(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// The folder of build outputs that this program itself was built into.
pub(crate) fn target() -> io::Result<PathBuf> {
    above(&std::env::current_exe()?)
}

fn above(path: &Path) -> io::Result<PathBuf> {
    let found = path.ancestors().nth(2).map(Path::to_path_buf);
    found.ok_or_else(|| io::Error::other(format!("{} is in no folder", path.display())))
}

/// Cargo, the one that runs this program, in a folder.
pub(crate) fn cargo(folder: impl AsRef<Path>) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder);
    cargo
}

/// Runs a command that must succeed.
pub(crate) fn done(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().with_context(|| what.to_owned())?;
    ensure!(status.success(), "`{what}` fails ({status})");
    Ok(())
}

/// Whether the whole workspace was built before, without optimisation.
pub(crate) fn is_built() -> bool {
    std::env::var_os("WARPVERBS_XTASK_BUILT").is_some()
}

/// Runs `cargo build` with `arguments`, into [`target`]; unless everything was built before, and cargo
/// is busy with something else.
pub(crate) fn build(arguments: &[&str]) -> Result<()> {
    if is_built() {
        return Ok(());
    }
    let mut cargo = cargo(root()?);
    cargo.args(["build", "--quiet"]).args(arguments).env("CARGO_TARGET_DIR", target()?);
    done(&mut cargo, &format!("cargo build {}", arguments.join(" ")))
}

/// Runs a script of the workspace that must succeed.
pub(crate) fn script(path: &str, prepare: impl FnOnce(&mut Command)) -> Result<()> {
    let mut command = warpverbs_bench::child::command(root()?.join(path));
    prepare(&mut command);
    done(&mut command, path)
}

/// A test program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    pub(crate) path: PathBuf,
    /// The folder of its package.
    pub(crate) folder: PathBuf,
    /// The name of its target.
    pub(crate) target: String,
}

/// All test programs, with packages and features as in `cargo test --workspace`, so that nothing is built
/// twice.
pub(crate) fn test_programs(flags: &[&str]) -> Result<Vec<TestProgram>> {
    let mut cargo = cargo(root()?);
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    cargo.args(flags).env("CARGO_TARGET_DIR", target()?).stderr(Stdio::inherit());
    let built = cargo.output().context("cargo")?;
    ensure!(built.status.success(), "`cargo test --workspace --no-run` fails ({})", built.status);
    Ok(String::from_utf8_lossy(&built.stdout).lines().filter_map(TestProgram::of).collect())
}

impl TestProgram {
    /// The program that a message of cargo's is about, if it is one of tests.
    pub(crate) fn of(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        let path = message["executable"].as_str()?.into();
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.into();
        let target = message["target"]["name"].as_str()?.to_owned();
        (message["profile"]["test"] == true).then_some(Self { path, folder, target })
    }
}

/// Copies a program without debug information, which is most of it; whole where there is no `strip`.
pub(crate) fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "-o"]).args([to, from]).stderr(Stdio::null());
    match strip.status() {
        Ok(status) if status.success() => Ok(()),
        _ => fs::copy(from, to).map(drop).with_context(|| from.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_in_what_cargo_says() {
        let message = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/verbs/Cargo.toml","target":{{"name":"it"}},
                   "profile":{{"test":{test}}},"executable":"/w/target/debug/deps/it-1"}}"#
            )
        };
        let (path, folder) = ("/w/target/debug/deps/it-1".into(), "/w/crates/verbs".into());
        let program = TestProgram { path, folder, target: "it".into() };
        assert_eq!(TestProgram::of(&message(true)), Some(program));
        assert_eq!(TestProgram::of(&message(false)), None);
        assert_eq!(TestProgram::of(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
