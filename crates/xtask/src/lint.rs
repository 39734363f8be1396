//! Limits on tracked files, their functions and types, circles of files, that every relative link and every
//! file name in a document leads somewhere, that no error says what its cause says, how sentences begin, which folder may
//! name which crate, that no test is left out, and that lock files are up to date.

mod allowed;
mod causes;
mod circles;
mod functions;
mod idle;
mod modules;
mod pages;
mod rooms;
mod sentences;
mod types;

use crate::bindgen::GENERATED;
use crate::workspace::{cargo, root};
use allowed::Allowed;
use clap::Args;
use modules::Tree;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines a source file may have.
const MAX_LINES: usize = 500;
/// Lines a public device header may have; bodies belong in `impl/`.
const MAX_HEADER_LINES: usize = 200;

/// How the list of older findings is treated.
#[derive(Args)]
pub(crate) struct Lint {
    /// Writes the list of what older files are allowed anew, where less is found
    #[arg(long)]
    shrink: bool,
}

/// Checks every tracked file; returns the number of findings, each printed.
pub(crate) fn run(options: &Lint) -> io::Result<usize> {
    let root = root()?;
    let mut found = lock(&root.join("fuzz"))?;
    let mut allowed = Allowed::read(&root, options.shrink)?;
    let files = tracked(&root)?;
    let names = pages::Names::of(&files);
    for file in &files {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        found += length(file, &text);
        found += sentences::check(file, &text, &mut allowed);
        match file.extension().and_then(|e| e.to_str()) {
            Some("md") => found += pages::check(&root, file, &text, &names),
            Some("rs") => found += causes::check(file, &text) + rooms::check(file, &text),
            Some("h" | "cu" | "c" | "cc" | "cpp") => {
                found += functions::check(file, &text, &mut allowed);
            }
            _ => {}
        }
        if file.ends_with("Cargo.toml") {
            let folder = file.parent().unwrap_or(Path::new(""));
            let trees = Tree::of_crate(&root.join(folder))?;
            found += circles::check(folder, &trees, &mut allowed);
            found += types::check(folder, &trees, &mut allowed)?;
            found += idle::check(&text, &trees)?;
        }
    }
    Ok(found + allowed.end(&root)?)
}

/// The fuzz targets are a workspace of their own, whose lock file no ordinary build updates.
fn lock(folder: &Path) -> io::Result<usize> {
    let mut metadata = cargo(folder);
    let out = metadata.args(["metadata", "--locked", "--format-version", "1"]).output()?;
    if out.status.success() {
        return Ok(0);
    }
    println!("{}: {}", folder.display(), String::from_utf8_lossy(&out.stderr).trim());
    Ok(1)
}

pub(crate) fn tracked(root: &Path) -> io::Result<Vec<PathBuf>> {
    let out = Command::new("git")
        .args(["ls-files", "-z", "-co", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    if !out.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&out.stderr).into_owned()));
    }
    let names = String::from_utf8_lossy(&out.stdout).into_owned();
    Ok(names.split('\0').filter(|n| !n.is_empty()).map(PathBuf::from).collect())
}

fn length(file: &Path, text: &str) -> usize {
    let source = ["rs", "h", "cu", "cpp", "cc", "c", "py", "sh"];
    let is_script = file.extension().is_none() && text.starts_with("#!");
    if !is_script && !file.extension().and_then(|e| e.to_str()).is_some_and(|e| source.contains(&e))
    {
        return 0;
    }
    let public_header = file.parent() == Some(Path::new("kernels/include/warpverbs"));
    let limit = if public_header { MAX_HEADER_LINES } else { MAX_LINES };
    let lines = text.lines().count();
    // A generated file is read by programs; the program that wrote it is held to the limit.
    if lines <= limit || text.starts_with(GENERATED) {
        return 0;
    }
    println!("{}: {lines} lines, at most {limit} allowed", file.display());
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_found() {
        let text = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(length(Path::new("a.rs"), &text), 1);
        assert_eq!(length(Path::new("a.md"), &text), 0);
        assert_eq!(length(Path::new("a.rs"), &format!("{GENERATED}\n{text}")), 0);
        assert_eq!(length(Path::new("a.rs"), &format!("{text}{GENERATED}\n")), 1);
        assert_eq!(
            length(
                Path::new("kernels/include/warpverbs/qp.h"),
                &"x\n".repeat(MAX_HEADER_LINES + 1)
            ),
            1
        );
    }
}
