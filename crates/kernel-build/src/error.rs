//! Faults in a kernel's source, with the place.

use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, relative to the package.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Kernels cannot be built.
#[derive(Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file could not be read or written.
    #[error("{path}: {cause}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// `compile` was called outside a build script.
    #[error("environment variable {variable} is not set; this is meant for build scripts")]
    NotABuildScript {
        /// The missing variable.
        variable: &'static str,
    },
    /// The name of a `.cu` file cannot name a Rust module.
    #[error("{file}: the file's name must be a Rust identifier", file = file.display())]
    FileName {
        /// The file.
        file: PathBuf,
    },
    /// An include that is not in the package.
    #[error(
        "{place}: no {path:?} beside the file or in the include directories; kernels can include \
         project files only, since a GPU's run-time compiler sees no others"
    )]
    UnknownInclude {
        /// Where.
        place: Place,
        /// The path to include.
        path: String,
    },
    /// `WV_KERNEL` is not followed by its proper text.
    #[error("{place}: expected {expected}, found {found:?}")]
    Syntax {
        /// Where.
        place: Place,
        /// The expected text.
        expected: &'static str,
        /// The text that is there.
        found: String,
    },
    /// A parameter of a type that has no Rust counterpart.
    #[error(
        "{place}: parameter `{parameter}` of kernel {kernel}: {reason}; kernels take u8, \
         u16, u32, u64, i32, i64 (as wv:: or as uint8_t to int64_t), float, double, Local, Remote, \
         plain structures, and pointers to these, to Status and to const handles (Qp, Heap)"
    )]
    Parameter {
        /// Where.
        place: Place,
        /// The kernel.
        kernel: String,
        /// The parameter as written.
        parameter: String,
        /// The fault of the parameter.
        reason: &'static str,
    },
    /// Two kernels of one file would have the same launcher.
    #[error("{place}: kernel {kernel} has the same launcher as another one, {launcher}")]
    Duplicate {
        /// Where.
        place: Place,
        /// The kernel.
        kernel: String,
        /// Name of the Rust struct.
        launcher: String,
    },
    /// The host's C++ compiler failed.
    #[error("the C++ compiler failed: {message}")]
    Compile {
        /// The compiler's output.
        message: String,
    },
}

/// Text that a build script's `main` prints.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names the file of an I/O error.
pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BuildError {
    let path = path.to_owned();
    move |cause| BuildError::Io { path, cause }
}
