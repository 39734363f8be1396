//! Why a call on a connected store failed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::protocol::{Opcode, ReplyError};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ClientError {
    /// The argument is beyond a bound of ours; nothing was sent.
    #[error("{call}: {what} of {size}, at most {limit} allowed")]
    TooLarge { call: Opcode, what: &'static str, size: usize, limit: usize },
    /// Keys that did not come in time. The connection remains of use.
    #[error("{call}: waited {waited:.1?} for {} of {total} keys: {}", missing.len(), Listed(missing))]
    Missing { call: Opcode, missing: Vec<String>, total: usize, waited: Duration },
    /// The store did not take or answer a request in time.
    #[error("{call}: the store at {peer} did not answer within {waited:.1?}")]
    Silent { call: Opcode, peer: SocketAddr, waited: Duration },
    /// The store ended the connection, which is also how it refuses a request.
    #[error(
        "{call}: the store at {peer} ended the connection: it has stopped, or does not accept this request"
    )]
    Ended { call: Opcode, peer: SocketAddr },
    /// The store ended the connection, and said why: it is full, say.
    #[error("{call}: the store at {peer} closed the connection: {why}")]
    Refused { call: Opcode, peer: SocketAddr, why: String },
    /// The connection failed.
    #[error("{call}: connection to the store at {peer} failed: {cause}")]
    Io { call: Opcode, peer: SocketAddr, cause: io::Error },
    /// The reply is not one of the protocol.
    #[error("{call}: the peer at {peer} does not speak the store's protocol: {cause}")]
    Protocol { call: Opcode, peer: SocketAddr, cause: ReplyError },
    /// An earlier call failed in the middle of a message; the connection cannot be used any more.
    #[error("{call}: the connection to the store at {peer} broke in an earlier call")]
    Broken { call: Opcode, peer: SocketAddr },
}

impl ClientError {
    /// Whether the store has ended, or the connection to it.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Io { .. } | Self::Broken { .. })
    }

    pub(super) fn reply(
        call: Opcode,
        peer: SocketAddr,
        waited: Duration,
        cause: ReplyError,
    ) -> ClientError {
        let cause = match cause {
            ReplyError::Io(cause) => cause,
            ReplyError::Refused { why } => return ClientError::Refused { call, peer, why },
            cause => return ClientError::Protocol { call, peer, cause },
        };
        match cause.kind() {
            io::ErrorKind::TimedOut => ClientError::Silent { call, peer, waited },
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => ClientError::Ended { call, peer },
            _ => ClientError::Io { call, peer, cause },
        }
    }
}

/// A list that stays readable however long it is.
pub(crate) struct Listed<'a, T>(pub(crate) &'a [T]);

impl<T: std::fmt::Display> std::fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 8;
        for (index, item) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{item}")?;
        }
        match self.0.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}
