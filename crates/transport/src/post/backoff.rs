//! Waiting without a wake-up: spin, then give way, until a deadline.

use std::time::{Duration, Instant};

/// A wait that begins its clock only when it has to.
pub(crate) struct Backoff {
    limit: Duration,
    spins: u32,
    since: Option<Instant>,
}

/// Pauses before a waiter begins to yield its core and to look at the clock.
const SPINS: u32 = 256;

impl Backoff {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, spins: 0, since: None }
    }

    /// Waits a little; false if the time is over.
    #[inline]
    pub(crate) fn pause(&mut self) -> bool {
        self.spins += 1;
        if self.spins < SPINS && !self.limit.is_zero() {
            std::hint::spin_loop();
            return true;
        }
        self.pause_slowly()
    }

    #[cold]
    fn pause_slowly(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        warpverbs_mem::pause();
        since.elapsed() < self.limit
    }
}
