//! Why a library does not load.

use crate::sys::LoadFailure;
use thiserror::Error;

/// Why a library of rdma-core cannot be used. The program works without it, with the software NIC.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such file.
    #[error(
        "no {file} here; RDMA devices need rdma-core (Debian and Ubuntu: libibverbs1 and \
         ibverbs-providers; Fedora and RHEL: libibverbs), in a container also inside of it"
    )]
    NotFound {
        /// The file that was looked for.
        file: String,
    },
    /// The file is there and does not load.
    #[error("{file} does not load: {reason}")]
    Unusable {
        /// The file.
        file: String,
        /// The loader's words.
        reason: String,
    },
    /// A function that this crate needs is missing.
    #[error("{file} has no {symbol} of version {version}; rdma-core {needed} or newer is needed")]
    TooOld {
        /// The file.
        file: String,
        /// The function.
        symbol: &'static str,
        /// The version of it that is needed.
        version: &'static str,
        /// The first rdma-core that has all that is needed.
        needed: u32,
    },
}

/// Why the library `file` of rdma-core `needed` or newer did not load.
pub(crate) fn explain(file: &str, needed: u32, failure: LoadFailure) -> LoadError {
    let file = file.to_owned();
    match failure {
        LoadFailure::Symbol(symbol, version) => LoadError::TooOld { file, symbol, version, needed },
        // The same words about another file mean that something the library needs is missing.
        LoadFailure::Library(words)
            if words.starts_with(&format!("{file}:"))
                && words.ends_with("No such file or directory") =>
        {
            LoadError::NotFound { file }
        }
        LoadFailure::Library(reason) => LoadError::Unusable { file, reason },
    }
}
