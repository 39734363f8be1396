//! The names that users of the crate `warpverbs` can reach: few enough to be learned, each written down.

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use warpverbs::{agent, rendezvous, shmem, transport};

/// Paths, each with the one that the compiler knows its type by.
macro_rules! items {
    ($($path:path),* $(,)?) => { [$((stringify!($path), type_name::<$path>())),*] };
}

/// The most names outside of the module `raw`.
const MOST: usize = 275;

/// The launchers of this package's kernels, which are generated.
const KERNELS: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.rs"));

#[test]
fn the_face_has_names_enough_to_learn() {
    let mut names = Vec::new();
    for file in files(&root().join("src")) {
        if file.file_name().is_some_and(|name| name != "raw.rs") {
            let text = fs::read_to_string(&file).expect("a source file");
            let place = file.file_stem().expect("a name").to_string_lossy().into_owned();
            names.extend(names_of(&text).into_iter().map(|name| format!("{place}: {name}")));
        }
    }
    names.extend(names_of(KERNELS).into_iter().map(|name| format!("kernels: {name}")));
    let count = names.len();
    assert!(count <= MOST, "{count} names, expected {MOST} at most:\n{}", names.join("\n"));
    // Fewer would mean that this test reads the sources wrongly.
    assert!(count > MOST / 2, "only {count} names: {names:?}");
    for name in ["lib: warpverbs_transport::Context", "agent: warpverbs_agent::Agent"] {
        assert!(names.iter().any(|found| found == name), "{name} is not among {names:?}");
    }
}

/// A name means one thing: where two modules export it, it is one item, and is listed here. Kernels are
/// left out, each of which is known by its file.
#[test]
fn a_name_is_one_item() {
    let mut exports = BTreeMap::<String, usize>::new();
    for file in files(&root().join("src")) {
        // A private module, whose items the root exports; and the one that promises nothing.
        if file.file_name().is_some_and(|name| name != "error.rs" && name != "raw.rs") {
            for path in names_of(&fs::read_to_string(&file).expect("a source file")) {
                *exports.entry(last(&path).to_owned()).or_default() += 1;
            }
        }
    }
    exports.retain(|_, count| *count > 1);
    let mut listed = BTreeMap::<&str, Vec<&str>>::new();
    for (path, item) in items![
        agent::ErrorKind,
        transport::ErrorKind,
        agent::Reason,
        shmem::Reason,
        agent::Decision,
        shmem::Decision,
        transport::Decision,
        transport::Reason,
        warpverbs::Access,
        transport::Access,
        warpverbs::Context,
        transport::Context,
        warpverbs::Device,
        transport::Device,
        warpverbs::Endpoint,
        transport::Endpoint,
        warpverbs::EndpointConfig,
        transport::EndpointConfig,
        warpverbs::KernelStatus,
        transport::KernelStatus,
        warpverbs::MemoryRegion,
        transport::MemoryRegion,
        warpverbs::World,
        rendezvous::World,
    ] {
        listed.entry(last(path)).or_default().push(item);
    }
    for (name, count) in &exports {
        let items = listed.remove(&**name).unwrap_or_default();
        assert_eq!(items.len(), *count, "{name} is exported {count} times, listed as {items:?}");
        assert!(items.windows(2).all(|two| two[0] == two[1]), "{name} has meanings: {items:?}");
    }
    assert!(listed.is_empty(), "no two modules export {listed:?}");
}

/// A crate or module that is handed on makes all that it holds reachable, and nobody wrote that down.
#[test]
fn nothing_is_handed_on_whole() {
    let whole = |name: &str| whole(name).then(|| name.to_owned());
    for file in files(&root().join("src")) {
        if file.file_name().is_some_and(|name| name != "raw.rs") {
            let text = fs::read_to_string(&file).expect("a source file");
            let found: Vec<_> = names_of(&text).iter().filter_map(|name| whole(name)).collect();
            assert!(found.is_empty(), "{}: {found:?}", file.display());
        }
    }
    for name in ["warpverbs_gpu", "warpverbs_gpu::*", "warpverbs_gpu::simt"] {
        assert_eq!(whole(name), Some(name.to_owned()));
    }
    assert_eq!(whole("warpverbs_gpu::open"), None);
}

/// Each module says for whom it is, and shows how it is used.
#[test]
fn every_module_begins_with_a_purpose_and_an_example() {
    for file in files(&root().join("src")) {
        if file.file_name().is_some_and(|name| name != "error.rs" && name != "lib.rs") {
            let text = fs::read_to_string(&file).expect("a source file");
            assert!(text.starts_with("//! For "), "{}: for whom is it?", file.display());
            assert!(text.contains("\n//! ```\n"), "{} has no example", file.display());
        }
    }
}

