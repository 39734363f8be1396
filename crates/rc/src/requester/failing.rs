//! Failures of requests: those to come, and the one with which a connection ends.

use super::queue::{Entry, SendQueue};
use crate::{Status, WrId};

#[derive(Debug, Default)]
pub(crate) struct Failing {
    /// A request that cannot be executed locally: it fails in its order, and nothing from it on is
    /// sent.
    held: Option<(WrId, Status)>,
    /// Why the head failed, until it is polled.
    cause: Option<Status>,
    failed: bool,
}

impl Failing {
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The connection fails, unless it did before: its head for a cause, or it only flushes.
    pub(crate) fn fail(&mut self, cause: Option<Status>) -> bool {
        if self.failed {
            return false;
        }
        (self.failed, self.cause) = (true, cause);
        true
    }

    /// Why the head failed, once.
    pub(crate) fn take_cause(&mut self) -> Option<Status> {
        self.cause.take()
    }

    /// Request `id` is to fail in its order. False if it is complete, or behind one that is to fail.
    pub(crate) fn hold(&mut self, id: WrId, status: Status, queue: &SendQueue) -> bool {
        // An earlier request can fail later: its payload was gathered once, and is not again.
        let first = self.held.is_none_or(|(other, _)| other != id && queue.is_before(id, other));
        let holds = first && queue.is_outstanding(id);
        if holds {
            self.held = Some((id, status));
        }
        holds
    }

    /// The status of a request whose order has come to fail.
    pub(crate) fn due(&self, queue: &SendQueue) -> Option<Status> {
        let head = queue.head().map(|head| head.request.id);
        self.held.filter(|(id, _)| Some(*id) == head).map(|(_, status)| status)
    }

    /// Whether a request is the one that is to fail.
    #[inline]
    pub(crate) fn holds(&self, entry: &Entry) -> bool {
        self.held.is_some_and(|(id, _)| id == entry.request.id)
    }
}
