//! `cargo xtask nixl-sys`: NIXL's own tests of its Rust package `nixl-sys`, on our `libnixl_capi.so`.
//!
//! The package comes from its registry, and is copied below the folder of build outputs to be built and
//! tested; nothing of it is in this repository. It is built with its feature `stub-api`, with which it looks
//! for the library when it runs.

use crate::workspace::{self, TestProgram, cargo};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use std::collections::BTreeSet;
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

/// The result of a test.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// The test looked at what is there, and did nothing; its own words.
    Skipped(String),
    /// Why it cannot pass.
    Unsupported(&'static str),
    Failed(String),
}

/// The tests of one program, and what came of each.
type Outcomes = Vec<(String, Outcome)>;

pub(crate) fn run(options: &NixlSys) -> Result<()> {
    needs_libclang()?;
    let folder = workspace::target()?.join("nixl-sys");
    let library = library(options)?;
    let libraries = library.parent().context("a library without a folder")?;
    let source = source(&folder)?;
    let functions = functions(&source, &library)?;
    let mut all = Vec::new();
    for program in built(&source)? {
        let outcomes = outcomes(&program, libraries, options.words.as_deref())?;
        all.push((program.target, outcomes));
    }
    let tests: usize = all.iter().map(|(_, outcomes)| outcomes.len()).sum();
    ensure!(tests > 0, "no test has {:?} in its name", options.words.as_deref().unwrap_or(""));
    println!("{} has all {functions} functions of nixl-sys {VERSION}", library.display());
    println!(
        "{}",
        table(&all.iter().map(|(program, all)| counts(program, all)).collect::<Vec<_>>())
    );
    let rest = all.iter().flat_map(|(program, all)| all.iter().filter_map(|one| row(program, one)));
    let rest: Vec<_> = rest.collect();
    if !rest.is_empty() {
        println!("{}", table(&rest));
    }
    let failed = all.iter().flat_map(|(_, all)| all);
    let failed = failed.filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    let failed: Vec<_> = failed.map(|(name, _)| name.as_str()).collect();
    ensure!(failed.is_empty(), "{} failed: {}", failed.len(), failed.join(", "));
    Ok(())
}

/// How many tests of a program ended how.
fn counts(program: &str, all: &Outcomes) -> Columns {
    let count = |is: &dyn Fn(&Outcome) -> bool| {
        all.iter().filter(|(_, outcome)| is(outcome)).count().to_string()
    };
    vec![
        ("program", program.to_owned()),
        ("tests", all.len().to_string()),
        ("passed", count(&|one| *one == Outcome::Passed)),
        ("skipped", count(&|one| matches!(one, Outcome::Skipped(_)))),
        ("unsupported", count(&|one| matches!(one, Outcome::Unsupported(_)))),
        ("failed", count(&|one| matches!(one, Outcome::Failed(_)))),
    ]
}

/// A test that did not pass.
fn row(program: &str, (name, outcome): &(String, Outcome)) -> Option<Columns> {
    let (word, why) = match outcome {
        Outcome::Passed => return None,
        Outcome::Skipped(why) => ("skipped", why.as_str()),
        Outcome::Unsupported(why) => ("unsupported", *why),
        Outcome::Failed(why) => ("FAILED", why.as_str()),
    };
    let cells = [program, name, word, why].map(str::to_owned);
    Some(["program", "test", "result", "why"].into_iter().zip(cells).collect())
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

/// How many functions the package declares, all of which the library must have.
fn functions(source: &Path, library: &Path) -> Result<usize> {
    let header = fs::read_to_string(source.join("wrapper.h")).context("the header of nixl-sys")?;
    let declared = declared(&header);
    ensure!(!declared.is_empty(), "the header of nixl-sys declares nothing");
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--format=just-symbols"]).arg(library);
    let symbols = nm.output().context("nm, of binutils")?;
    ensure!(symbols.status.success(), "nm fails ({})", symbols.status);
    let symbols = String::from_utf8_lossy(&symbols.stdout);
    let symbols: BTreeSet<&str> = symbols.lines().collect();
    let missing: Vec<_> = declared.difference(&symbols).copied().collect();
    ensure!(missing.is_empty(), "the library has no {}", missing.join(", "));
    Ok(declared.len())
}

/// The functions of a header: names before a parenthesis, outside of comments.
fn declared(header: &str) -> BTreeSet<&str> {
    let code = header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code));
    let lines =
        code.flat_map(|code| code.lines().map(|line| line.split("//").next().unwrap_or("")));
    let words = lines.flat_map(|line| line.match_indices('(').map(|(at, _)| &line[..at]));
    let last =
        |text: &str| text.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    words.map(|text| &text[last(text)..]).filter(|name| name.starts_with("nixl_capi_")).collect()
}

