//! Lists of work requests: filled, posted with one call, and used again.
//!
//! A list allocates when it is made and never after. Posted requests are copied by the provider,
//! so a list may be cleared as soon as it was posted; the memory that entries name must stay
//! registered until the completion.

mod chain;
mod recv;
mod send;

pub use recv::RecvList;
pub use send::SendList;

use crate::CallError;
use std::fmt;
use thiserror::Error;

/// A work request does not fit its list. The list is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListError {
    /// All requests are in use.
    #[error("the list has its {capacity} work requests")]
    Full {
        /// Requests it has room for.
        capacity: usize,
    },
    /// Too few entries are left.
    #[error("{needed} entries are needed, {left} of {capacity} are left")]
    Sges {
        /// Entries of the request.
        needed: usize,
        /// Entries left.
        left: usize,
        /// Entries the list has room for.
        capacity: usize,
    },
    /// Too few bytes of inline data are left.
    #[error("{needed} bytes of inline data are needed, {left} of {capacity} are left")]
    Inline {
        /// Bytes of the request.
        needed: usize,
        /// Bytes left.
        left: usize,
        /// Bytes the list has room for.
        capacity: usize,
    },
}

/// Not all of a list was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostError {
    /// The call, and what it reported: `ENOMEM` as a rule if the queue is full.
    pub source: CallError,
    /// Requests from the beginning of the list that were posted.
    pub posted: usize,
    /// Requests of the list.
    pub total: usize,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, posted, total } = self;
        write!(f, "{source}: {posted} of {total} work requests were posted")
    }
}

// Its source is part of its text, so it has none as an error.
impl std::error::Error for PostError {}
