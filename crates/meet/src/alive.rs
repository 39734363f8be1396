//! Keepalives: a peer that is silent for a while is sent one, and is lost if it does not answer.

use std::time::{Duration, Instant};

/// The action that a peer's silence calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing: bytes have arrived recently, or the peer still has time to answer.
    Nothing,
    /// Send a keepalive.
    Ask,
    /// The peer did not answer: it is lost.
    Lost,
}

/// When bytes of a peer last arrived, and when a keepalive was sent since.
#[derive(Debug)]
pub struct Alive {
    heard: Instant,
    asked: Option<Instant>,
}

/// A keepalive is sent after one quarter of the allowed silence; the peer has the rest to answer.
const QUARTERS: u32 = 4;

impl Alive {
    /// A peer whose bytes arrived at `now`.
    pub fn new(now: Instant) -> Self {
        Self { heard: now, asked: None }
    }

    /// Bytes of the peer have arrived.
    pub fn heard(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// When to call [`Self::look`] again.
    pub fn until(&self, silence: Duration) -> Instant {
        let quarter = silence / QUARTERS;
        self.asked.map_or(self.heard + quarter, |asked| asked + (silence - quarter))
    }

    /// Decides what to do. Call it after everything that has arrived was read, so that a process that had
    /// no core for a while does not take unread bytes for silence.
    pub fn look(&mut self, now: Instant, silence: Duration) -> Due {
        match self.asked {
            _ if now < self.until(silence) => Due::Nothing,
            Some(_) => Due::Lost,
            None => {
                self.asked = Some(now);
                Due::Ask
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_asked_once_and_then_lost() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let silence = Duration::from_millis(400);
        let mut alive = Alive::new(start);
        assert_eq!(alive.until(silence), at(100));
        assert_eq!(alive.look(at(99), silence), Due::Nothing);
        assert_eq!(alive.look(at(100), silence), Due::Ask);
        assert_eq!(alive.look(at(101), silence), Due::Nothing);
        // It answers, late.
        alive.heard(at(399));
        assert_eq!(alive.look(at(400), silence), Due::Nothing);
        // After a late look the peer is asked first, and its answer waited for.
        assert_eq!(alive.look(at(10_000), silence), Due::Ask);
        assert_eq!(alive.until(silence), at(10_300));
        assert_eq!(alive.look(at(10_299), silence), Due::Nothing);
        assert_eq!(alive.look(at(10_300), silence), Due::Lost);
    }
}
