//! `cargo xtask package`: the packages that would be published, and that each of them builds from what
//! is in it alone.
//!
//! The packages are unpacked into a workspace of their own, beside a crate of the files that pages
//! show, and find each other there as they would in a registry.

use crate::workspace::{self, cargo, done};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of a crate that others would write: the page that shows each, how its block begins, its name.
const FILES: [(&str, &str, &str); 7] = [
    ("docs/device-api.md", "```toml\n[dependencies]", "Cargo.toml"),
    ("docs/device-api.md", "```rust\n// build.rs", "build.rs"),
    ("docs/device-api.md", "```cpp\n// kernels/exchange.cu", "kernels/exchange.cu"),
    ("docs/device-api.md", "```cpp\n// kernels/verbs.cu", "kernels/verbs.cu"),
    ("docs/device-api.md", "```cpp\n// kernels/mine.cu", "kernels/mine.cu"),
    ("docs/device-api.md", "```rust\n// src/lib.rs", "src/lib.rs"),
    ("docs/shmem.md", "```cpp\n// kernels/ring.cu", "kernels/ring.cu"),
];

pub(crate) fn run() -> Result<()> {
    let (root, target) = (workspace::root()?, workspace::target()?);
    let packages = published(&root)?;
    let mut package = cargo(&root);
    // A change that is not committed yet is packed too.
    package.args(["package", "--no-verify", "--allow-dirty", "--quiet"]);
    package.args(packages.iter().flat_map(|(name, _)| ["--package", name]));
    done(package.env("CARGO_TARGET_DIR", &target), "cargo package")?;

    let all = target.join("package/alone");
    if all.exists() {
        fs::remove_dir_all(&all)?;
    }
    fs::create_dir_all(&all)?;
    let mut members = String::from("[workspace]\nresolver = \"3\"\nmembers = [\"other\"");
    let mut patches = String::from("[patch.crates-io]\n");
    for (name, version) in &packages {
        let folder = format!("{name}-{version}");
        let mut tar = Command::new("tar");
        // With times of now: the compiler takes files that seem older than its last build of the folder for built.
        tar.arg("-xmzf").arg(target.join(format!("package/{folder}.crate"))).arg("-C").arg(&all);
        done(&mut tar, "tar")?;
        write!(members, ", \"{folder}\"")?;
        writeln!(patches, "{name} = {{ path = \"{folder}\" }}")?;
    }
    // With the profile of the workspace, so that what is there of other people's packages serves here too.
    let profile = profile(&fs::read_to_string(root.join("Cargo.toml"))?);
    fs::write(all.join("Cargo.toml"), format!("{members}]\n{patches}{profile}"))?;
    fs::copy(root.join("Cargo.lock"), all.join("Cargo.lock"))?;
    other_crate(&root, &all.join("other"))?;
    let check = |what: &[&str]| {
        let mut check = cargo(&all);
        check.args(["check", "--offline", "--quiet"]).args(what).env("WARPVERBS_KERNELS", "check");
        done(check.env("CARGO_TARGET_DIR", &target), "cargo check")
    };
    check(&["--workspace"])?;
    check(&["--package", "warpverbs", "--features", "full", "--examples"])?;
    println!(
        "{} packages, a crate that uses them, and the examples build from the packages alone",
        packages.len()
    );
    Ok(())
}

/// The tables of the profile `dev` in a manifest.
fn profile(manifest: &str) -> String {
    let (mut text, mut on) = (String::new(), false);
    for line in manifest.lines() {
        if line.starts_with('[') {
            on = line.starts_with("[profile.dev]") || line.starts_with("[profile.dev.");
        }
        if on {
            text.extend([line, "\n"]);
        }
    }
    text
}

/// Name and version of each package that is for others; each says where it comes from.
fn published(root: &Path) -> Result<Vec<(String, String)>> {
    let mut metadata = cargo(root);
    let out = metadata.args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(out.status.success(), "`cargo metadata` fails ({})", out.status);
    let metadata: Value = serde_json::from_slice(&out.stdout)?;
    let packages = metadata["packages"].as_array().context("packages of the workspace")?;
    let mut published = Vec::new();
    // `publish = false` is an empty list of registries.
    for package in packages.iter().filter(|package| package["publish"].is_null()) {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        let name = text("name").context("a package without a name")?;
        for key in ["description", "license", "repository", "documentation"] {
            ensure!(text(key).is_some(), "{name}: its Cargo.toml has no `{key}`");
        }
        published.push((name, text("version").context("a package without a version")?));
    }
    Ok(published)
}

fn other_crate(root: &Path, folder: &Path) -> Result<()> {
    for (page, begin, name) in FILES {
        let text = fs::read_to_string(root.join(page))?;
        let Some((_, after)) = text.split_once(begin) else {
            bail!("{page}: no block begins with {begin:?}");
        };
        let (rest, _) = after.split_once("\n```").context("a block that does not end")?;
        let head = match name {
            "Cargo.toml" => {
                "[package]\nname = \"other\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]"
            }
            _ => "",
        };
        let path: PathBuf = folder.join(name);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(path, format!("{head}{rest}\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn profiles_are_found_between_other_tables() {
        let manifest =
            "[a]\nb = 1\n[profile.dev]\nc = 2\n[profile.dev.package.d]\ne = 3\n[profile.release]\n";
        let found = super::profile(manifest);
        assert_eq!(found, "[profile.dev]\nc = 2\n[profile.dev.package.d]\ne = 3\n");
    }
}
