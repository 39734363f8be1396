//! How long a whole call may take, however many steps it has.

use crate::AgentError;
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub(crate) struct Limit {
    start: Instant,
    timeout: Duration,
}

impl Limit {
    /// From now on.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { start: Instant::now(), timeout }
    }

    /// The time that is left, or that there is none for `what`.
    pub(crate) fn left(&self, what: impl FnOnce() -> String) -> Result<Duration, AgentError> {
        let left = self.timeout.checked_sub(self.start.elapsed()).filter(|left| !left.is_zero());
        left.ok_or_else(|| self.late(what()))
    }

    pub(crate) fn late(&self, what: String) -> AgentError {
        AgentError::Timeout { what, after: self.timeout }
    }
}
