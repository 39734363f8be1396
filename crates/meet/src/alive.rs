//! Signs of life: a peer that is silent for a while is asked for one, and lost if it gives none.

use std::time::{Duration, Instant};

/// The answer to a peer's silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It was heard, or has time to answer.
    Nothing,
    /// Ask for a sign of life.
    Ask,
    /// It has given none.
    Lost,
}

/// When a peer was heard last, and when it was asked since.
#[derive(Debug)]
pub struct Alive {
    heard: Instant,
    asked: Option<Instant>,
}

/// A peer is asked after so much of the silence that is allowed, and has the rest to answer.
const QUARTERS: u32 = 4;

impl Alive {
    /// It was heard at `now`.
    pub fn new(now: Instant) -> Self {
        Self { heard: now, asked: None }
    }

    /// Bytes of it have come.
    pub fn heard(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// By when to look again.
    pub fn until(&self, silence: Duration) -> Instant {
        let quarter = silence / QUARTERS;
        self.asked.map_or(self.heard + quarter, |asked| asked + (silence - quarter))
    }

    /// To be called when everything that has arrived was read: an agent that had no core for a while
    /// has missed nothing.
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
