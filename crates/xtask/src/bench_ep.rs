//! Other libraries' dispatch and combine beside this project: builds `warpverbs` and programs that run their
//! kernels, and measures with `crates/xtask/ep/run.sh`, which needs no cargo itself.

use crate::bench::ours;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

/// Programs that `build.sh` makes, each of the checkout beside it.
const PEERS: [(&str, &str); 2] = [("flashinfer", "flashinfer"), ("deepep", "DeepEP")];

/// Options of `bench-ep`.
#[derive(Args)]
pub(crate) struct Bench {
    /// A folder with checkouts of `DeepEP` and `flashinfer`, or of one of them
    #[arg(long)]
    sources: PathBuf,
    /// Turns of each; the best median counts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=9))]
    turns: u32,
    /// A built `warpverbs`; otherwise it is built
    #[arg(long)]
    program: Option<PathBuf>,
    /// Folder for the JSON of each turn and of the table [default: a new one under /tmp]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Runs nothing here: put programs and scripts into this folder, whose run.sh measures on a machine
    /// with two GPUs
    #[arg(long, conflicts_with_all = ["turns", "out"])]
    collect: Option<PathBuf>,
}

pub(crate) fn run(bench: &Bench) -> Result<()> {
    let sources = &bench.sources;
    let has_one = PEERS.iter().any(|(_, checkout)| sources.join(checkout).is_dir());
    ensure!(
        has_one,
        "{}: expected a folder with a checkout of DeepEP or flashinfer",
        sources.display()
    );
    let program = ours::program(bench.program.as_deref())?;
    let peers = workspace::target()?.join("bench-ep");
    workspace::script("crates/xtask/ep/build.sh", |command| {
        command.args([sources, &peers]);
    })?;
    if let Some(folder) = &bench.collect {
        return collect(folder, &program, &peers);
    }
    workspace::script("crates/xtask/ep/run.sh", |command| {
        command.arg(program).env("PEERS", peers).env("TURNS", bench.turns.to_string());
        command.env_remove("OUT").envs(bench.out.as_ref().map(|out| ("OUT", out)));
    })
}

/// Everything that `run.sh` needs, without debug information.
fn collect(folder: &Path, program: &Path, peers: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    workspace::strip(program, &folder.join("warpverbs"))?;
    for (peer, _) in PEERS {
        if peers.join(peer).exists() {
            workspace::strip(&peers.join(peer), &folder.join(peer))?;
        }
    }
    for script in ["run.sh", "compare.py"] {
        let from = workspace::root()?.join("crates/xtask/ep").join(script);
        fs::copy(&from, folder.join(script)).with_context(|| from.display().to_string())?;
    }
    println!("{}/run.sh measures on a machine with two GPUs", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::fmt::Write as _;
    use std::process::Command;

    /// Copies by another process: a child that another thread starts now would have a file that this one writes
    /// open for a moment, and the system would refuse to execute it.
    fn copy(from: &Path, to: &Path) {
        assert!(Command::new("cp").args([from, to]).status().unwrap().success());
    }

    /// A folder with the scripts, and programs that say what those on two GPUs would.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, body: &str| {
            let source = folder.path().join("source");
            fs::write(&source, format!("#!/bin/sh\n{body}\n")).unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&source, executable).unwrap();
            copy(&source, &folder.path().join(name));
        };
        let peer = |name: &str, ns: u32| {
            let time = format!(r#"{{"p50_ns":{ns},"p99_ns":{ns}}}"#);
            let row = format!(
                r#"{{"peer":"{name}","tokens":8,"bytes":3000000,"pair_ns":20000,"dispatch":{time},"combine":{time}}}"#
            );
            put(name, &format!("[ \"$3\" = 8 ] && echo '{row}'"));
        };
        peer("flashinfer", 5000);
        peer("deepep", 20000);
        put("nvidia-smi", "echo 0, a GPU, 1; echo 1, a GPU, 1");
        let mut rows = String::new();
        for (layout, combine) in [("rank", "reduced"), ("expert", "reduced"), ("expert", "exact")] {
            let part = r#"{"time":{"p50_ns":10000}}"#;
            let comma = if rows.is_empty() { "" } else { "," };
            write!(
                rows,
                r#"{comma}{{"layout":"{layout}","combine":"{combine}","tokens":8,"dispatch":{part},"back":{part},"pair_ns":30000,"channel_bytes":2500000}}"#
            )
            .unwrap();
        }
        put(
            "warpverbs",
            &format!("[ \"$*\" != \"${{*#*--tokens 8 }}\" ] && echo '{{\"rows\":[{rows}]}}'"),
        );
        for script in ["run.sh", "compare.py"] {
            let from = workspace::root().unwrap().join("crates/xtask/ep").join(script);
            copy(&from, &folder.path().join(script));
        }
        folder
    }

    /// Its output, whether it succeeded, and the rows.
    fn ran(folder: &Path) -> (String, bool, Option<Value>) {
        let out = folder.join("out");
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let mut script = Command::new(folder.join("run.sh"));
        script.env("PATH", path).env("TOKENS", "8").env("OUT", &out);
        let done = script.env_remove("PEERS").output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        println!("{text}");
        let rows = fs::read(out.join("rows.json")).ok();
        (text, done.status.success(), rows.map(|rows| serde_json::from_slice(&rows).unwrap()))
    }

    #[test]
    fn rows_stand_beside_those_of_the_same_layout() {
        let folder = folder();
        let (text, success, rows) = ran(folder.path());
        assert!(success, "{text}");
        let rows = rows.unwrap();
        let rows = rows["rows"].as_array().unwrap();
        let ratio = |row: &Value| row["times"]["dispatch"]["ratio"].as_f64().unwrap();
        let found: Vec<_> =
            rows.iter().map(|row| (row["combine"].as_str().unwrap(), ratio(row))).collect();
        assert_eq!(found, [("summed", 2.0), ("reduced", 0.5), ("exact", 0.5)]);
        assert!(text.lines().any(|line| line.ends_with(" 3.0    2.5")), "{text}");
    }

    #[test]
    fn a_program_that_fails_leaves_the_others_rows_and_is_a_failure() {
        let folder = folder();
        copy(Path::new("/bin/false"), &folder.path().join("deepep"));
        let (text, success, rows) = ran(folder.path());
        assert!(!success && text.contains("2 program(s) failed"), "{text}");
        assert_eq!(rows.unwrap()["rows"].as_array().unwrap().len(), 1);
        copy(Path::new("/bin/false"), &folder.path().join("warpverbs"));
        let (text, success, rows) = ran(folder.path());
        assert!(!success && rows.is_none() && text.contains("no row of a peer"), "{text}");
        fs::remove_file(folder.path().join("warpverbs")).unwrap();
        let (text, success, _) = ran(folder.path());
        assert!(!success && text.contains("expected warpverbs"), "{text}");
    }
}
