//! A case: one thing that every NIC must do.

use crate::Setup;
use crate::rig::End;
use std::fmt;

/// The poster of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Poster {
    /// The CPU.
    Host,
    /// A kernel.
    Kernel,
}

impl fmt::Display for Poster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Kernel => "kernel",
        })
    }
}

/// One thing that every NIC must do.
pub struct Case {
    /// Its name, unique.
    pub name: &'static str,
    /// The poster of its work.
    pub poster: Poster,
    /// The requirement.
    pub about: &'static str,
    /// Whether it makes work fail. On a link that loses packets, the answer that says why may be
    /// lost for good: a QP that has failed does not repeat it.
    pub fails: bool,
    pub(crate) run: fn(&Setup) -> End,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.poster)
    }
}
