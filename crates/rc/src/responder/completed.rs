//! Receives that are complete and not yet polled.

use alloc::collections::VecDeque;

use crate::{Completion, Received, Status};

/// One packet completes at most one receive, so a user that polls after each call needs one place;
/// the others are for packets handled in batches.
const CAPACITY: usize = 64;
/// A failing connection completes two more: the message that is refused and the one not finished.
const RESERVE: usize = 2;

#[derive(Debug)]
pub(crate) struct Completed(VecDeque<Completion>);

impl Completed {
    pub(crate) fn new() -> Self {
        Self(VecDeque::with_capacity(CAPACITY + RESERVE))
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < CAPACITY
    }

    pub(crate) fn push(&mut self, id: u64, received: Received) {
        self.0.push_back(Completion::Receive { id, result: Ok(received) });
    }

    pub(crate) fn push_error(&mut self, id: u64, status: Status) {
        self.0.push_back(Completion::Receive { id, result: Err(status) });
    }

    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.0.pop_front()
    }
}
