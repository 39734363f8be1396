//! Programs that look again and again whether something has happened: how long a look takes.

use super::life::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a look at a transfer in progress, or for notifications that have not come, lets other threads run,
/// so that polling does not take the processor from the threads that move the bytes, nor the interpreter from others.
pub(super) const GLANCE: Duration = Duration::from_micros(20);

/// Looks for notifications that follow one another sooner are a loop that does nothing else.
const LOOP: Duration = Duration::from_micros(50);

/// When a look for notifications ended last that had found none.
#[derive(Default)]
pub(super) struct Polls(Mutex<Option<Instant>>);

impl Polls {
    /// How long the next look may wait: programs that look between other work lose no time by it.
    pub(super) fn glance(&self) -> Duration {
        let is_loop = lock(&self.0).is_some_and(|last| last.elapsed() < LOOP);
        if is_loop { GLANCE } else { Duration::ZERO }
    }

    /// Notes what a look found.
    pub(super) fn found(&self, any: bool) {
        *lock(&self.0) = (!any).then(Instant::now);
    }
}
