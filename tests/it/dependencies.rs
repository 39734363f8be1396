//! docs/dependencies.md has a reason for each package that the root `Cargo.toml` gives a version.

use std::fs;
use std::path::Path;

#[test]
fn every_dependency_has_its_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &Path| fs::read_to_string(name).unwrap_or_else(|e| panic!("{name:?}: {e}"));
    let page = read(&root.join("docs/dependencies.md"));
    let manifest = read(&root.join("Cargo.toml"));
    let (_, table) = manifest.split_once("\n[workspace.dependencies]\n").expect("versions");
    let table = table.split("\n[").next().unwrap_or(table);
    let names: Vec<_> = table
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with('#') && !name.starts_with("warpverbs"))
        .collect();
    assert!(names.len() > 30, "{names:?}");

    let crates = fs::read_dir(root.join("crates")).expect("crates");
    let manifests = crates.map(|entry| entry.expect("a crate").path().join("Cargo.toml"));
    let all: String = manifests.map(|path| read(&path)).chain([manifest.clone()]).collect();
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name} has no reason in the page");
        let used =
            [format!("\n{name}.workspace = true"), format!("\n{name} = {{ workspace = true")];
        assert!(used.iter().any(|line| all.contains(line)), "no package depends on {name}");
    }
}
