//! The tasks that wait for the end of a transfer.
//!
//! Wakers are code of the program, and run in whichever thread sees the end: as a rule the agent's own.
//! One that panics is reported, and neither keeps the others from being woken nor ends that thread.

use crate::panics::guarded;
use std::task::Waker;

/// One waker for each future that waits, by its number.
#[derive(Default)]
pub(crate) struct Wakers(Vec<(u64, Waker)>);

impl Wakers {
    /// Has `waker` woken for this future, in place of the one that it had before, which is returned.
    pub(crate) fn insert(&mut self, future: u64, waker: Waker) -> Option<Waker> {
        match self.0.iter_mut().find(|(known, _)| *known == future) {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                self.0.push((future, waker));
                None
            }
        }
    }

    /// Nobody waits by this future any more.
    pub(crate) fn remove(&mut self, future: u64) -> Option<Waker> {
        let at = self.0.iter().position(|(known, _)| *known == future);
        at.map(|at| self.0.swap_remove(at).1)
    }

    /// Wakes all of them. No lock is held.
    pub(crate) fn wake(self) {
        for (_, waker) in self.0 {
            guarded("a waker", || waker.wake());
        }
    }
}
