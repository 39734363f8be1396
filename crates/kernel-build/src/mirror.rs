//! Checks in tests that Rust and C++ agree.

use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Set, [`generated`] writes the file.
const WRITE: &str = "WARPVERBS_WRITE_HEADERS";

/// Whether a generated file that is checked in is up to date. With `WARPVERBS_WRITE_HEADERS` in the
/// environment it is written first.
///
/// # Errors
///
/// It is not, or cannot be read or written.
pub fn generated(file: &Path, text: &str) -> Result<(), String> {
    let io = |error: std::io::Error| format!("{}: {error}", file.display());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(file, text).map_err(io)?;
    }
    match std::fs::read_to_string(file).map_err(io)? == text {
        true => Ok(()),
        false => Err(format!("{} is out of date: run this test with {WRITE}=1", file.display())),
    }
}

/// A translation unit that compiles only if numbers are the same in both languages.
///
/// ```
/// use warpverbs_kernel_build::Mirror;
///
/// const SLOTS: u32 = 64;
///
/// let mut mirror = Mirror::new("constexpr unsigned slots = 64;");
/// mirror.equal("slots", SLOTS);
/// mirror.compile(std::path::Path::new(".")).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Mirror(String);

impl Mirror {
    /// Of what `prologue` declares or includes.
    pub fn new(prologue: &str) -> Self {
        Self(format!("{prologue}\n"))
    }

    /// A constant expression of C++ has this value.
    pub fn equal(&mut self, expression: &str, value: impl Display) {
        self.0.push_str("static_assert(");
        // Text that can be written to never refuses it.
        let _ = writeln!(self.0, "{expression} == {value}, R\"({expression} == {value})\");");
    }

    /// Expects these bytes of 16-byte segments, each a value with four words `w`, the lowest byte first.
    ///
    /// # Panics
    /// If there are not 16 bytes for each segment.
    pub fn segments(&mut self, segments: &[&str], bytes: &[u8]) {
        assert_eq!(bytes.len(), 16 * segments.len());
        for (segment, bytes) in segments.iter().zip(bytes.chunks(16)) {
            for (i, word) in bytes.as_chunks::<4>().0.iter().enumerate() {
                self.equal(&format!("{segment}.w[{i}]"), format!("{}u", u32::from_le_bytes(*word)));
            }
        }
    }

    /// Compiles with `$CXX` or `c++`, in C++20 and without warnings, headers from `include`.
    ///
    /// # Errors
    ///
    /// The compiler's output, or why it could not be run.
    pub fn compile(&self, include: &Path) -> Result<(), String> {
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let mut command = Command::new(&compiler);
        command.args(["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
        command.arg(include).args(["-x", "c++", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |error: io::Error| format!("{}: {error}", compiler.display());
        let mut child = command.spawn().map_err(failed)?;
        // A compiler that ends before it has read everything says why.
        let written = child.stdin.take().map(|mut unit| unit.write_all(self.0.as_bytes()));
        let output = child.wait_with_output().map_err(failed)?;
        match output.status.success() {
            true => written.unwrap_or(Ok(())).map_err(failed),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_differ_do_not_compile() {
        let checked = |value: u32| {
            let mut mirror = Mirror::new("constexpr unsigned slots = 64;");
            mirror.equal("slots", value);
            mirror.compile(Path::new("."))
        };
        checked(64).unwrap();
        let said = checked(65).unwrap_err();
        assert!(said.contains("slots == 65"), "{said}");
    }

    #[test]
    fn a_file_that_is_out_of_date_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("layout.h");
        assert!(generated(&file, "new").unwrap_err().contains("layout.h"));
        std::fs::write(&file, "old").unwrap();
        assert!(generated(&file, "new").unwrap_err().contains("out of date"));
        generated(&file, "old").unwrap();
    }
}
