//! What can go wrong when receiving.

use thiserror::Error;

/// Bytes could not be received, or not be described.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The socket failed.
    #[error("{call} failed")]
    Socket {
        /// The system call.
        call: &'static str,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
}