/// An example fits on a slide, and so does each module of its own; all that examples share, wherever it lies, has
/// three slides.
#[test]
fn examples_are_short() {
    let lines = |file: &PathBuf| fs::read_to_string(file).expect("an example").lines().count();
    let examples = root().join("examples");
    let mut single = files(&examples);
    single.retain(|file| file.parent() == Some(&*examples));
    assert!(single.len() > 20, "{single:?}");
    let mut used = BTreeMap::<PathBuf, usize>::new();
    for example in &single {
        assert!(lines(example) <= 120, "{}: {} lines", example.display(), lines(example));
        let text = fs::read_to_string(example).expect("an example");
        assert!(!text.contains("warpverbs_"), "{}: more than the crate's face", example.display());
        let mut found = BTreeSet::new();
        modules(example, true, &mut found);
        found.into_iter().for_each(|module| *used.entry(module).or_default() += 1);
    }
    let shared: Vec<_> = used.iter().filter(|(_, by)| **by > 1).map(|(file, _)| file).collect();
    for (own, _) in used.iter().filter(|(_, by)| **by == 1) {
        assert!(lines(own) <= 120, "{}: {} lines", own.display(), lines(own));
    }
    for file in single.iter().chain(used.keys()) {
        let text = fs::read_to_string(file).expect("an example");
        assert!(!text.contains("::raw"), "{}: names that are not promised", file.display());
    }
    let all: usize = shared.iter().map(|file| lines(file)).sum();
    assert!(all <= 320, "examples share {all} lines: {shared:?}");
    // Fewer would mean that this test does not find them.
    assert!(shared.len() > 1 && all > 100, "{shared:?}");
}

/// Adds the files of all modules that a file declares, and those that these declare.
fn modules(file: &Path, is_root: bool, found: &mut BTreeSet<PathBuf>) {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let (folder, stem) = (file.parent().expect("a folder"), file.file_stem().expect("a name"));
    let children = if is_root || stem == "mod" { folder.to_owned() } else { folder.join(stem) };
    let mut path = None;
    for line in text.lines().map(str::trim) {
        if let Some(named) = line.strip_prefix("#[path = \"").and_then(|l| l.strip_suffix("\"]")) {
            path = Some(folder.join(named));
            continue;
        }
        let declared = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
        if let Some((before, name)) = declared
            && (before.is_empty() || before.starts_with("pub"))
        {
            let usual = [children.join(format!("{name}.rs")), children.join(name).join("mod.rs")];
            let module = path.take().into_iter().chain(usual).find(|path| path.exists());
            let module = module.unwrap_or_else(|| panic!("{}: mod {name}", file.display()));
            let module = module.canonicalize().expect("a file");
            if found.insert(module.clone()) {
                modules(&module, false, found);
            }
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found
}

/// The public part of a file: items by their names, re-exports by their paths.
fn names_of(text: &str) -> Vec<String> {
    let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut names = Vec::new();
    for item in code.split("pub ").skip(1) {
        let (kind, rest) = item.split_once(' ').unwrap_or((item, ""));
        match kind {
            "use" => leaves("", rest.split(';').next().unwrap_or(rest), &mut names),
            "mod" | "struct" | "enum" | "trait" | "fn" | "type" | "const" | "static" => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                names.push(rest[..end.unwrap_or(rest.len())].to_owned());
            }
            // A field.
            _ => {}
        }
    }
    names
}

/// The paths that a tree of a `use` stands for.
fn leaves(before: &str, tree: &str, out: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((path, list)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree).trim();
        if !path.is_empty() {
            out.push(format!("{before}{path}"));
        }
        return;
    };
    let (before, list) = (format!("{before}{path}"), list.trim_end().trim_end_matches('}'));
    let (mut depth, mut start) = (0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                leaves(&before, &list[start..at], out);
                start = at + 1;
            }
            _ => {}
        }
    }
    leaves(&before, &list[start..], out);
}

/// The name that a path ends with.
fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Whether a re-exported path is a crate, a module, or all that one holds.
fn whole(path: &str) -> bool {
    let Some((krate, rest)) =
        path.strip_prefix("warpverbs_").map(|path| path.split_once("::").unwrap_or((path, "*")))
    else {
        return false;
    };
    let last = last(rest);
    let module = format!("pub mod {last}");
    let sources = files(&root().join("crates").join(krate.replace('_', "-")).join("src"));
    let declares = |file: &PathBuf| {
        let text = fs::read_to_string(file).expect("a source file");
        text.lines().any(|line| line.trim().trim_end_matches([';', '{', ' ']) == module)
    };
    last == "*" || last == "self" || sources.iter().any(declares)
}
