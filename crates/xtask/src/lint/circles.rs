//! Circles: files of a crate that use each other, directly or by others. Nobody understands one of
//! them alone.

use super::allowed::Allowed;
use super::modules::{Names, Tree};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Files that may be in one circle.
const MOST: usize = 8;
/// Re-exports that are followed, one after the other.
const MOST_HOPS: u32 = 8;

/// Checks a crate, whose folder is `krate` below `root`.
pub(super) fn check(root: &Path, krate: &Path, allowed: &mut Allowed) -> io::Result<usize> {
    let source = root.join(krate).join("src");
    let (mut found, mut listed) = (0, String::new());
    for name in ["lib.rs", "main.rs"] {
        let file = source.join(name);
        if !file.exists() {
            continue;
        }
        let tree = Tree::read(&file)?;
        let arrows = arrows(&tree);
        for circle in circles(&arrows).iter().filter(|circle| circle.len() > MOST) {
            found = found.max(circle.len());
            listed += &list(&tree, &source, &arrows, circle);
        }
    }
    Ok(allowed.judge("circle", krate, found, || {
        format!("files that use each other, {MOST} may:{listed}")
    }))
}

/// A circle's files, each with those of them that it uses.
fn list(
    tree: &Tree,
    source: &Path,
    arrows: &[BTreeSet<usize>],
    circle: &BTreeSet<usize>,
) -> String {
    let name = |file: usize| {
        let path = &tree.files[file];
        path.strip_prefix(source).unwrap_or(path).display().to_string()
    };
    let line = |&file: &usize| {
        let used: Vec<_> = arrows[file].intersection(circle).map(|&file| name(file)).collect();
        format!("\n  {} uses {}", name(file), used.join(" "))
    };
    circle.iter().map(line).collect()
}

/// Of each file, those that it uses.
fn arrows(tree: &Tree) -> Vec<BTreeSet<usize>> {
    let mut arrows = vec![BTreeSet::new(); tree.files.len()];
    for (name, module) in &tree.modules {
        for path in &module.uses {
            let target = tree.locate(name, path, MOST_HOPS);
            let target = target.and_then(|(target, _)| tree.modules.get(&target));
            if let Some(target) = target.filter(|target| target.file != module.file) {
                arrows[module.file].insert(target.file);
            }
        }
    }
    arrows
}

impl Tree {
    /// The module in which what `path` names for module `at` is defined, and what is left of the path
    /// there. Nothing, if it is of another crate.
    fn locate(&self, at: &Names, path: &[String], hops: u32) -> Option<(Names, Names)> {
        let hops = hops.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Names::new(),
            "self" => at.clone(),
            "super" => at.split_last()?.1.to_vec(),
            name if self.modules.contains_key(&child(at, name)) => child(at, name),
            name => {
                let import = self.modules.get(at)?.imports.get(name)?;
                // `use rdma::Op` names another crate.
                let is_foreign = import.first() == Some(first);
                return (!is_foreign).then(|| self.locate(at, &[import, rest].concat(), hops))?;
            }
        };
        while let Some((next, further)) = rest.split_first() {
            match next.as_str() {
                "super" => drop(base.pop()),
                name if self.modules.contains_key(&child(&base, name)) => base = child(&base, name),
                _ => break,
            }
            rest = further;
        }
        let passed_on = self.passed_on(&base, rest, hops);
        Some(passed_on.unwrap_or((base, rest.to_vec())))
    }

    /// Where a module has from what it does not define itself.
    fn passed_on(&self, at: &Names, path: &[String], hops: u32) -> Option<(Names, Names)> {
        let (name, rest) = path.split_first()?;
        let module = self.modules.get(at)?;
        if module.items.contains(name) {
            return None;
        }
        if let Some(import) = module.imports.get(name) {
            return self.locate(at, &[import, rest].concat(), hops);
        }
        module.globs.iter().find_map(|glob| {
            let (from, _) = self.locate(at, glob, hops).filter(|(_, left)| left.is_empty())?;
            let defines = self.modules.get(&from)?.items.contains(name)
                || self.modules.contains_key(&child(&from, name));
            match defines {
                true => Some((from, path.to_vec())),
                false => self.passed_on(&from, path, hops.checked_sub(1)?),
            }
        })
    }
}

fn child(at: &[String], name: &str) -> Names {
    at.iter().cloned().chain([name.to_owned()]).collect()
}

/// Sets of files that reach each other.
fn circles(arrows: &[BTreeSet<usize>]) -> Vec<BTreeSet<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..arrows.len()).map(|from| reach(arrows, from)).collect();
    let mut circles: Vec<BTreeSet<usize>> = Vec::new();
    for from in 0..arrows.len() {
        if reached[from].contains(&from) && !circles.iter().any(|circle| circle.contains(&from)) {
            circles.push(
                reached[from].iter().copied().filter(|&to| reached[to].contains(&from)).collect(),
            );
        }
    }
    circles
}

/// All files that `from` uses, directly or by others.
fn reach(arrows: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(arrows[file].iter().filter(|&&to| seen.insert(to)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Sizes of the circles in a crate of these files.
    fn sizes(files: &[(&str, &str)]) -> Vec<usize> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let tree = Tree::read(&folder.path().join("lib.rs")).expect("modules");
        assert_eq!(tree.files.len(), files.len());
        circles(&arrows(&tree)).iter().map(BTreeSet::len).collect()
    }

    #[test]
    fn files_that_use_each_other_are_a_circle() {
        let root = ("lib.rs", "mod a; mod b; mod c;");
        let c = ("c/mod.rs", "fn c() -> &'static str { \"crate::a::A\" /* crate::b::B */ }");
        assert_eq!(
            sizes(&[
                root,
                ("a.rs", "use crate::b::B; struct A;"),
                ("b.rs", "struct B(super::a::A);"),
                c
            ]),
            [2]
        );
        assert!(
            sizes(&[root, ("a.rs", "use super::{b::{self, B}};"), ("b.rs", "struct B;"), c])
                .is_empty()
        );
    }

    #[test]
    fn what_is_passed_on_is_followed_and_is_no_use_itself() {
        let root = ("lib.rs", "mod folder; pub use folder::B;");
        let folder = ("folder/mod.rs", "mod a; mod b; pub(crate) use b::*; pub use a::A as First;");
        let a = ("folder/a.rs", "use crate::B; pub struct A;");
        assert!(sizes(&[root, folder, a, ("folder/b.rs", "pub struct B;")]).is_empty());
        let b = ("folder/b.rs", "pub struct B(super::First);");
        assert_eq!(sizes(&[root, folder, a, b]), [2]);
    }

    #[test]
    fn tests_and_other_crates_are_not_looked_at() {
        let root = ("lib.rs", "mod a; mod b;");
        let a = (
            "a.rs",
            "pub struct A; #[cfg(test)] use crate::b::B; #[cfg(test)] mod tests { use crate::b::B; }",
        );
        let b = ("b.rs", "use crate::a::A; use a::X; pub struct B;");
        assert!(sizes(&[root, a, b]).is_empty());
    }
}
