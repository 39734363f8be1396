//! The instant at which a wait ends.

use std::time::{Duration, Instant};

/// The instant at which a call gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    start: Instant,
    end: Instant,
}

impl Deadline {
    /// The longest wait: one that is larger is cut to a year, so that adding it to now is defined.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

    /// `timeout` from now.
    pub fn after(timeout: Duration) -> Deadline {
        Self::since(Instant::now(), timeout)
    }

    /// `timeout` from `start`, when the call began.
    pub fn since(start: Instant, timeout: Duration) -> Deadline {
        Deadline { start, end: start + timeout.min(Self::LONGEST) }
    }

    /// The longest wait there was to be.
    pub fn timeout(&self) -> Duration {
        self.end - self.start
    }

    /// The time that is left, or `None` once it has passed.
    pub fn remaining(&self) -> Option<Duration> {
        self.end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// The instant at which it passes.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Whether it has passed.
    pub fn passed(&self) -> bool {
        self.remaining().is_none()
    }

    /// How long the wait has lasted so far.
    pub fn waited(&self) -> Duration {
        self.start.elapsed()
    }
}
