//! `cargo xtask nixl-sys`: NIXL's own tests of its Rust package `nixl-sys`, on our `libnixl_capi.so`.
//!
//! The package comes from its registry, and is copied below the folder of build outputs to be built and
//! tested; nothing of it is in this repository. It is built with its feature `stub-api`, with which it looks
//! for the library when it runs.

use crate::workspace::{self, TestProgram, cargo};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use warpverbs_bench::output::{Columns, table};

/// The version whose interface the library has.
const VERSION: &str = "1.5.2";
/// Longest time that a program of tests may take: some of them wait without end.
const SECONDS: &str = "300";
/// Tests that cannot pass, and why.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("test_prep_mem_view_local", VIEWS),
    ("test_prep_mem_view_local_with_custom_param", VIEWS),
    ("test_prep_mem_view_remote", VIEWS),
];
const VIEWS: &str = "views for NIXL's device code, which reads UCX's structures";

/// Which library, and which tests.
#[derive(Args)]
pub(crate) struct NixlSys {
    /// A built libnixl_capi.so; otherwise it is built, optimised
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Only tests whose names contain this
    words: Option<String>,
}

/// What came of a test.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// The test looked at what is there, and did nothing; its own words.
    Skipped(String),
    /// Why it cannot pass.
    Unsupported(&'static str),
    Failed(String),
}

pub(crate) fn run(options: &NixlSys) -> Result<()> {
    needs_libclang()?;
    let folder = workspace::target()?.join("nixl-sys");
    let library = library(options)?;
    let libraries = library.parent().context("a library without a folder")?;
    let source = source(&folder)?;
    let (mut rows, mut unexpected, mut passed) = (Vec::new(), Vec::new(), 0);
    for program in built(&source)? {
        let mut tests = outcomes(&program, libraries, options.words.as_deref())?;
        if tests.is_empty() && options.words.is_none() {
            let why = format!("{} has no tests on this machine", program.target);
            tests.push(("-".into(), Outcome::Skipped(why)));
        }
        for (name, outcome) in tests {
            passed += u32::from(outcome == Outcome::Passed);
            if let Outcome::Failed(_) = outcome {
                unexpected.push(format!("{} of {}", name, program.target));
            }
            rows.push(row(&program.target, &name, &outcome));
        }
    }
    ensure!(!rows.is_empty(), "no test has {:?} in its name", options.words);
    println!("{}", table(&rows));
    println!("{passed} of {} passed, nixl-sys {VERSION} on {}", rows.len(), library.display());
    match &unexpected[..] {
        [] => Ok(()),
        failed => bail!("{} failed: {}", failed.len(), failed.join(", ")),
    }
}

fn row(program: &str, name: &str, outcome: &Outcome) -> Columns {
    let (word, why) = match outcome {
        Outcome::Passed => ("passed", ""),
        Outcome::Skipped(why) => ("skipped", why.as_str()),
        Outcome::Unsupported(why) => ("unsupported", *why),
        Outcome::Failed(why) => ("FAILED", why.as_str()),
    };
    let name = name.strip_prefix("test_").unwrap_or(name);
    vec![
        ("program", program.into()),
        ("test", name.into()),
        ("result", word.into()),
        ("why", why.into()),
    ]
}

/// Says what is missing, since the package's build script would only panic.
fn needs_libclang() -> Result<()> {
    let found = Command::new("g++").arg("--version").output();
    found.context("g++, which nixl-sys is built with (Debian: g++)")?;
    let mut folders: Vec<PathBuf> = vec!["/usr/lib64".into(), "/usr/local/lib".into()];
    folders.extend(std::env::var_os("LIBCLANG_PATH").map(PathBuf::from));
    folders.push(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH).into());
    let llvm = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm = llvm.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm"));
    folders.extend(llvm.map(|entry| entry.path().join("lib")));
    let is_libclang = |name: &str| {
        name.starts_with("libclang.so") || name.starts_with("libclang-") && name.contains(".so")
    };
    let has = |folder: &PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.any(|name| is_libclang(&name) && !name.contains("cpp"))
    };
    match folders.iter().any(has) || std::env::var("LIBCLANG_PATH").is_ok() {
        true => Ok(()),
        false => bail!(
            "libclang is nowhere, with which nixl-sys reads its header: install it (Debian: \
             libclang-dev), or name its folder in LIBCLANG_PATH"
        ),
    }
}

fn library(options: &NixlSys) -> Result<PathBuf> {
    let library = match &options.library {
        Some(library) => library.clone(),
        None => {
            workspace::build(&["--release", "--package", "warpverbs-nixl-capi"])?;
            workspace::target()?.join("release/libnixl_capi.so")
        }
    };
    ensure!(library.ends_with("libnixl_capi.so"), "{} has another name", library.display());
    fs::canonicalize(&library).with_context(|| library.display().to_string())
}

