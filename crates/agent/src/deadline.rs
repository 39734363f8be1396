//! How long a whole call may take, however many steps it has.

use crate::AgentError;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A deadline for which no clock is long enough.
const FAR: Duration = Duration::from_secs(u32::MAX as u64);

#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    /// From now on.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self::since(Instant::now(), timeout)
    }

    /// Of a call that began at `start`.
    pub(crate) fn since(start: Instant, timeout: Duration) -> Self {
        Self { start, timeout }
    }

    /// When it ends, or as late as a clock can tell.
    pub(crate) fn until(&self) -> Instant {
        self.start.checked_add(self.timeout).unwrap_or_else(|| self.start + FAR)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.start.elapsed() > self.timeout
    }

    /// The time that is left, or that there is none for `what`.
    pub(crate) fn left(&self, what: impl FnOnce() -> String) -> Result<Duration, AgentError> {
        let left = self.timeout.checked_sub(self.start.elapsed()).filter(|left| !left.is_zero());
        left.ok_or_else(|| self.late(what()))
    }

    pub(crate) fn late(&self, what: String) -> AgentError {
        AgentError::Timeout { what, after: self.timeout }
    }

    /// Waits for `news`, unless there is no time left for `what`.
    pub(crate) fn wait<'a, T>(
        &self,
        news: &Condvar,
        guard: MutexGuard<'a, T>,
        what: impl FnOnce() -> String,
    ) -> Result<MutexGuard<'a, T>, AgentError> {
        let waited = news.wait_timeout(guard, self.left(what)?);
        Ok(waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}
