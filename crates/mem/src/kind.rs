//! Kinds of memory.

use std::fmt;

/// Where bytes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Host memory, pinned or not: the CPU loads and stores it.
    Host,
    /// Memory of the CUDA device with this ordinal; only its copy engine reaches it.
    Cuda(u32),
    /// Memory of the HIP device with this ordinal.
    Hip(u32),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Host => f.write_str("host"),
            Kind::Cuda(n) => write!(f, "cuda:{n}"),
            Kind::Hip(n) => write!(f, "hip:{n}"),
        }
    }
}
