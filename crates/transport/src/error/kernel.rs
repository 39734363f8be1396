//! Kernels that failed.

use crate::{Health, Outcome};
use std::fmt;

/// A kernel ended with a bad status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub struct KernelError {
    /// The first bad status of its threads.
    pub outcome: Outcome,
    /// Health of the endpoints that failed.
    pub health: Vec<Health>,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel failed: {}", self.outcome)?;
        self.health.iter().try_for_each(|health| write!(f, "\n{health}"))
    }
}
