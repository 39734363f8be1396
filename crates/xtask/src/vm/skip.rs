//! A reason why nothing can be tried on this machine.

use thiserror::Error;

/// The reason why guests cannot be booted here, through no fault of the code under test.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Skip(pub(crate) String);
