//! What a post of a transfer asks for.

use std::time::Duration;

/// What a post asks for besides the blocks.
#[derive(Clone, Debug, Default)]
pub struct PostOptions {
    pub(crate) deadline: Option<Duration>,
    pub(crate) notification: Option<Vec<u8>>,
}

impl PostOptions {
    /// The blocks alone, within the agent's deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// The transfer fails unless it is done within this time.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// The peer gets this notification, of at most
    /// [`AgentConfig::MAX_NOTIFICATION`](crate::AgentConfig::MAX_NOTIFICATION) bytes, when all
    /// blocks are in place. The transfer is done when the peer has it.
    #[must_use]
    pub fn notify(self, bytes: impl Into<Vec<u8>>) -> Self {
        Self { notification: Some(bytes.into()), ..self }
    }
}
