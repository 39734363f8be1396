//! `cargo xtask gpu`: the tests that need a GPU or NVRTC, in one folder that runs where there is no
//! Rust.

use crate::workspace::{self, TestProgram};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("../gpu/run.sh");
/// Begins the reason of a test that is ignored because it needs a device or a compiler. Others are
/// parts of tests, or measurements.
const NEEDS: &str = "needs ";
/// Begins the reason of tests that are for other machines, where an environment variable names the device.
const NEEDS_AMD: &str = "needs an AMD GPU";
/// Tests of these names compile a libibverbs beside their program, for others to use.
const WITH_FAKE: &str = "gpu_memory";
/// Tests of these names run examples, which they find in `examples` beside their program.
const WITH_EXAMPLES: &str = "on_a_gpu::";
/// Library that cargo builds beside the tests of a package, which look for it there.
const LIBRARIES: [(&str, &str); 1] = [("nixl-capi-it", "libnixl_capi.so")];

/// Choice of tests, and whether they run here.
#[derive(Args)]
pub(crate) struct Gpu {
    /// Where programs, list and script go [default: gpu-tests in the folder of build outputs]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Runs nothing here: copy the folder to the GPU machine, and start its run.sh
    #[arg(long)]
    collect: bool,
    /// Builds without debug assertions
    #[arg(long)]
    release: bool,
    /// Only tests whose program and name contain this
    words: Option<String>,
}

pub(crate) fn run(options: &Gpu) -> Result<()> {
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => workspace::target()?.join("gpu-tests"),
    };
    let (programs, tests) = collect(&folder, options.release)?;
    println!("{tests} tests in {programs} programs: {}", folder.display());
    if options.collect {
        return Ok(());
    }
    workspace::done(Command::new(folder.join("run.sh")).args(&options.words), "run.sh")
}

/// How many programs with how many tests.
fn collect(folder: &Path, release: bool) -> Result<(usize, usize)> {
    // Programs of before have other hashes in their names.
    if folder.join("tests.txt").exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let (mut programs, mut list) = (0, String::new());
    for (name, program) in built(release)? {
        let tests = needy(&program)?;
        if tests.is_empty() {
            continue;
        }
        workspace::strip(&program, &folder.join(&name))?;
        if tests.iter().any(|(test, _)| test.contains(WITH_FAKE)) {
            copy_fakes(&program, folder)?;
        }
        let profile = program.ancestors().nth(2).context("a program's profile")?;
        if tests.iter().any(|(test, _)| test.starts_with(WITH_EXAMPLES)) {
            copy_examples(&profile.join("examples"), &folder.join("examples"), release)?;
        }
        for (_, library) in LIBRARIES.iter().filter(|(program, _)| *program == name) {
            workspace::strip(&program.with_file_name(library), &folder.join(library))?;
        }
        for (test, needs) in tests {
            writeln!(list, "{name} {test} {needs}")?;
        }
        programs += 1;
    }
    fs::write(folder.join("tests.txt"), &list)?;
    let script = folder.join("run.sh");
    fs::write(&script, SCRIPT)?;
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, executable)?;
    Ok((programs, list.lines().count()))
}

/// All test programs. Each is called by its package's folder and its target.
fn built(release: bool) -> Result<Vec<(String, PathBuf)>> {
    let root = workspace::root()?;
    let flags: &[&str] =
        if release { &["--lib", "--tests", "--release"] } else { &["--lib", "--tests"] };
    let named = |TestProgram { path, folder, target }: TestProgram| {
        let package = match folder == root {
            true => "warpverbs".into(),
            false => folder.file_name().unwrap_or_default().to_string_lossy(),
        };
        (format!("{package}-{target}"), path)
    };
    Ok(workspace::test_programs(flags)?.into_iter().map(named).collect())
}

/// Its tests that need something, and what.
fn needy(program: &Path) -> Result<Vec<(String, String)>> {
    let listed = said(program, &["--list", "--ignored", "--format", "terse"])?;
    let ignored: Vec<_> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    if ignored.is_empty() {
        return Ok(Vec::new());
    }
    // Without `--ignored` none of them runs, and each is shown with its reason.
    let shown = said(program, &[&["--exact"], &ignored[..]].concat())?;
    let mut tests = Vec::new();
    for test in ignored {
        let head = format!("test {test} ... ignored");
        let Some(line) = shown.lines().find_map(|line| line.strip_prefix(&head)) else {
            bail!("{}: nothing is said of {test}: {shown}", program.display());
        };
        let reason = line.trim_start_matches(", ");
        if reason.starts_with(NEEDS) && !reason.starts_with(NEEDS_AMD) {
            tests.push((test.to_owned(), reason.to_owned()));
        }
    }
    Ok(tests)
}

