//! Asynchronous events, which the NIC raises apart from completions.

use std::collections::VecDeque;
use std::fmt;
use warpverbs_rdma::AsyncEvent;

type Handler = Box<dyn Fn(AsyncEvent) + Send>;

/// Events not yet polled, bounded; or the receiver of each as it is raised.
pub(crate) struct Events {
    queue: VecDeque<AsyncEvent>,
    kept: usize,
    pub(crate) lost: u64,
    handler: Option<Handler>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) fn new(kept: usize) -> Self {
        Self { queue: VecDeque::new(), kept, lost: 0, handler: None }
    }

    /// Every event goes to `handler`, those that are kept first.
    pub(crate) fn hand_to(&mut self, handler: Handler) {
        self.queue.drain(..).for_each(&handler);
        self.handler = Some(handler);
    }

    pub(crate) fn push(&mut self, event: AsyncEvent) {
        tracing::debug!(?event, "async event");
        if let Some(handler) = &self.handler {
            handler(event);
        } else if self.queue.len() < self.kept {
            self.queue.push_back(event);
        } else {
            self.lost += 1;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<AsyncEvent> {
        self.queue.pop_front()
    }
}
