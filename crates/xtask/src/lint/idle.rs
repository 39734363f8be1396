//! Tests that no command runs: those in the source of a library whose manifest has `test = false`.

use super::modules::Tree;
use std::io;

/// Marks of a test in a source file.
const MARKS: [&str; 2] = ["#[test]", "#[cfg(test)]"];

/// Checks the files of a package with this manifest.
pub(super) fn check(manifest: &str, trees: &[Tree]) -> io::Result<usize> {
    if !leaves_out(manifest) {
        return Ok(0);
    }
    let mut found = 0;
    for file in trees.iter().flat_map(|tree| &tree.files) {
        let text = std::fs::read_to_string(file)?;
        for line in tests(&text) {
            println!(
                "{}:{line}: a test of a library with `test = false`, so it never runs",
                file.display()
            );
            found += 1;
        }
    }
    Ok(found)
}

/// Whether the manifest's library is built without its tests.
fn leaves_out(manifest: &str) -> bool {
    let library = manifest.lines().skip_while(|line| *line != "[lib]").skip(1);
    library.take_while(|line| !line.starts_with('[')).any(|line| line == "test = false")
}

/// The lines with a mark.
fn tests(text: &str) -> impl Iterator<Item = usize> {
    let marked = |line: &str| MARKS.iter().any(|mark| line.trim_start().starts_with(mark));
    (1..).zip(text.lines()).filter(move |(_, line)| marked(line)).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_a_library_without_tests_are_found() {
        assert!(leaves_out("[lib]\n# None.\ntest = false\n\n[lints]\n"));
        assert!(!leaves_out("[lib]\nname = \"a\"\n\n[[bin]]\ntest = false\n"));
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn b() {}\n}\n";
        assert_eq!(tests(text).collect::<Vec<_>>(), [3, 5]);
    }
}
