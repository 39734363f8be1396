//! Reads the golden vectors; their format is in `tests/vectors/README.md`.

use std::path::{Path, PathBuf};

/// One vector: its keyed lines in order, and its bytes.
#[derive(Debug)]
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) lines: Vec<(String, Vec<String>)>,
    pub(crate) bytes: Vec<u8>,
}

impl Vector {
    pub(crate) fn values(&self, key: &str) -> Option<&[String]> {
        self.lines.iter().find(|(k, _)| k == key).map(|(_, values)| values.as_slice())
    }

    pub(crate) fn kind(&self) -> &str {
        &self.values("kind").expect("every vector has a kind")[0]
    }

    /// The first number of a line.
    pub(crate) fn number(&self, key: &str) -> u64 {
        let values = self.values(key).unwrap_or_else(|| panic!("{}: no {key}", self.name));
        number(&values[0])
    }

    /// The numbers of every line with this key.
    pub(crate) fn all(&self, key: &str) -> Vec<Vec<u64>> {
        let lines = self.lines.iter().filter(|(k, _)| k == key);
        lines.map(|(_, values)| values.iter().map(|v| number(v)).collect()).collect()
    }
}

pub(crate) fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub(crate) fn hex_bytes(values: &[String]) -> Vec<u8> {
    values.iter().map(|v| u8::from_str_radix(v, 16).expect("two hex digits")).collect()
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The vector files, in order of their names.
pub(crate) fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join("tests/vectors")).expect("tests/vectors");
    let mut files: Vec<_> = entries.map(|e| e.expect("entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    files.sort();
    files
}

/// Every vector of these kinds; there is at least one of each.
pub(crate) fn vectors(kinds: &[&str]) -> Vec<Vector> {
    let mut all = all_vectors();
    for kind in kinds {
        assert!(all.iter().any(|v| v.kind() == *kind), "no vector of kind {kind}");
    }
    all.retain(|v| kinds.contains(&v.kind()));
    all
}

pub(crate) fn all_vectors() -> Vec<Vector> {
    let mut all = Vec::new();
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("a readable vector file");
        for line in text.lines() {
            let mut words = line.split_whitespace().map(String::from);
            let Some(key) = words.next().filter(|key| !key.starts_with('#')) else { continue };
            let values: Vec<_> = words.collect();
            match key.as_str() {
                "vector" => all.push(Vector {
                    name: values[0].clone(),
                    lines: Vec::new(),
                    bytes: Vec::new(),
                }),
                "end" => {}
                "hex" => {
                    all.last_mut().expect("inside a vector").bytes.extend(hex_bytes(&values));
                }
                _ => all.last_mut().expect("inside a vector").lines.push((key, values)),
            }
        }
    }
    all
}