/// The package's test programs.
fn built(source: &Path) -> Result<Vec<TestProgram>> {
    let mut build = cargo(source);
    build.args(["test", "--quiet", "--no-run", "--test", "*", "--features", "stub-api"]);
    build.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    build.env("CARGO_TARGET_DIR", source.with_file_name("target"));
    let built = build.output().context("cargo")?;
    ensure!(built.status.success(), "nixl-sys cannot be built ({})", built.status);
    Ok(String::from_utf8_lossy(&built.stdout).lines().filter_map(TestProgram::of).collect())
}

/// Runs a program.
fn outcomes(program: &TestProgram, libraries: &Path, words: Option<&str>) -> Result<Outcomes> {
    let mut command = Command::new("timeout");
    command.arg(SECONDS).arg(&program.path).arg("--show-output").args(words);
    command.current_dir(&program.folder).env("LD_LIBRARY_PATH", libraries);
    command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| program.path.display().to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    parsed(&text).with_context(|| {
        println!("{text}");
        format!("{} ends in the middle ({})", program.target, output.status)
    })
}

/// The results that a program of tests prints at its end, with the output of all of them. Its lines before
/// that are mixed with those of the library.
fn parsed(text: &str) -> Option<Outcomes> {
    let (_, result) = text.rsplit_once("\ntest result: ")?;
    let mut counts = result.split(['.', ';']).filter_map(|part| part.trim().split_once(' '));
    let mut count = |what| counts.find(|(_, word)| *word == what)?.0.parse::<usize>().ok();
    let (passed, failed) = (count("passed")?, count("failed")?);
    let (good, bad) = (names(text, "successes"), names(text, "failures"));
    if (good.len(), bad.len()) != (passed, failed) {
        return None;
    }
    let passed = good.into_iter().map(|name| {
        let why = said(text, name).lines().find(|line| line.to_lowercase().contains("skipping"));
        (name.to_owned(), why.map_or(Outcome::Passed, |why| Outcome::Skipped(why.into())))
    });
    let failed = bad.into_iter().map(|name| {
        if let Some((_, why)) = UNSUPPORTED.iter().find(|(test, _)| *test == name) {
            return (name.to_owned(), Outcome::Unsupported(why));
        }
        // The line behind the one that says where it panicked says why.
        let why = said(text, name).lines().skip_while(|line| !line.contains("panicked at")).nth(1);
        (name.to_owned(), Outcome::Failed(why.unwrap_or("nothing said").into()))
    });
    Some(passed.chain(failed).collect())
}

/// The last list of names with this head.
fn names<'a>(text: &'a str, head: &str) -> Vec<&'a str> {
    let list = text.rsplit_once(&format!("\n{head}:\n")).map_or("", |(_, list)| list);
    list.lines().map_while(|line| line.strip_prefix("    ")).collect()
}

/// The output of a test.
fn said<'a>(text: &'a str, name: &str) -> &'a str {
    let Some((_, said)) = text.split_once(&format!("---- {name} stdout ----\n")) else { return "" };
    said.split_once("\n---- ").map_or(said, |(said, _)| said)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
running 4 tests
test one - should panic ... printed by the library
ok
test test_prep_mem_view_local ... FAILED
test three ... FAILED
test four ... ok

successes:

---- four stdout ----
Skipping it - nothing is set


successes:
    four
    one

failures:

---- test_prep_mem_view_local stdout ----

thread 'test_prep_mem_view_local' (8) panicked at here.rs:2:2:
no view

---- three stdout ----

thread 'three' (9) panicked at here.rs:3:3:
why three fails
note: a note


failures:
    test_prep_mem_view_local
    three

test result: FAILED. 2 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.03s
";

    #[test]
    fn outcomes_are_what_was_printed() {
        let expected = [
            ("four", Outcome::Skipped("Skipping it - nothing is set".into())),
            ("one", Outcome::Passed),
            ("test_prep_mem_view_local", Outcome::Unsupported(VIEWS)),
            ("three", Outcome::Failed("why three fails".into())),
        ];
        let expected = expected.map(|(name, outcome)| (name.to_owned(), outcome));
        assert_eq!(parsed(PRINTED).unwrap(), expected);
        assert_eq!(parsed("\ntest result: ok. 0 passed; 0 failed; 0 ignored").unwrap(), []);
    }

    #[test]
    fn functions_are_found_in_a_header() {
        let header = "/* nixl_capi_not(this) */ nixl_capi_status_t nixl_capi_one(void);\n\
                      // nixl_capi_nor(this)\nnixl_capi_status_t\nnixl_capi_two(nixl_capi_agent_t a,\n\
                      int b);\nstruct nixl_capi_s { int a; };\nbool\nnixl_capi_three();\n";
        let expected = ["nixl_capi_one", "nixl_capi_two", "nixl_capi_three"];
        assert_eq!(declared(header), expected.into());
    }

    #[test]
    fn a_program_that_ends_in_the_middle_has_no_outcomes() {
        assert_eq!(parsed(PRINTED.split_once("test result").unwrap().0), None);
        assert_eq!(parsed(&PRINTED.replace("    three\n", "")), None);
    }
}
