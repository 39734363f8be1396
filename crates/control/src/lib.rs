//! Control connections, for two programs that agree on what they do together beside the RDMA that
//! they do it with.
//!
//! Both ends first send a preamble: six bytes that name the protocol, its version as `u16`, and the
//! sender's [`Role`]. A peer with another preamble is refused by what was wrong with it. Messages
//! follow, in either direction: a length as `u32`, and the message in postcard's format. Integers
//! of preamble and length are little-endian.
//!
//! * No call blocks in the system: a caller that waits for a message may drive a NIC meanwhile.
//! * Every wait has a limit, and a message at most [`LONGEST`] bytes.
//! * A server goes on accepting until a peer has shown the right preamble, so that a connection
//!   that is silent, or of another program, costs the others nothing.
//!
//! Not here: encryption and authentication.
#![forbid(unsafe_code)]

mod connection;
mod error;
mod tcp;

pub use connection::{Connection, LONGEST, PREAMBLE, Stream};
pub use error::ControlError;
pub use tcp::Listener;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What two programs send each other.
pub trait Message: Serialize + DeserializeOwned {
    /// Name of the protocol.
    const NAME: [u8; 6];
    /// Raised with every change of a message.
    const VERSION: u16;
    /// The program that speaks it, for errors.
    const PROGRAM: &'static str;

    /// The kind of message, for errors.
    fn kind(&self) -> &'static str;

    /// Why the sender gives up, if the message says that it does.
    fn failure(&self) -> Option<&str> {
        None
    }
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that connects.
    Client,
    /// The end that listens.
    Server,
}

impl Role {
    /// The other end's.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Client => b'c',
            Self::Server => b's',
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}
