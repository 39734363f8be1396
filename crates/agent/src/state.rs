//! What a transfer does, and where it stands.

use crate::path::PathKind;
use std::time::Duration;

/// Which way a transfer moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// From the peer's memory to this agent's.
    Read,
    /// From this agent's memory to the peer's.
    Write,
}

/// Where a transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not posted yet.
    NotPosted,
    /// Posted; blocks are under way.
    InProgress,
    /// All blocks are in place, and the peer has the notification, if there is one. Terminal.
    Done,
    /// It failed; [`Transfer::error`](crate::Transfer::error) has the first cause. Blocks may have been moved in part.
    /// Terminal.
    Failed,
    /// It was cancelled. Blocks may have been moved in part. Terminal.
    Cancelled,
}

impl State {
    /// Whether the transfer is over, until it is posted again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// What a transfer took, of its last post.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Telemetry {
    /// Time inside of the call that posted.
    pub post: Duration,
    /// Time from the post until it was over.
    pub transfer: Duration,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Descriptors after neighbours were merged.
    pub descriptors: usize,
    /// The paths taken, in order of their first block.
    pub paths: Vec<PathKind>,
}
