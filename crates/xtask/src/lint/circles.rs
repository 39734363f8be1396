//! Circles: files of a crate that use each other, directly or by others. Nobody understands one of
//! them alone. A crate has none, or as large ones as the list of older findings says.

use super::allowed::Allowed;
use super::modules::Tree;
use std::collections::BTreeSet;
use std::path::Path;

/// Checks a crate, whose folder is `krate` and whose programs and library are `trees`.
pub(super) fn check(krate: &Path, trees: &[Tree], allowed: &mut Allowed) -> usize {
    let (mut found, mut listed) = (0, String::new());
    for tree in trees {
        let arrows = arrows(tree);
        for circle in &circles(&arrows) {
            found = found.max(circle.len());
            listed += &list(tree, &arrows, circle);
        }
    }
    allowed.judge("circle", krate, found, || format!("files that use each other:{listed}"))
}

/// A circle's files, each with those of them that it uses.
fn list(tree: &Tree, arrows: &[BTreeSet<usize>], circle: &BTreeSet<usize>) -> String {
    let name = |file: usize| tree.name(file).display().to_string();
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
            let target = tree.locate(name, path);
            let target = target.and_then(|(target, _)| tree.modules.get(&target));
            if let Some(target) = target.filter(|target| target.file != module.file) {
                arrows[module.file].insert(target.file);
            }
        }
    }
    arrows
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
