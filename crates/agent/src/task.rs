//! A transfer as a whole: its parts, each between two memories by a path of its own.

use crate::AgentError;
use crate::control::Asked;
use crate::names::{Op, PathKind};
use crate::path::Job;
use crate::route::Chosen;
use std::sync::Arc;

/// Most bytes and pieces of a CPU copy that takes less time than a switch of threads.
const BRIEF: (u64, usize) = (16 << 10, 16);
/// Bytes that the CPU copies in some milliseconds.
const LONG: u64 = 32 << 20;

/// The parts of a transfer.
pub(crate) struct Plan {
    pub(crate) op: Op,
    pub(crate) peer: Arc<dyn Asked>,
    pub(crate) parts: Vec<Part>,
    pub(crate) bytes: u64,
    /// Of all parts, if they take the same.
    pub(crate) path: Option<PathKind>,
    /// Whether a post without a notification is a CPU copy within [`BRIEF`].
    pub(crate) is_brief: bool,
}

/// A job between two memories, and the way.
pub(crate) struct Part {
    pub(crate) job: Arc<Job>,
    pub(crate) route: Arc<Chosen>,
}

impl Plan {
    pub(crate) fn new(op: Op, peer: Arc<dyn Asked>, parts: Vec<Part>) -> Self {
        let bytes = parts.iter().map(|part| part.job.bytes).sum();
        let mut paths = parts.iter().map(|part| part.route.kind());
        let first = paths.next();
        let path = first.filter(|first| paths.all(|path| path == *first));
        let mut plan = Self { op, peer, parts, bytes, path, is_brief: false };
        plan.is_brief = bytes <= BRIEF.0 && plan.pieces() <= BRIEF.1 && plan.is_by_cpu();
        plan
    }

    /// Pieces of all parts.
    pub(crate) fn pieces(&self) -> usize {
        self.parts.iter().map(|part| part.job.pieces.len()).sum()
    }

    fn is_by_cpu(&self) -> bool {
        self.parts.iter().all(|part| part.route.path.is_by_cpu(&part.job))
    }

    /// Whether a post without a notification holds the thread up: it has to connect first, or to copy much.
    pub(crate) fn holds_up(&self) -> bool {
        self.bytes > LONG && self.is_by_cpu()
            || self.parts.iter().any(|part| !part.route.path.is_ready(&part.job))
    }

    /// Bytes that the last post is known to have moved; all of them only when they are in place.
    pub(crate) fn moved(&self) -> u64 {
        self.parts.iter().map(|part| part.job.moved()).sum()
    }

    /// How far the last post has come, for errors.
    pub(crate) fn progress(&self) -> String {
        format!("{} of {} bytes done", self.moved(), self.bytes)
    }

    /// Adds the bytes done to a timeout, and to the loss of this transfer's peer.
    pub(crate) fn told(&self, why: AgentError) -> AgentError {
        match why {
            AgentError::Timeout { what, after } => {
                AgentError::Timeout { what: format!("{what}, {}", self.progress()), after }
            }
            AgentError::PeerLost { peer, why } if peer == self.peer.owner().to_string() => {
                AgentError::PeerLost { peer, why: format!("{why}; {}", self.progress()) }
            }
            why => why,
        }
    }
}
