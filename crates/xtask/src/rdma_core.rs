//! `cargo xtask rdma-core`: other people's programs on versions of rdma-core that the system does not have.
//!
//! The sources are the caller's; they are built below the folder of build outputs.

use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use warpverbs_bench::output::{Columns, table};

/// Parts of the sources, by their folders: libraries, drivers and programs that the tests use.
const PARTS: [&str; 7] = [
    "libibverbs",
    "librdmacm",
    "providers/efa",
    "providers/mlx5",
    "providers/bnxt_re",
    // From v61 on.
    "providers/ionic",
    "libibverbs/examples",
];

/// Where the sources are, and which tests run.
#[derive(Args)]
pub(crate) struct RdmaCore {
    /// A folder that has a folder of sources for each version
    #[arg(long, value_name = "FOLDER")]
    sources: PathBuf,
    /// Only tests whose names contain this
    #[arg(default_value = "unmodified::")]
    words: String,
}

/// The folders of sources, in the order of their names.
fn versions(sources: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(sources).with_context(|| sources.display().to_string())?;
    let folders = entries.collect::<Result<Vec<_>, _>>()?.into_iter().map(|entry| entry.path());
    let mut found: Vec<_> =
        folders.filter(|folder| folder.join("providers/mlx5/CMakeLists.txt").exists()).collect();
    found.sort();
    let sources = sources.display();
    ensure!(!found.is_empty(), "{sources}: no folder in it has providers/mlx5/CMakeLists.txt");
    Ok(found)
}

/// Builds what the tests use of one version; the folder that has it.
fn built(source: &Path) -> Result<PathBuf> {
    let name = source.file_name().context("sources without a name")?;
    let folder = workspace::target()?.join("rdma-core").join(name);
    fs::create_dir_all(&folder)?;
    let mut cmake = Command::new("cmake");
    cmake.args(["-DNO_MAN_PAGES=1", "-DNO_PYVERBS=1", "-DCMAKE_BUILD_TYPE=Release"]);
    cmake.arg(source.canonicalize()?).current_dir(&folder);
    workspace::done(&mut cmake, "cmake")?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    for part in PARTS.iter().filter(|part| source.join(part).exists()) {
        let mut make = Command::new("make");
        make.args(["-s", "-j", &jobs.to_string(), "-C", part]).current_dir(&folder);
        workspace::done(&mut make, &format!("make -C {part}"))?;
    }
    Ok(folder)
}

/// Whether all tests pass with the build in `folder`.
fn passes(folder: &Path, words: &str) -> Result<bool> {
    // Formats beside a library of the build, and programs with it.
    let tests = [("warpverbs-ionic", "formats", "live::"), ("warpverbs-cli", "it", words)];
    let mut all = true;
    for (package, test, words) in tests {
        let mut cargo = workspace::cargo(workspace::root()?);
        cargo.args(["test", "-p", package, "--test", test, words]);
        cargo.env("WARPVERBS_RDMA_CORE", folder).env("WARPVERBS_REQUIRE_RDMA_CORE", "1");
        all &= cargo.status()?.success();
    }
    Ok(all)
}

pub(crate) fn run(options: &RdmaCore) -> Result<()> {
    let (mut rows, mut failed) = (Vec::<Columns>::new(), Vec::new());
    for source in versions(&options.sources)? {
        let began = Instant::now();
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let outcome = built(&source).and_then(|folder| passes(&folder, &options.words));
        let result = match &outcome {
            Ok(true) => "passed".to_owned(),
            Ok(false) => "FAILED".to_owned(),
            Err(error) => format!("not built: {error:#}"),
        };
        rows.push(vec![
            ("version", name.clone()),
            ("time", format!("{} s", began.elapsed().as_secs())),
            ("result", result),
        ]);
        failed.extend((!matches!(outcome, Ok(true))).then_some(name));
    }
    println!("{}", table(&rows));
    ensure!(failed.is_empty(), "{} failed: {}", failed.len(), failed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_sources_are_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let error = versions(folder.path()).unwrap_err().to_string();
        assert!(error.contains("providers/mlx5/CMakeLists.txt"), "{error}");
        assert!(versions(Path::new("/nowhere")).is_err());
        for name in ["v64", "v50", "notes"] {
            let provider = folder.path().join(name).join("providers/mlx5");
            fs::create_dir_all(&provider).unwrap();
            if name != "notes" {
                fs::write(provider.join("CMakeLists.txt"), "").unwrap();
            }
        }
        let found = versions(folder.path()).unwrap();
        assert_eq!(found, ["v50", "v64"].map(|name| folder.path().join(name)));
    }
}
