//! Errors of peers and programs, and refusals of remote accesses.

use super::header::{Header, Kind};
use thiserror::Error;
use warpverbs_mem::AccessError;
use zerocopy::{Immutable, KnownLayout, TryFromBytes};

/// The peer broke the protocol. The link ends; nothing outside of registered memory and
/// posted receives was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PeerError {
    /// A header does not begin with the expected byte.
    #[error("a header begins with {first:#04x}, expected 0xd7")]
    NotAHeader {
        /// The byte found.
        first: u8,
    },
    /// No such frame.
    #[error("frame kind {kind:#04x} does not exist, expected 1 to 9")]
    UnknownKind {
        /// The byte found.
        kind: u8,
    },
    /// A frame without payload announces some.
    #[error("a {kind:?} frame announces {len} bytes of payload, expected none")]
    UnexpectedPayload {
        /// The frame.
        kind: Kind,
        /// Bytes announced.
        len: u32,
    },
    /// A chunk is longer than agreed.
    #[error("a chunk of {len} bytes, agreed were at most {most}")]
    ChunkTooLong {
        /// Bytes announced.
        len: u32,
        /// Bytes agreed in the handshake.
        most: u32,
    },
    /// Only an empty transfer has an empty chunk.
    #[error("an empty chunk of a transfer of {total} bytes")]
    EmptyChunk {
        /// Bytes of the transfer.
        total: u64,
    },
    /// A chunk ends behind the transfer, or wraps.
    #[error("bytes {offset}+{len} are outside a transfer of {total} bytes")]
    Outside {
        /// Offset of the chunk.
        offset: u64,
        /// Bytes of the chunk.
        len: u32,
        /// Bytes of the transfer.
        total: u64,
    },
    /// Two chunks disagree about the transfer they belong to.
    #[error(
        "{kind:?} {id} was announced with another length, address or key before: expected {first},
    #found {now}"
    )]
    Changed {
        /// Kind of the transfer.
        kind: Kind,
        /// Number of the transfer.
        id: u64,
        /// Length, address or key of the first chunk.
        first: u64,
        /// The same of this chunk.
        now: u64,
    },
    /// Bytes come twice.
    #[error("bytes {offset}+{len} of {kind:?} {id} were sent before")]
    Overlap {
        /// Kind of the transfer.
        kind: Kind,
        /// Number of the transfer.
        id: u64,
        /// Offset of the chunk.
        offset: u64,
        /// Bytes of the chunk.
        len: u32,
    },
    /// The chunks of one transfer leave more holes than a receiver keeps track of.
    #[error("{kind:?} {id} arrives in more than {most} separate pieces")]
    Scattered {
        /// Kind of the transfer.
        kind: Kind,
        /// Number of the transfer.
        id: u64,
        /// Pieces at most.
        most: usize,
    },
    /// More transfers are open than agreed.
    #[error("{kind:?} {id} is too far ahead: {first} is unfinished, agreed were {most} at a time")]
    TooManyOpen {
        /// Kind of the transfer.
        kind: Kind,
        /// Number of the transfer.
        id: u64,
        /// The first that is unfinished.
        first: u64,
        /// Transfers at a time.
        most: u32,
    },
    /// The transfer was complete.
    #[error("{kind:?} {id} was complete before")]
    Repeated {
        /// Kind of the transfer.
        kind: Kind,
        /// Number of the transfer.
        id: u64,
    },
    /// A message that is not charged to the window came before its receive was posted.
    #[error("message {id} is not charged to the window, and only {posted} receives are posted")]
    NotPosted {
        /// Number of the message.
        id: u64,
        /// Receives posted.
        posted: u64,
    },
    /// Messages without a receive, and notifications, exceed the window.
    #[error("{used} bytes are charged to a window of {window} bytes")]
    WindowExceeded {
        /// Bytes charged, this frame included.
        used: u64,
        /// Bytes granted in the handshake.
        window: u64,
    },
    /// The peer gives back more than it was sent.
    #[error("the peer gave back {credit} bytes of its window, {charged} were charged")]
    TooMuchCredit {
        /// Bytes given back.
        credit: u64,
        /// Bytes charged.
        charged: u64,
    },
    /// The peer reads none of the answers to its reads and writes.
    #[error("{kind:?} {id} came while {waiting} frames wait that the peer does not read")]
    Unread {
        /// Kind of the transfer.
        kind: Kind,
        /// Number of the transfer.
        id: u64,
        /// Frames that wait.
        waiting: usize,
    },
    /// An answer without a request.
    #[error("{kind:?} {id} answers a read or write that is not under way")]
    NotAsked {
        /// The frame.
        kind: Kind,
        /// Its number.
        id: u64,
    },
    /// An unknown result.
    #[error("status {status} of a {kind:?} frame is unknown")]
    UnknownStatus {
        /// The frame.
        kind: Kind,
        /// The value found.
        status: u32,
    },
    /// A notification is longer than agreed.
    #[error("a notification of {len} bytes, at most {most} are allowed and in one chunk")]
    NotificationTooLong {
        /// Bytes announced.
        len: u64,
        /// Bytes at most.
        most: u64,
    },
    /// The payload is announced on a socket that cannot carry it.
    #[error("payload is announced on socket {named} by a header on socket {carried}")]
    WrongSocket {
        /// The socket named.
        named: u16,
        /// The socket that carried the header.
        carried: u16,
    },
    /// A frame came after the close frame.
    #[error("a {kind:?} frame after the close frame")]
    AfterClose {
        /// The frame.
        kind: Kind,
    },
}

