//! States in which nobody can go on: threads look again, and time passes.

use super::{Choice, Machine, Status, Step};
use crate::scenario::Time;

/// A paused thread looks again although nothing has changed.
pub(super) const SPURIOUS: usize = 100;
/// The same, because nobody else can do anything.
pub(super) const QUIET: usize = 101;

/// Looks of all threads at unchanged memory before time is said to pass.
const ROUNDS: u32 = 40;
/// The same where a host's order to abort must be found: waiters look for it every 256 rounds.
const ROUNDS_TO_ABORT: u32 = 600;

impl Machine<'_> {
    fn most_looks(&self) -> u32 {
        let rounds = if self.scenario.aborts { ROUNDS_TO_ABORT } else { ROUNDS };
        rounds * self.state.threads.len() as u32
    }

    /// Nobody has anything new to look at: all pausing threads look again, one after another.
    pub(super) fn quiet_choice(&self) -> Step<Choice> {
        let count = self.state.threads.len();
        let paused = |t: &usize| {
            matches!(self.state.threads[*t].status, Status::Paused) && self.state.warps.allow(*t)
        };
        let next = (1..=count).map(|i| (self.state.last + i) % count).find(paused);
        match next {
            Some(thread) if self.state.quiet < self.most_looks() || self.may_be_late() => {
                Ok(Choice { thread, way: QUIET })
            }
            _ => Err(self.stuck()),
        }
    }

    /// Once for each thread, and once more: a wait may begin when time has passed before.
    fn may_be_late(&self) -> bool {
        self.scenario.time != Time::Never && self.state.passed as usize <= self.state.threads.len()
    }

    /// Whether time may pass at a look at the clock.
    pub(super) fn time_may_pass(&self) -> bool {
        self.scenario.time == Time::AnyTime && self.state.passed == 0
    }

    /// Nanoseconds. Timeouts are shorter than what passes at a time.
    pub(super) fn clock(&self) -> u64 {
        u64::from(self.state.passed) << 50
    }

    /// A thread looks once more at memory in which nothing has changed.
    pub(super) fn rest(&mut self) {
        self.state.quiet += 1;
        if self.state.quiet > self.most_looks() && self.may_be_late() {
            (self.state.passed, self.state.quiet) = (self.state.passed + 1, 0);
        }
    }
}
