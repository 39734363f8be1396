//! Where a transfer stands. The wish to cancel is in the same word, so it concerns the post that was in
//! progress when it came, and no other.

use crate::names::State;
use std::sync::atomic::{AtomicU8, Ordering};

const NOT_POSTED: u8 = 0;
/// A thread is in `post`.
const POSTING: u8 = 1;
const RUNNING: u8 = 2;
const DONE: u8 = 3;
const FAILED: u8 = 4;
const CANCELLED: u8 = 5;
/// Beside `POSTING` or `RUNNING`: it is to be cancelled.
const CANCEL: u8 = 8;

/// The end of a post.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Done = DONE as isize,
    Failed = FAILED as isize,
    Cancelled = CANCELLED as isize,
}

#[derive(Default)]
pub(crate) struct Phase(AtomicU8);

impl Phase {
    fn get(&self) -> u8 {
        // Acquire, pairs with the release in `end`: a thread that sees Done sees the bytes.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self) -> State {
        match self.get() {
            NOT_POSTED => State::NotPosted,
            DONE => State::Done,
            FAILED => State::Failed,
            CANCELLED => State::Cancelled,
            _ => State::InProgress,
        }
    }

    /// Whether a post has begun, and no thread is in it any more.
    pub(crate) fn is_running(&self) -> bool {
        self.get() & !CANCEL == RUNNING
    }

    /// Begins a post, unless one is in progress.
    pub(crate) fn begin(&self) -> bool {
        let begin = |phase: u8| (!in_progress(phase)).then_some(POSTING);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, begin).is_ok()
    }

    /// The thread in `post` leaves it, and the transfer goes on.
    pub(crate) fn run(&self) {
        self.0.fetch_add(RUNNING - POSTING, Ordering::Release);
    }

    pub(crate) fn end(&self, end: End) {
        self.0.store(end as u8, Ordering::Release);
    }

    /// Whether there is a post to be cancelled.
    pub(crate) fn cancel(&self) -> bool {
        let cancel = |phase: u8| in_progress(phase).then_some(phase | CANCEL);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, cancel).is_ok()
    }

    /// Whether the post in progress is to be cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CANCEL != 0
    }
}

fn in_progress(phase: u8) -> bool {
    matches!(phase & !CANCEL, POSTING | RUNNING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancellation_concerns_the_post_that_is_in_progress() {
        let phase = Phase::default();
        assert!(!phase.cancel());
        assert!(phase.begin() && !phase.begin());
        assert!(!phase.is_cancelled() && phase.cancel());
        assert!(phase.is_cancelled() && !phase.is_running());
        phase.run();
        assert!(phase.is_cancelled() && phase.is_running() && !phase.begin());
        assert_eq!(phase.state(), State::InProgress);
        phase.end(End::Cancelled);
        assert!(!phase.cancel() && !phase.is_cancelled());
        assert_eq!(phase.state(), State::Cancelled);
        assert!(phase.begin() && !phase.is_cancelled());
    }
}
