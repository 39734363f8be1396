//! Runs of this program under another that counts, for the examples.

use std::error::Error;
use std::process::Command;

/// The standard error of `tool` for a run of this program with `args`.
pub(crate) fn under(
    tool: &str,
    options: &[&str],
    args: &[String],
) -> Result<String, Box<dyn Error + Send + Sync>> {
    let output =
        Command::new(tool).args(options).arg(std::env::current_exe()?).args(args).output()?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Instructions inside the functions that `names` match, in a run with `args`, by callgrind.
pub(crate) fn instructions(
    names: &str,
    args: &[String],
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let within = format!("--toggle-collect={names}");
    let options = [
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--collect-atstart=no",
        within.as_str(),
    ];
    let text = under("valgrind", &options, args)?;
    let collected = text.lines().find_map(|line| line.split_once("Collected :"));
    let (_, count) = collected.ok_or_else(|| format!("no count in callgrind's output:\n{text}"))?;
    Ok(count.trim().parse()?)
}
