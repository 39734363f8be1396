//! Batches that wait for a lane. It takes a part of each in turn, so that a long batch does not keep back
//! the short ones behind it.

use super::batch::{Batch, Lane, Part};
use super::error::FileIoError;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The batches of a lane.
#[derive(Debug)]
pub(super) struct Line {
    lane: Lane,
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<Arc<Batch>>,
    /// Threads that wait for a batch.
    idle: usize,
    /// Why it takes no batch any more.
    closed: Option<FileIoError>,
}

impl Line {
    pub(super) fn new(lane: Lane) -> Self {
        Self { lane, waiting: Mutex::default(), wake: Condvar::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch that fails, if the lane is closed.
    pub(super) fn push(&self, batch: &Arc<Batch>) {
        let mut waiting = self.waiting();
        let Some(error) = waiting.closed.clone() else {
            waiting.batches.push_back(batch.clone());
            self.wake.notify_one();
            return;
        };
        drop(waiting);
        batch.fail(error);
    }

    /// The next part, if there is one.
    pub(super) fn next(&self) -> Option<Part> {
        self.next_of(&mut self.waiting())
    }

    /// The next part. Waits for one; none once the lane is closed.
    pub(super) fn wait(&self) -> Option<Part> {
        let mut waiting = self.waiting();
        loop {
            if let Some(part) = self.next_of(&mut waiting) {
                return Some(part);
            }
            if waiting.closed.is_some() {
                return None;
            }
            waiting.idle += 1;
            waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.idle -= 1;
        }
    }

    fn next_of(&self, waiting: &mut Waiting) -> Option<Part> {
        while let Some(batch) = waiting.batches.pop_front() {
            if let Some((part, has_more)) = batch.take(self.lane) {
                if has_more {
                    waiting.batches.push_back(batch);
                    self.wake.notify_one();
                }
                return Some(part);
            }
        }
        None
    }

    /// Whether batches wait, and no thread for them.
    pub(super) fn is_behind(&self) -> bool {
        let waiting = self.waiting();
        waiting.closed.is_none() && waiting.idle == 0 && !waiting.batches.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting().closed.is_some()
    }

    /// Takes no batch any more, for this reason, and cuts those that wait.
    pub(super) fn close(&self, why: FileIoError) {
        let mut waiting = self.waiting();
        waiting.closed.get_or_insert(why.clone());
        let batches = std::mem::take(&mut waiting.batches);
        drop(waiting);
        self.wake.notify_all();
        for batch in batches {
            batch.fail(why.clone());
        }
    }
}
