//! Asynchronous events, which the NIC raises apart from completions.

use std::collections::VecDeque;
use warpverbs_rdma::AsyncEvent;

/// Events not yet polled, bounded.
#[derive(Debug)]
pub(crate) struct Events {
    queue: VecDeque<AsyncEvent>,
    kept: usize,
    pub(crate) lost: u64,
}

impl Events {
    pub(crate) fn new(kept: usize) -> Self {
        Self { queue: VecDeque::new(), kept, lost: 0 }
    }

    pub(crate) fn push(&mut self, event: AsyncEvent) {
        if self.queue.len() < self.kept {
            self.queue.push_back(event);
        } else {
            self.lost += 1;
        }
        tracing::debug!(?event, "async event");
    }

    pub(crate) fn pop(&mut self) -> Option<AsyncEvent> {
        self.queue.pop_front()
    }
}