/// A socket ended while something was due on it, as when the peer's process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("socket {socket} ended midway, {missing} bytes of a frame were due on it")]
pub struct Cut {
    /// The socket.
    pub socket: u16,
    /// Bytes of a header or chunk that did not arrive; 0 if it ended between two frames without a goodbye.
    pub missing: u64,
}

/// Why the owner of a region refused a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, TryFromBytes, Immutable, KnownLayout)]
#[repr(u32)]
pub enum Refusal {
    /// The key is unknown.
    #[error("the key is not registered there, or not any more")]
    UnknownKey = 1,
    /// The key does not allow it.
    #[error("the key does not allow this access")]
    NotAllowed = 2,
    /// The range is not inside of the region.
    #[error("the range is outside of the region")]
    OutOfBounds = 3,
    /// The owner's memory failed, its copy engine for instance.
    #[error("the owner could not access its memory")]
    MemoryFailed = 4,
}

/// Two causes give one refusal, so that a peer does not learn that it guessed a part of a key.
impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Denied { .. } => Self::NotAllowed,
            AccessError::OutOfBounds { .. } => Self::OutOfBounds,
            _ => Self::UnknownKey,
        }
    }
}

/// A request that cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The link was closed, or has failed.
    #[error("the link is closed")]
    Closed,
    /// Too many operations are under way.
    #[error("{most} operations of this kind are under way; complete some first")]
    TooMany {
        /// Operations at a time.
        most: u32,
    },
    /// A notification is too long.
    #[error("a notification of {len} bytes, at most {most} are possible")]
    NotificationTooLong {
        /// Bytes given.
        len: u64,
        /// Bytes at most.
        most: u64,
    },
    /// The range in the peer's region wraps.
    #[error("remote range {addr:#x}+{len:#x} wraps")]
    Wraps {
        /// First address.
        addr: u64,
        /// Bytes.
        len: u64,
    },
}

/// The reason in the last frame of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, Immutable, KnownLayout)]
#[repr(u32)]
pub enum Goodbye {
    /// The peer has nothing more to send.
    Finished = 0,
    /// The peer found that this end broke the protocol.
    Fault = 1,
    /// The peer's own memory or socket failed.
    Failed = 2,
}

/// The status of a header as one of the values that its kind may have.
pub(super) fn status_of<T: TryFromBytes>(header: &Header) -> Result<T, PeerError> {
    let Header { kind, status, .. } = *header;
    T::try_read_from_bytes(&status.to_ne_bytes())
        .map_err(|_| PeerError::UnknownStatus { kind, status })
}
