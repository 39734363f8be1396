//! Time as the engine sees it: the machine's clock, or one that a test turns by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A clock that stands still until [`advance`](Self::advance) is called. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// A clock at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Time since the clock was made.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Goes forward by `by`.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(nanos(by), Ordering::AcqRel);
    }

    /// Goes forward by `wait`, what [`SoftNic::next_timer`](crate::SoftNic::next_timer) returned: a timer that is due has
    /// expired only once time has passed.
    pub fn expire(&self, wait: Duration) {
        self.advance(wait.max(Duration::from_nanos(1)));
    }
}

/// Which time drives the NIC's timers: receiver-not-ready, retransmission, delayed completions.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's monotonic clock.
    #[default]
    Monotonic,
    /// A test's clock.
    Virtual(VirtualClock),
}

/// A running [`Clock`]: nanoseconds since the NIC was made.
#[derive(Debug)]
pub(crate) struct Time {
    clock: Clock,
    origin: Instant,
}

impl Time {
    pub(crate) fn start(clock: Clock) -> Self {
        Self { clock, origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> u64 {
        match &self.clock {
            Clock::Monotonic => nanos(self.origin.elapsed()),
            Clock::Virtual(clock) => nanos(clock.now()),
        }
    }
}

/// Nanoseconds, saturating after 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
