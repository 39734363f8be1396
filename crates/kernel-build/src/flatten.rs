//! One text out of a file and all project files that it includes, but for the device library's headers.

use crate::error::{BuildError, Place, io};
use crate::scan::{self, Directive};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

/// Where includes are looked up.
pub(crate) struct Flattener<'a> {
    /// The package; all other paths are relative to it.
    pub(crate) root: &'a Path,
    /// Include directories, in order.
    pub(crate) includes: &'a [PathBuf],
    /// The folder of headers that compilers are given beside the text.
    pub(crate) library: &'a Path,
}

/// The result.
pub(crate) struct Flat {
    /// The text, with `#line` directives that name files relative to the package.
    pub(crate) text: String,
    /// Every file in it.
    pub(crate) inputs: BTreeSet<PathBuf>,
}

#[derive(Default)]
struct State {
    text: String,
    inputs: BTreeSet<PathBuf>,
    /// Files whose text stands outside of any condition, so that it need not come again.
    settled: BTreeSet<PathBuf>,
    /// Files being expanded.
    open: Vec<PathBuf>,
    /// Conditions around the current line.
    depth: usize,
}

impl Flattener<'_> {
    /// Expands `file`.
    pub(crate) fn flatten(&self, file: &Path) -> Result<Flat, BuildError> {
        let mut state = State::default();
        self.expand(file, &mut state)?;
        Ok(Flat { text: state.text, inputs: state.inputs })
    }

    fn expand(&self, file: &Path, state: &mut State) -> Result<(), BuildError> {
        let source = std::fs::read_to_string(self.root.join(file)).map_err(io(file))?;
        let blanked = scan::blank(&source);
        state.inputs.insert(file.to_owned());
        state.open.push(file.to_owned());
        mark_line(&mut state.text, file, 1);
        for (index, (line, code)) in source.lines().zip(blanked.lines()).enumerate() {
            let line_number = index + 1;
            match scan::directive(line, code) {
                Some(Directive::Include(path)) => {
                    let place = Place { file: file.to_owned(), line: line_number };
                    let found = self.find(file, &path);
                    let found = found.ok_or(BuildError::UnknownInclude { place, path })?;
                    if let Ok(name) = self.root.join(&found).strip_prefix(self.library) {
                        let _ = writeln!(state.text, "#include \"{}\"", name.display());
                    } else {
                        self.include(&found, state)?;
                        mark_line(&mut state.text, file, line_number + 1);
                    }
                    continue;
                }
                // Within a condition, a system's own header may be meant for another compiler.
                Some(Directive::SystemInclude(path)) if state.depth == 0 => {
                    let place = Place { file: file.to_owned(), line: line_number };
                    return Err(BuildError::UnknownInclude { place, path });
                }
                // The text has its own guards.
                Some(Directive::Once) => state.text.push_str("//"),
                Some(Directive::If) => state.depth += 1,
                Some(Directive::Endif) => state.depth = state.depth.saturating_sub(1),
                _ => {}
            }
            state.text.push_str(line);
            state.text.push('\n');
        }
        state.open.pop();
        Ok(())
    }

    fn include(&self, file: &Path, state: &mut State) -> Result<(), BuildError> {
        if state.settled.contains(file) || state.open.iter().any(|open| open == file) {
            return Ok(());
        }
        if state.depth == 0 {
            state.settled.insert(file.to_owned());
        }
        let guard = guard(file);
        let _ = writeln!(state.text, "#ifndef {guard}\n#define {guard}");
        self.expand(file, state)?;
        let _ = writeln!(state.text, "#endif  // {guard}");
        Ok(())
    }

    /// The included file: beside the including one, or in an include directory.
    fn find(&self, from: &Path, path: &str) -> Option<PathBuf> {
        let beside = from.parent().unwrap_or(Path::new(""));
        let candidates = std::iter::once(beside).chain(self.includes.iter().map(PathBuf::as_path));
        candidates.map(|dir| normal(&dir.join(path))).find(|p| self.root.join(p).is_file())
    }
}

