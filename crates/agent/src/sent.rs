//! A notification on its way to a peer.

use crate::AgentError;
use crate::control::{Link, Receipt};
use crate::deadline::Deadline;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A notification that was sent, and that its peer may not have yet. Dropping it withdraws it if it has not left.
pub struct Sent {
    /// None if it has arrived: it was this agent's own.
    way: Option<(Arc<Link>, Arc<Receipt>)>,
    peer: String,
    deadline: Deadline,
}

impl Sent {
    pub(crate) fn new(
        way: Option<(Arc<Link>, Arc<Receipt>)>,
        peer: String,
        deadline: Deadline,
    ) -> Self {
        Self { way, peer, deadline }
    }

    /// Waits for the peer to have it, `most` at most; whether it does.
    ///
    /// # Errors
    /// The peer has no room for it, or is lost, in which case it may have arrived; or its time is over.
    pub fn wait(&self, most: Duration) -> Result<bool, AgentError> {
        let Some((link, receipt)) = &self.way else { return Ok(true) };
        let left = self.deadline.0.remaining().unwrap_or_default();
        link.wait_for_receipt(receipt, &Deadline::after(left.min(most)));
        let arrived = receipt.poll(link)?;
        if !arrived && self.deadline.0.passed() {
            return Err(self.deadline.late(format!("notification to {}", self.peer)));
        }
        Ok(arrived)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some((_, receipt)) = &self.way {
            receipt.withdraw();
        }
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sent(to {})", self.peer)
    }
}
