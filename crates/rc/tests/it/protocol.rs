//! `docs/protocol.md` says what the code and the tests say: rules that are done have a mark in
//! both, exceptions have one in the code, nothing else has, and the diagram is the table's.

use std::collections::BTreeSet;
use std::path::Path;

use warpverbs_rc::Diagram;

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    std::fs::read_to_string(path).expect("docs/protocol.md")
}

/// Marks like `[req.fence]` in a line.
fn marks(line: &str) -> impl Iterator<Item = &str> {
    line.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(mark, _)| mark)
}

/// All marks of a folder's files: lines `//= …` of Rust, lines `# …` of scripts.
fn marks_under(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            marks_under(&path, found);
            continue;
        }
        let start = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => "//= ",
            Some("pkt") => "# ",
            _ => continue,
        };
        let text = std::fs::read_to_string(&path).expect("text");
        let lines = text.lines().map(str::trim_start).filter(|line| line.starts_with(start));
        found.extend(lines.flat_map(marks).map(String::from));
    }
}

fn marks_of(folder: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    marks_under(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    found
}

/// The first cells of the tables under a heading.
fn listed(document: &str, heading: &str) -> BTreeSet<String> {
    let (_, section) = document.split_once(&format!("\n## {heading}\n")).expect("a heading");
    let section = section.split("\n## ").next().expect("a section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut ids = BTreeSet::new();
    for (id, _) in rows {
        assert!(ids.insert(id.to_string()), "{id} is listed twice");
    }
    assert!(!ids.is_empty(), "nothing under {heading}");
    ids
}

#[test]
fn rules_and_marks_agree() {
    let document = document();
    let (code, tests) = (marks_of("src"), marks_of("tests"));
    let (done, todo) = (listed(&document, "Done"), listed(&document, "To do"));
    let exceptions = listed(&document, "Exceptions");

    let documented: BTreeSet<String> = done.union(&exceptions).cloned().collect();
    assert_eq!(code, documented, "marks in the code (left), rules done and exceptions (right)");
    assert_eq!(tests, done, "marks in the tests (left), rules done (right)");
    assert!(todo.is_disjoint(&code), "to do, but marked in the code");
}

#[test]
fn diagram_is_the_table_s() {
    let diagram = format!("```mermaid\n{Diagram}```\n");
    assert!(document().contains(&diagram), "docs/protocol.md lacks this diagram:\n{diagram}");
}
