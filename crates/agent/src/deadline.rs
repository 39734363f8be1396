//! How long a whole call may take, however many steps it has.

use crate::AgentError;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub(crate) struct Deadline(pub(crate) warpverbs_meet::Deadline);

impl Deadline {
    /// From now on.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(warpverbs_meet::Deadline::after(timeout))
    }

    /// Of a call that began at `start`.
    pub(crate) fn since(start: Instant, timeout: Duration) -> Self {
        Self(warpverbs_meet::Deadline::since(start, timeout))
    }

    /// The time that is left; a `Timeout` that names `what` if there is none.
    pub(crate) fn left(&self, what: impl FnOnce() -> String) -> Result<Duration, AgentError> {
        self.0.remaining().ok_or_else(|| self.late(what()))
    }

    pub(crate) fn late(&self, what: String) -> AgentError {
        AgentError::Timeout { what, after: self.0.timeout() }
    }

    /// Waits for `news`, or returns a `Timeout` that names `what`.
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