/// A copy of the package's source, as it came from the registry, in a workspace of its own.
fn source(folder: &Path) -> Result<PathBuf> {
    let asking = folder.join("asking");
    fs::create_dir_all(asking.join("src"))?;
    fs::write(asking.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[package]\nname = \"asking\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         nixl-sys = {{ version = \"={VERSION}\", features = [\"stub-api\"] }}\n"
    );
    fs::write(asking.join("Cargo.toml"), manifest)?;
    let mut metadata = cargo(&asking);
    metadata.args(["metadata", "--format-version", "1"]).stderr(Stdio::inherit());
    let found = metadata.output().context("cargo metadata")?;
    ensure!(found.status.success(), "nixl-sys {VERSION} is not to be had ({})", found.status);
    let found: Value = serde_json::from_slice(&found.stdout)?;
    let packages = found["packages"].as_array().context("cargo metadata")?;
    let package = packages.iter().find(|package| package["name"] == "nixl-sys");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let manifest = Path::new(manifest.context("nixl-sys is not among its dependents' packages")?);

    let source = folder.join("source");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    copy(manifest.parent().context("a manifest without a folder")?, &source)?;
    let manifest = source.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    fs::write(&manifest, text + "\n[workspace]\n")?;
    Ok(source)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        match path.is_dir() {
            true => copy(&path, &to.join(name))?,
            // Which compiler builds it is not for the package to say.
            false if name == "rust-toolchain.toml" => {}
            false => drop(fs::copy(&path, to.join(name))?),
        }
    }
    Ok(())
}

/// The package's test programs.
fn built(source: &Path) -> Result<Vec<TestProgram>> {
    let mut build = cargo(source);
    build.args(["test", "--quiet", "--no-run", "--lib", "--tests", "--features", "stub-api"]);
    build.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    build.env("CARGO_TARGET_DIR", source.with_file_name("target"));
    let built = build.output().context("cargo")?;
    ensure!(built.status.success(), "nixl-sys cannot be built ({})", built.status);
    Ok(String::from_utf8_lossy(&built.stdout).lines().filter_map(TestProgram::of).collect())
}

/// The tests of a program, and what came of each.
fn outcomes(
    program: &TestProgram,
    libraries: &Path,
    words: Option<&str>,
) -> Result<Vec<(String, Outcome)>> {
    let mut command = Command::new("timeout");
    command.arg(SECONDS).arg(&program.path).arg("--show-output").args(words);
    command.current_dir(&program.folder).env("LD_LIBRARY_PATH", libraries);
    command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| program.path.display().to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let tests = parsed(&text);
    let failed =
        tests.iter().any(|(_, outcome)| !matches!(outcome, Outcome::Passed | Outcome::Skipped(_)));
    if !output.status.success() && !failed {
        println!("{text}");
        bail!("{} ends in the middle ({})", program.target, output.status);
    }
    Ok(tests)
}

/// What a program of tests has printed, with the output of all of them.
fn parsed(text: &str) -> Vec<(String, Outcome)> {
    let ended = text.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    ended
        .map(|(name, result)| {
            let name = name.trim_end_matches(" - should panic");
            let said = said(text, name);
            let skips = said.lines().find(|line| line.to_lowercase().contains("skipping"));
            let unsupported = UNSUPPORTED.iter().find(|(test, _)| *test == name);
            let outcome = match (result, skips, unsupported) {
                ("ok", None, _) => Outcome::Passed,
                ("ok", Some(why), _) => Outcome::Skipped(why.into()),
                (_, _, Some((_, why))) => Outcome::Unsupported(why),
                _ => {
                    // The line behind the one that says where it panicked says why.
                    let why = said.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
                    Outcome::Failed(why.unwrap_or(result).into())
                }
            };
            (name.to_owned(), outcome)
        })
        .collect()
}

/// What a test has printed.
fn said<'a>(text: &'a str, name: &str) -> &'a str {
    let Some((_, said)) = text.split_once(&format!("---- {name} stdout ----\n")) else { return "" };
    said.split_once("\n---- ").map_or(said, |(said, _)| said)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
running 5 tests
test one - should panic ... ok
test test_prep_mem_view_local ... FAILED
test three ... FAILED
test four ... ok

successes:

---- four stdout ----
Skipping it - nothing is set

---- one stdout ----

thread 'one' (7) panicked at here.rs:1:1:
as it should

failures:

---- test_prep_mem_view_local stdout ----

thread 'test_prep_mem_view_local' (8) panicked at here.rs:2:2:
no view

---- three stdout ----

thread 'three' (9) panicked at here.rs:3:3:
why three fails
note: a note
";

    #[test]
    fn outcomes_are_what_was_printed() {
        let expected = [
            ("one", Outcome::Passed),
            ("test_prep_mem_view_local", Outcome::Unsupported(VIEWS)),
            ("three", Outcome::Failed("why three fails".into())),
            ("four", Outcome::Skipped("Skipping it - nothing is set".into())),
        ];
        assert_eq!(parsed(PRINTED), expected.map(|(name, outcome)| (name.to_owned(), outcome)));
    }
}
