//! The path that was chosen between two memories: why it was taken, and how fast it is.

use crate::names::PathKind;
use crate::path::Path;
use std::fmt;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warpverbs_mem::{HostBuf, copy_on_host};
use warpverbs_peer::{Decision, Reason};

/// Shorter transfers do not measure a rate.
const TELLING: u64 = 256 << 10;
/// A path this many times slower than the machine's memory is warned of.
const SLOW: f64 = 10.0;
/// The cost of a transfer that moves nothing, until one was measured.
const START: Duration = Duration::from_micros(2);
/// Assumed until measured, bytes per second.
const ASSUMED: f64 = 1e9;

/// The measured rate of a path.
#[derive(Default)]
pub(crate) struct Rate {
    /// Bits of an f64, bytes per second; 0 if nothing was measured.
    bits: AtomicU64,
    warned: AtomicBool,
}

impl Rate {
    pub(crate) fn get(&self) -> Option<f64> {
        Some(f64::from_bits(self.bits.load(Ordering::Relaxed))).filter(|rate| *rate > 0.0)
    }

    /// Takes a transfer into account, unless it is too short: the newest counts a quarter.
    fn record(&self, bytes: u64, took: Duration) -> bool {
        if bytes < TELLING || took.is_zero() {
            return false;
        }
        let new = bytes as f64 / took.as_secs_f64();
        let rate = self.get().map_or(new, |old| 0.75 * old + 0.25 * new);
        // Of two concurrent updates one is lost, which an estimate tolerates.
        self.bits.store(rate.to_bits(), Ordering::Relaxed);
        true
    }

    /// Whether to warn of this rate: once, if it is far below that of the machine's memory.
    fn is_news_that_slow(&self, possible: f64) -> Option<(f64, f64)> {
        let rate = self.get()?;
        let slow = rate * SLOW < possible;
        (slow && !self.warned.swap(true, Ordering::Relaxed)).then_some((rate, possible))
    }
}

/// Rate at which one core of this machine copies memory, bytes per second; measured once.
fn memory_rate() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        const LEN: usize = 4 << 20;
        let (Ok(a), Ok(b)) = (HostBuf::region(LEN), HostBuf::region(LEN)) else { return 0.0 };
        // The first touches the pages.
        let time = |_| {
            let start = Instant::now();
            let copied = copy_on_host(black_box(&a), 0, black_box(&b), 0, LEN);
            copied.map_or(0.0, |()| LEN as f64 / start.elapsed().as_secs_f64())
        };
        (0..4).map(time).fold(0.0, f64::max)
    })
}

/// The path from one memory to another, why no better one, and how fast it is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The path, how it came about, and better ones with the reasons against them.
    pub how: Decision<PathKind>,
    /// Its measured rate, bytes per second.
    pub rate: Option<f64>,
}

/// The path that was chosen for a pair of memories.
pub(crate) struct Chosen {
    pub(crate) how: Decision<PathKind>,
    pub(crate) path: Box<dyn Path>,
    pub(crate) rate: Rate,
    /// Whether it should be about as fast as the memory of this machine.
    pub(crate) same_machine: bool,
}

impl Chosen {
    pub(crate) fn kind(&self) -> PathKind {
        self.how.route
    }

    pub(crate) fn explain(&self) -> Explanation {
        Explanation { how: self.how.clone(), rate: self.rate.get() }
    }

    /// Takes a transfer into account, and warns of a path that is far too slow.
    pub(crate) fn measured(&self, peer: &dyn fmt::Display, bytes: u64, took: Duration) {
        if self.rate.record(bytes, took)
            && self.same_machine
            && let Some((rate, possible)) = self.rate.is_news_that_slow(memory_rate())
        {
            tracing::warn!(
                peer = %peer,
                path = %self.kind(),
                rate_mb_s = (rate / 1e6) as u64,
                memory_mb_s = (possible / 1e6) as u64,
                why = %Reason::list(&self.how.not_better),
                "this path is more than 10 times slower than the machine's memory"
            );
        }
    }

    pub(crate) fn estimate(&self, bytes: u64, pieces: usize) -> Estimate {
        let rate = self.rate.get();
        let seconds = bytes as f64 / rate.unwrap_or(ASSUMED);
        let duration = START + Duration::from_secs_f64(seconds) + START * pieces as u32 / 20;
        let margin = if rate.is_some() { duration / 2 } else { duration };
        Estimate { duration, margin, measured: rate.is_some() }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.how.explain())?;
        self.rate.map_or(Ok(()), |rate| write!(f, ", {:.2} GB/s", rate / 1e9))
    }
}

/// How long a transfer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// From post to done.
    pub duration: Duration,
    /// How far the duration may be off, either way.
    pub margin: Duration,
    /// Whether the path's rate has been measured; else one is assumed.
    pub measured: bool,
}

impl Estimate {
    /// One after the other.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            duration: self.duration + other.duration,
            margin: self.margin + other.margin,
            measured: self.measured && other.measured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_path_is_news_once_and_short_transfers_say_nothing() {
        let second = Duration::from_secs(1);
        let rate = Rate::default();
        assert!(!rate.record(TELLING - 1, second));
        assert_eq!((rate.get(), rate.is_news_that_slow(1e10)), (None, None));
        assert!(rate.record(1_100_000_000, second));
        assert_eq!(rate.is_news_that_slow(1e10), None, "more than a tenth");
        // The newest counts a quarter.
        assert!(rate.record(300_000_000, second));
        assert_eq!(rate.get(), Some(9e8));
        assert_eq!(rate.is_news_that_slow(1e10), Some((9e8, 1e10)));
        assert_eq!(rate.is_news_that_slow(1e10), None, "once");
        assert!(memory_rate() > 1e6);
    }
}
