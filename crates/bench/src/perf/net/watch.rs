//! Waiting on behalf of a timed part.

use super::messages::Message;
use super::side::{Engine, Side};
use crate::rig::talk::Talk;
use anyhow::Result;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The peer lives, but a part takes too long.
#[derive(Debug, Error)]
#[error("the measurement did not finish within {after:?}; measure less, or raise --row-limit")]
pub(crate) struct TooSlow {
    after: Duration,
}

/// Idle turns between looks at clock and control connection.
const LOOK_EVERY: u32 = 1024;
/// Between looks at the control connection.
const CONTROL_EVERY: Duration = Duration::from_millis(20);

/// Waits on behalf of a timed part.
pub(crate) struct Watch<'a> {
    engine: &'a Engine,
    control: &'a mut Talk<Message>,
    start: Instant,
    limit: Duration,
    looked: Instant,
    fruitless: u32,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(side: &'a Side, control: &'a mut Talk<Message>) -> Self {
        let start = Instant::now();
        let (engine, limit) = (&side.engine, side.row_limit());
        Self { engine, control, start, limit, looked: start, fruitless: 0 }
    }

    #[inline]
    pub(crate) fn news(&mut self) {
        self.fruitless = 0;
    }

    /// There was none: lets the engine run. A message of the peer, if one came meanwhile.
    #[inline]
    pub(crate) fn pause(&mut self) -> Result<Option<Message>> {
        self.engine.turn(self.fruitless);
        self.fruitless += 1;
        if self.fruitless.is_multiple_of(LOOK_EVERY) { self.look() } else { Ok(None) }
    }

    #[cold]
    fn look(&mut self) -> Result<Option<Message>> {
        let now = Instant::now();
        self.in_time()?;
        if now - self.looked < CONTROL_EVERY {
            return Ok(None);
        }
        self.looked = now;
        Ok(self.control.poll()?)
    }

    /// Work was posted, or something arrived: the engine goes on with it.
    #[inline]
    pub(crate) fn push(&mut self) {
        self.engine.push();
    }

    pub(crate) fn in_time(&self) -> Result<(), TooSlow> {
        if self.start.elapsed() > self.limit {
            return Err(TooSlow { after: self.limit });
        }
        Ok(())
    }

    /// As [`Self::pause`], where the only message to expect is that the peer failed.
    #[inline]
    pub(crate) fn pause_alone(&mut self) -> Result<()> {
        match self.pause()? {
            None => Ok(()),
            Some(message) => Err(self.control.out_of_turn(message, "nothing yet").into()),
        }
    }
}
