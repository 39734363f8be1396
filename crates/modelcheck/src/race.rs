//! Breaches of the memory model.

use crate::op::Site;
use std::fmt;

/// A breach of the memory model's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Race {
    /// Two accesses, one of them plain and one a write, and neither happens before the other.
    Unordered { addr: u64, other: Option<Site>, by: usize },
    /// Two atomic accesses, one a write, neither in the other's scope and neither before the other.
    Scope { addr: u64, other: Option<Site>, by: usize },
    /// One location in two sizes.
    Size { addr: u64, first: u8, now: u8 },
    /// An atomic access of a location that was declared plain.
    Plain { addr: u64 },
    /// A location that was never given a value.
    Unknown { addr: u64 },
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |site: &Option<Site>| site.map_or("its read".to_owned(), |s| s.to_string());
        match self {
            Self::Unordered { other, by, .. } => {
                write!(
                    f,
                    "data race with thread {by} at {}: neither is ordered first",
                    place(other)
                )
            }
            Self::Scope { other, by, .. } => {
                write!(f, "scope too narrow: thread {by} at {} is outside of it", place(other))
            }
            Self::Size { first, now, .. } => {
                write!(f, "accessed with {now} bytes, before with {first}")
            }
            Self::Plain { .. } => write!(f, "an atomic access of plain bytes"),
            Self::Unknown { .. } => write!(f, "no such location"),
        }
    }
}
