//! Time, an argument of every call that needs it.

use core::ops::Add;
use core::time::Duration;

/// A moment: nanoseconds since an origin that the caller chooses once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// `nanos` after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`, zero if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates after 584 years.
impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        let nanos = by.as_secs().saturating_mul(1_000_000_000);
        Self(self.0.saturating_add(nanos.saturating_add(u64::from(by.subsec_nanos()))))
    }
}

/// The peer's state as known when a timer is due: time without a processor is not loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// Not known: it may be on another host.
    #[default]
    Unknown,
    /// It lives, and has looked so often for what was sent to it, each time until nothing was left.
    Looked(u64),
    /// Its process has ended, or has closed its end of the link, and everything that it sent before
    /// has been received.
    Ended,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate() {
        let start = Instant::from_nanos(5);
        assert_eq!((start + Duration::from_micros(2)).as_nanos(), 2005);
        assert_eq!((start + Duration::MAX).as_nanos(), u64::MAX);
        assert_eq!(start.since(start + Duration::from_nanos(1)), Duration::ZERO);
        assert_eq!((start + Duration::from_nanos(7)).since(start), Duration::from_nanos(7));
    }
}
