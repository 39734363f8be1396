//! Lists that have been checked against the memory that they are of.

use crate::AgentError;
use crate::memory::LocalMemory;
use crate::peer::{Peer, Routed};
use crate::plan::Blocks;
use std::fmt;
use std::sync::Arc;

/// A list that has been checked against the memory that it is of, ready for
/// [`Agent::prepared_transfer`](crate::Agent::prepared_transfer). It may be used any number of times, by
/// any thread.
pub struct Prepared {
    pub(crate) blocks: Blocks,
    pub(crate) side: Side,
}

/// Whose memory a list is of, and which: blocks name it by its place here.
pub(crate) enum Side {
    Local(Vec<Arc<LocalMemory>>),
    Remote(Arc<Peer>, Vec<Arc<Routed>>),
}

impl Prepared {
    /// How many blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Side {
    /// An error that says whose memory it is, and whose it should be.
    pub(crate) fn foreign(&self, what: &'static str, expected: &str) -> AgentError {
        let owner = match self {
            Self::Local(table) => table[0].extent.owner.to_string(),
            Self::Remote(peer, _) => peer.name.to_string(),
        };
        AgentError::Foreign { what, owner, expected: expected.to_owned() }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prepared({} blocks)", self.len())
    }
}
