//! Passing file descriptors to other processes.
//!
//! The owner runs a [`DescriptorServer`], which listens at two unix sockets with random names and
//! hands out what was [offered](DescriptorServer::offer) to a process that shows the right secret; it shows
//! one of its own in turn. [`fetch`] tries, in this order:
//!
//! | way | needs |
//! |---|---|
//! | abstract socket | the same network namespace |
//! | socket in the directory for temporary files | a directory that both see |
//! | `pidfd_getfd` | the same PID namespace, and the right to trace the owner |
//!
//! Both secrets travel with the [`Address`], which the program sends by means of its own: a process that
//! reads it may have the descriptors. Where owners are not trusted to speak only of themselves, each
//! asker has secrets of its own ([`Trust::Proven`]): an owner that names the server of another gets no
//! answer there. Processes of other users are refused.

mod fetch;
mod files;
mod server;

pub use fetch::{Fetched, Way, fetch, fetch_by};
pub use server::DescriptorServer;

use serde::{Deserialize, Serialize};
use std::os::fd::BorrowedFd;
use warpverbs_meet::Hello;

/// A request is an asker's secret and the number of a [`Ticket`]; a reply is an [`Answer`].
const HELLO: Hello = Hello { magic: b"WVFD", version: 2 };

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    /// The descriptor comes with it. The server shows its secret.
    Granted([u8; 16]),
    /// Nothing is offered under this number. The server shows its secret.
    Unknown([u8; 16]),
    /// The asker is another user's process.
    OtherUser,
    /// The server has no descriptor left for another connection.
    Full,
    /// The asker's secret is unknown.
    Stranger,
}

/// Two secrets of a [`DescriptorServer`] and of the processes that may ask it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secrets {
    /// Secret that the asker shows.
    pub ask: [u8; 16],
    /// Secret that the server shows.
    pub answer: [u8; 16],
}

impl From<[u8; 32]> for Secrets {
    fn from(bytes: [u8; 32]) -> Self {
        let (mut ask, mut answer) = ([0; 16], [0; 16]);
        ask.copy_from_slice(&bytes[..16]);
        answer.copy_from_slice(&bytes[16..]);
        Self { ask, answer }
    }
}

/// How far an owner's claims about itself are trusted.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// They are trusted, because the same launcher started it and this process. The secrets are those of
    /// its [`Address`], and its process is the one whose number it gave.
    Launch,
    /// Only claims that it has proven to this process are trusted.
    Proven {
        /// Secrets that its server accepts from this asker alone ([`DescriptorServer::grant`]).
        secrets: Secrets,
        /// Its process, or why that is not proven. Nothing is taken out of a process that is not.
        process: Result<BorrowedFd<'a>, &'a str>,
    },
}

/// Where a [`DescriptorServer`] listens, and what proves that it is the right one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Name of the abstract socket, or why there is none.
    pub abstract_name: Result<String, String>,
    /// Path of the other socket, or why there is none.
    pub path: Result<String, String>,
    /// Secret that the asker shows.
    pub ask: [u8; 16],
    /// Secret that the server shows.
    pub answer: [u8; 16],
}

impl Address {
    /// The address without the secrets, for peers that get secrets of their own.
    #[must_use]
    pub fn without_secrets(self) -> Self {
        Self { ask: [0; 16], answer: [0; 16], ..self }
    }

    fn secrets(&self) -> Secrets {
        Secrets { ask: self.ask, answer: self.answer }
    }
}

/// A descriptor that a process offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Its number among those of the server.
    pub id: u64,
    /// Bytes of memory behind it.
    pub len: u64,
    /// The owner's number of it.
    pub raw: i32,
    /// Device number of its file, to know it again.
    pub device: u64,
    /// Inode of its file, to know it again.
    pub inode: u64,
}
