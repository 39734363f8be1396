//! Errors of links.

use super::protocol::{Cut, Goodbye, HandshakeError, PeerError, PostError, Refusal};
use std::io;
use std::time::Duration;
use thiserror::Error;
use warpverbs_devmem::causes;
use warpverbs_devmem::receive::ReceiveError;
use warpverbs_devmem::send::SendError;
use warpverbs_devmem::unpack::UnpackError;
use warpverbs_mem::{KeyError, MemError};

/// Why something failed. After [`TcpError::ends_link`], nothing more can be done with
/// the link, and every operation of it that is not complete fails with the same error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TcpError {
    /// The peer refused the link, or does not speak this protocol.
    #[error("handshake failed")]
    Handshake(#[from] HandshakeError),
    /// The connection to the peer ended without a goodbye.
    #[error("the connection was cut")]
    Cut(#[from] Cut),
    /// The peer broke the protocol.
    #[error("the peer broke the protocol")]
    Peer(#[from] PeerError),
    /// The peer says that this end broke the protocol, or that it failed itself.
    #[error("the peer gave up: {}", match .0 {
        Goodbye::Fault => "it reports that this end broke the protocol",
        _ => "it reports that its memory or a socket failed",
    })]
    PeerGaveUp(Goodbye),
    /// The peer closed the link; nothing more comes from it.
    #[error("the peer closed the link")]
    Closed,
    /// A thread of this end has ended the link.
    #[error("this end has ended the link")]
    Aborted,
    /// A socket failed.
    #[error("{what}: {error}")]
    Socket {
        /// The attempt.
        what: &'static str,
        /// The system's error.
        error: SystemError,
    },
    /// Received bytes could not be brought from device memory to where they belong.
    #[error("device-memory receive: {0}")]
    Device(String),
    /// The operation did not complete in time. It may still complete later.
    #[error("{what} was not complete after {waited:?}")]
    Timeout {
        /// The thing waited for.
        what: &'static str,
        /// How long.
        waited: Duration,
    },
    /// The operation cannot be posted.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The owner of the remote region refused the access.
    #[error("the peer refused the access")]
    Refused(#[from] Refusal),
    /// A message is longer than the memory of its receive. It was discarded.
    #[error("a message of {len} bytes came for a receive of {capacity} bytes")]
    TooLong {
        /// Bytes of the message.
        len: u64,
        /// Bytes of the receive.
        capacity: u64,
    },
    /// Memory of this end failed.
    #[error("memory of this end failed")]
    Memory(#[from] MemError),
    /// A region was not registered.
    #[error("not registered")]
    Register(#[from] KeyError),
    /// The system gave no random bytes.
    #[error("no random bytes for the name of a link")]
    NoEntropy,
    /// No operation has this handle: it was never posted, or its result was taken.
    #[error("no operation of this link has this handle, or its result was taken")]
    UnknownRequest,
    /// A description of remote memory is malformed.
    #[error("{len} bytes describe no remote memory, expected {expected}")]
    NotRemoteKey {
        /// Bytes given.
        len: usize,
        /// Bytes expected.
        expected: usize,
    },
}

impl TcpError {
    /// Whether the link is over.
    pub fn ends_link(&self) -> bool {
        matches!(
            self,
            Self::Peer(_)
                | Self::Cut(_)
                | Self::PeerGaveUp(_)
                | Self::Closed
                | Self::Aborted
                | Self::Socket { .. }
                | Self::Device(_)
        )
    }

    pub(super) fn socket(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Socket { what, error: error.into() }
    }
}

impl From<ReceiveError> for TcpError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Socket { call, cause } => Self::socket(call)(cause),
            error => Self::Device(causes(&error)),
        }
    }
}

impl From<SendError> for TcpError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Socket { call, cause } => Self::socket(call)(cause),
            error => Self::socket("completions of sends")(io::Error::other(error)),
        }
    }
}

impl From<UnpackError> for TcpError {
    fn from(error: UnpackError) -> Self {
        Self::Device(causes(&error))
    }
}

/// An error of the operating system, which can be compared and copied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct SystemError {
    /// Its kind.
    pub kind: io::ErrorKind,
    text: String,
}

impl From<io::Error> for SystemError {
    fn from(error: io::Error) -> Self {
        Self { kind: error.kind(), text: error.to_string() }
    }
}