/// Removes `.` and `x/..`, so that a file has one name.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

fn guard(file: &Path) -> String {
    let name = file.display().to_string();
    let name =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    format!("WV_ONCE_{}", name.collect::<String>())
}

fn mark_line(text: &mut String, file: &Path, line: usize) {
    let _ = writeln!(text, "#line {line} \"{}\"", file.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    fn flatten(dir: &tempfile::TempDir, file: &str) -> Result<Flat, BuildError> {
        let includes = [PathBuf::from("inc")];
        let (root, library) = (dir.path(), &dir.path().join("lib"));
        let includes = includes.into_iter().chain([library.clone()]).collect::<Vec<_>>();
        Flattener { root, includes: &includes, library }.flatten(Path::new(file))
    }

    #[test]
    fn files_come_once_with_their_lines() {
        let dir = tree(&[
            ("src/k.cu", "#include \"a.h\"\n#include \"sub/b.h\"\nkernel\n"),
            ("inc/a.h", "#pragma once\n#include \"sub/b.h\"\na\n"),
            ("inc/sub/b.h", "#pragma once\n#include \"../a.h\"\nb\n"),
        ]);
        let flat = flatten(&dir, "src/k.cu").unwrap();
        assert_eq!(flat.text.matches("\nb\n").count(), 1, "{}", flat.text);
        assert!(flat.text.contains("#line 3 \"src/k.cu\"\nkernel\n"), "{}", flat.text);
        assert!(flat.text.contains("#line 3 \"inc/sub/b.h\"\nb\n"), "{}", flat.text);
        let inputs: Vec<_> = flat.inputs.iter().map(|p| p.display().to_string()).collect();
        assert_eq!(inputs, ["inc/a.h", "inc/sub/b.h", "src/k.cu"]);
    }

    #[test]
    fn headers_of_the_library_stay_includes() {
        let dir = tree(&[
            ("src/k.cu", "#include \"a.h\"\n#include \"../lib/wv/b.h\"\nkernel\n"),
            ("inc/a.h", "#pragma once\n#include \"wv/b.h\"\na\n"),
            ("lib/wv/b.h", "#pragma once\nb\n"),
        ]);
        let flat = flatten(&dir, "src/k.cu").unwrap();
        assert!(!flat.text.contains("\nb\n"), "{}", flat.text);
        assert_eq!(flat.text.matches("#include \"wv/b.h\"\n").count(), 2, "{}", flat.text);
    }

    #[test]
    fn what_was_included_under_a_condition_comes_again() {
        let dir = tree(&[
            ("src/k.cu", "#ifdef X\n#include <x>\n#include \"a.h\"\n#endif\n#include \"a.h\"\n"),
            ("inc/a.h", "#pragma once\na\n"),
        ]);
        let text = flatten(&dir, "src/k.cu").unwrap().text;
        assert_eq!(text.matches("\na\n").count(), 2, "{text}");
        assert_eq!(text.matches("#ifndef WV_ONCE_INC_A_H\n").count(), 2, "{text}");
        assert!(text.contains("#include <x>"));
    }

    #[test]
    fn unknown_includes_are_named_with_their_place() {
        let dir = tree(&[
            ("src/k.cu", "\n#include \"a.h\"\n"),
            ("src/s.cu", "#include <vector>\n"),
            ("inc/a.h", "// one\n\n#include \"none.h\"\n"),
        ]);
        let error = flatten(&dir, "src/k.cu").err().unwrap().to_string();
        assert!(error.starts_with("inc/a.h:3: no \"none.h\""), "{error}");
        let error = flatten(&dir, "src/s.cu").err().unwrap().to_string();
        assert!(error.starts_with("src/s.cu:1: no \"vector\""), "{error}");
    }
}