fn said(program: &Path, arguments: &[&str]) -> Result<String> {
    let out = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let out = out.with_context(|| program.display().to_string())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(out.status.success(), "{} {}: {text}", program.display(), arguments.join(" "));
    Ok(text)
}

/// Builds the examples, and copies them.
fn copy_examples(built: &Path, to: &Path, release: bool) -> Result<()> {
    let mut cargo = workspace::cargo(&workspace::root()?);
    cargo.args(["build", "--features", "full", "--examples"]);
    if release {
        cargo.arg("--release");
    }
    workspace::done(&mut cargo, "the examples")?;
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(workspace::root()?.join("examples"))? {
        let source = entry?.path();
        let Some(name) = source.file_stem().filter(|_| source.extension() == Some("rs".as_ref()))
        else {
            continue;
        };
        workspace::strip(&built.join(name), &to.join(name))?;
    }
    Ok(())
}

/// Copies the libraries that the tests without a GPU have compiled beside their program.
fn copy_fakes(program: &Path, folder: &Path) -> Result<()> {
    said(program, &[WITH_FAKE])?;
    for entry in fs::read_dir(program.parent().context("a program's folder")?)? {
        let entry = entry?;
        let name = entry.file_name();
        let library = entry.path().join("libibverbs-fake.so");
        if name.to_string_lossy().starts_with("fake-ibverbs-") && library.exists() {
            fs::create_dir_all(folder.join(&name))?;
            fs::copy(&library, folder.join(name).join("libibverbs-fake.so"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of programs that answer as tests do.
    fn folder(tests: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            let source = path.with_extension("source");
            fs::write(&source, text).unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&source, executable).unwrap();
            // By another process: a child that another thread starts now would have the file open for
            // writing for a moment, and the system would refuse to execute it.
            let copied = Command::new("cp").args([&source, &path]).status().unwrap();
            assert!(copied.success());
        };
        write("run.sh", SCRIPT);
        let mut list = String::new();
        for (name, body) in tests {
            write(name, &format!("#!/bin/sh\n{body}\n"));
            writeln!(list, "{name} a::test needs an NVIDIA GPU").unwrap();
        }
        write("tests.txt", &list);
        folder
    }

    /// Its last line, and whether it succeeded.
    fn ran(folder: &tempfile::TempDir, words: &str, limit: &str) -> (String, bool) {
        let mut script = Command::new(folder.path().join("run.sh"));
        let out = script.arg(words).env("LIMIT", limit).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        println!("{text}");
        (text.lines().last().unwrap_or_default().to_owned(), out.status.success())
    }

    const LONG: &str = "600";
    const OK: &str = "echo 'test a::test ... ok'; echo 'test result: ok. 1 passed; 0 failed'";

    #[test]
    fn the_last_line_says_how_many_passed_failed_and_were_skipped() {
        let one = "echo 'SKIPPED: one NVIDIA GPU here, two are needed';";
        let other = "echo 'test a::test ... SKIPPED a::test: needs headers';";
        let folder = folder(&[
            ("good", OK),
            ("second", OK),
            ("alone", &format!("{one} {OK}")),
            ("lonely", &format!("{one} {OK}")),
            ("headless", &format!("{other} {OK}")),
            ("wrong", "echo 'test result: FAILED. 0 passed; 1 failed'; exit 101"),
            ("renamed", "echo 'test result: ok. 0 passed; 0 failed'"),
            ("killed", "kill -SEGV $$"),
        ]);
        let (line, success) = ran(&folder, "", LONG);
        let counts = "2 passed, 3 failed, 3 skipped";
        let why = "needs headers (1);one NVIDIA GPU here, two are needed (2)";
        assert!(line.ends_with(&format!("{counts}: {why}")) && !success, "{line}");
        let (line, success) = ran(&folder, "good a::test", LONG);
        assert!(line.ends_with(": 1 passed, 0 failed, 0 skipped") && success, "{line}");
        // A run without tests shows nothing.
        let (line, success) = ran(&folder, "none of these", LONG);
        assert!(line.ends_with(": 0 passed, 0 failed, 0 skipped") && !success, "{line}");
    }

    #[test]
    fn a_test_that_does_not_end_has_failed() {
        let (line, success) = ran(&folder(&[("endless", "exec sleep 1000")]), "", "1");
        assert!(line.ends_with(": 0 passed, 1 failed, 0 skipped") && !success, "{line}");
    }
}
