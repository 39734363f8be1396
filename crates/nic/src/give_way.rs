//! Giving up a core for a moment.

use crate::clock::nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A yield that takes longer has given the core to a thread that does not wait for this one: it used
/// up its slice.
const SLICE: Duration = Duration::from_micros(700);
/// After such a one, there is none for so many times as long.
const REST: u32 = 8;

/// Yields a core to threads that give it back soon, such as the peer that this one waits for.
///
/// A thread that only computes keeps the core for its slice, some milliseconds, and the system counts
/// a yield as if this thread had used up its own. A thread that yields every 10 µs beside it gets
/// next to nothing. So a yield that took long is followed by a time without: the thread then gets
/// its share like every other.
#[derive(Debug)]
pub struct GiveWay {
    origin: Instant,
    /// No yield before, in nanoseconds since the origin.
    until: AtomicU64,
}

impl Default for GiveWay {
    fn default() -> Self {
        Self { origin: Instant::now(), until: AtomicU64::new(0) }
    }
}

impl GiveWay {
    /// Yields, unless a yield took long a short while ago.
    pub fn give_way(&self) {
        let before = self.origin.elapsed();
        if nanos(before) < self.until.load(Ordering::Relaxed) {
            return std::hint::spin_loop();
        }
        thread::yield_now();
        let after = self.origin.elapsed();
        let took = after - before;
        if took > SLICE {
            self.until.store(nanos(after + took * REST), Ordering::Relaxed);
        }
    }
}
