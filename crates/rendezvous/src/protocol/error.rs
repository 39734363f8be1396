//! Faults in bytes from a peer.

use super::{MAGIC, Opcode};

/// Why a server cannot go on reading a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ProtocolError {
    /// No such request.
    #[error("request starts with byte {0:#04x}, expected an opcode of 0 to 13")]
    UnknownOpcode(u8),
    /// The first message was another.
    #[error("first message is {0}, expected validate")]
    NotValidated(Opcode),
    /// Validated with another number.
    #[error("validate carries {0:#010x}, expected {MAGIC:#010x}")]
    WrongMagic(u32),
    /// Validated again.
    #[error("validate came a second time")]
    ValidatedTwice,
    /// A key is too long.
    #[error("{opcode}: key of {size} bytes, at most {limit} allowed")]
    KeyTooLong { opcode: Opcode, size: u64, limit: usize },
    /// A value is too long.
    #[error("{opcode}: value of {size} bytes, at most {limit} allowed")]
    ValueTooLong { opcode: Opcode, size: u64, limit: usize },
    /// Too many keys in one message.
    #[error("{opcode}: {count} keys, at most {limit} allowed in a message")]
    TooManyKeys { opcode: Opcode, count: u64, limit: usize },
    /// The message as a whole is too long.
    #[error("{opcode}: message of at least {size} bytes, at most {limit} allowed")]
    MessageTooLong { opcode: Opcode, size: u64, limit: usize },
    /// The connection ended within a message.
    #[error("connection ended {have} bytes into a message")]
    Truncated { have: usize },
}

/// Why a reply could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ReplyError {
    /// The connection failed or ended.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The store closes the connection, and says why.
    #[error("the store closes the connection: {why}")]
    Refused { why: String },
    /// A length or count is beyond the bound.
    #[error("{what} of {size} in the reply, at most {limit} allowed")]
    TooLarge { what: &'static str, size: u64, limit: usize },
    /// Not a reply to this request.
    #[error("reply is {got:#04x}, expected 0 or 1")]
    Unexpected { got: u8 },
    /// A count below zero.
    #[error("{what} of {got} in the reply, expected 0 or more")]
    Negative { what: &'static str, got: i64 },
}
