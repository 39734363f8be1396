//! The project's own benchmark: `warpverbs perf … local`.

use super::compared::What;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use warpverbs_bench::child::{self, Running};

/// For all rows of a run, each of which has a limit of its own.
const LIMIT: Duration = Duration::from_secs(600);

/// Where the program is: `given`, or built in release.
pub(crate) fn program(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        return given.canonicalize().with_context(|| given.display().to_string());
    }
    let mut cargo = workspace::cargo(workspace::root()?);
    cargo.args(["build", "--release", "--package", "warpverbs-cli", "--message-format=json"]);
    let out = cargo.stderr(Stdio::inherit()).output()?;
    ensure!(out.status.success(), "the build of warpverbs-cli ended with {}", out.status);
    let text = String::from_utf8_lossy(&out.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs =
        messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next_back().context("cargo named no program")
}

/// The program, without the variables that the user exported for other runs: they would change the rows.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = child::command(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"WARPVERBS_") {
            command.env_remove(name);
        }
    }
    command
}

/// Rows of one run; every byte was compared, or it fails.
pub(crate) fn run(program: &Path, line: &str) -> Result<Vec<Value>> {
    let mut command = command(program);
    command.arg("perf").args(line.split_whitespace()).arg("--json").stdout(Stdio::piped());
    let name = format!("warpverbs perf {line}");
    let text = Running::start(name.clone(), &mut command)?.finish(Instant::now() + LIMIT)?;
    rows(&text).context(name)
}

/// The figure of a run with messages of one size.
pub(crate) fn figure(
    program: &Path,
    line: &str,
    (what, bytes, seconds): (What, u64, f64),
) -> Result<f64> {
    let pointer = match what {
        What::Latency => "/latency/p50_ns",
        What::Rate => "/messages_per_s",
        What::Bandwidth => "/bytes_per_s",
    };
    let line = format!("{line} -b {bytes} -e {bytes} -D {seconds}");
    number(&run(program, &line)?[0], pointer)
}

/// The rows that a run printed.
pub(crate) fn rows(text: &str) -> Result<Vec<Value>> {
    // Libraries may have warned before it.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let mut document: Value =
        serde_json::from_str(json).with_context(|| format!("no JSON in {text}"))?;
    match document["rows"].take() {
        Value::Array(rows) if !rows.is_empty() => Ok(rows),
        _ => anyhow::bail!("no rows in {text}"),
    }
}

/// A number of a row.
pub(crate) fn number(row: &Value, pointer: &str) -> Result<f64> {
    row.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("{pointer} of {row}"))
}
