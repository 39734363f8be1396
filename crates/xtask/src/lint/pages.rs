//! Links and names of files in documents lead somewhere.

use std::path::{Path, PathBuf};

/// Endings of the files that documents name in code.
const ENDINGS: [&str; 7] = ["rs", "h", "cu", "c", "cpp", "py", "sh"];

/// Ways to name each tracked file: its whole path, and that without the folder `src` of its crate.
pub(super) struct Names(Vec<String>);

impl Names {
    pub(super) fn of(tracked: &[PathBuf]) -> Self {
        let whole = |file: &PathBuf| format!("/{}", file.display());
        let short = |file: &PathBuf| whole(file).replacen("/src/", "/", 1);
        Self(tracked.iter().flat_map(|file| [whole(file), short(file)]).collect())
    }

    /// Whether a file's name, or the end of it, is this.
    fn have(&self, path: &str) -> bool {
        let path = format!("/{}", path.trim_start_matches(['.', '/']));
        self.0.iter().any(|name| name.ends_with(&path))
    }
}

/// Checks a document: the relative targets of `[text](target)`, and files named as code.
pub(super) fn check(root: &Path, file: &Path, text: &str, names: &Names) -> usize {
    let mut found = 0;
    // The history names files that are gone.
    let is_history = file == Path::new("CHANGELOG.md");
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        is_code ^= line.trim_start().starts_with("```");
        let mut lost = dead_links(root, file, line);
        if !is_code && !is_history {
            lost.extend(code(line).filter(|name| is_file(name) && !names.have(name)));
        }
        for name in &lost {
            println!("{}:{number}: {name} does not exist", file.display());
        }
        found += lost.len();
    }
    found
}

/// Anchors and absolute addresses are not looked at.
fn dead_links<'a>(root: &Path, file: &Path, line: &'a str) -> Vec<&'a str> {
    let base = root.join(file.parent().unwrap_or(Path::new("")));
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let inside = targets.filter(|to| !to.is_empty() && !to.contains("://") && !to.contains(' '));
    inside.filter(|target| !base.join(target).exists()).collect()
}

/// Texts between backticks.
fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_file(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let ending = name.rsplit_once('.').map(|(stem, ending)| (stem.is_empty(), ending));
    ending.is_some_and(|(no_stem, ending)| !no_stem && ENDINGS.contains(&ending))
        && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let root = crate::workspace::root().expect("workspace root");
        let names = Names::of(&[PathBuf::from("crates/nic/src/engine/mod.rs")]);
        check(&root, Path::new("README.md"), text, &names)
    }

    #[test]
    fn a_dead_link_is_found() {
        assert_eq!(found("[a](Cargo.toml) [b](no/such.md) [c](https://x.y)"), 1);
    }

    #[test]
    fn a_file_that_does_not_exist_is_found() {
        assert_eq!(
            found("`engine/mod.rs`, `nic/engine/mod.rs`, `crates/nic/src/engine/mod.rs`"),
            0
        );
        assert_eq!(found("`engine/model.rs` and `tx/engine/mod.rs`"), 2);
        assert_eq!(found("`.h`, `a b.rs`, `*.rs`, `x.toml`, model.rs\n```\n`model.rs`\n```\n"), 0);
    }
}
