//! Why a control connection fails.

use crate::Role;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// Why a control connection fails. `who` is the other end, `peer` its address.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Nothing listens there.
    #[error("no server at {host} port {port}: {cause} (tried for {waited:.1?})")]
    Unreachable {
        /// Host as given.
        host: String,
        /// Port as given.
        port: u16,
        /// How long it was tried.
        waited: Duration,
        /// What the last attempt gave.
        cause: io::Error,
    },
    /// The host's name has no address.
    #[error("host {host:?} has no address: {cause}")]
    Unknown {
        /// Host as given.
        host: String,
        /// What the resolver said.
        cause: io::Error,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {addr}: {cause}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the operating system said.
        cause: io::Error,
    },
    /// No client came in time.
    #[error("no client came to {addr} within {waited:.0?}{}", ignored(*.turned_away, last))]
    NoClient {
        /// Where it was listened.
        addr: SocketAddr,
        /// How long.
        waited: Duration,
        /// Connections that were closed because they showed no preamble, or a wrong one.
        turned_away: u32,
        /// Why the last of them was.
        last: Option<Box<ControlError>>,
    },
    /// The peer's preamble is another protocol's.
    #[error("{peer} is no `{program}`: it began with {found:02x?}")]
    Stranger {
        /// Its address.
        peer: String,
        /// The program that was expected.
        program: &'static str,
        /// What it sent so far.
        found: Vec<u8>,
    },
    /// The peer is the same end as this one: a client that reached a client.
    #[error("{peer} is a {role} of `{program}` as well, expected a {}", role.other())]
    SameRole {
        /// Its address.
        peer: String,
        /// The program.
        program: &'static str,
        /// Both ends' role.
        role: Role,
    },
    /// The peer speaks another version.
    #[error(
        "{peer} speaks version {theirs} of `{program}`'s protocol, this program version {ours}"
    )]
    Version {
        /// Its address.
        peer: String,
        /// The program.
        program: &'static str,
        /// The peer's version.
        theirs: u16,
        /// This program's.
        ours: u16,
    },
    /// The other program has ended.
    #[error("the {who} at {peer} ended the connection{}", after(during))]
    Ended {
        /// Which end.
        who: Role,
        /// Its address.
        peer: String,
        /// What was being done.
        during: &'static str,
    },
    /// The connection failed.
    #[error("connection to the {who} at {peer}: {cause}")]
    Io {
        /// Which end.
        who: Role,
        /// Its address.
        peer: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// No message in time.
    #[error("the {who} at {peer} did not send {awaited:?} within {waited:.1?}")]
    Silent {
        /// Which end.
        who: Role,
        /// Its address.
        peer: String,
        /// What was expected.
        awaited: &'static str,
        /// How long it was waited.
        waited: Duration,
    },
    /// Bytes that are no message.
    #[error("the {who} at {peer} sent what is no message: {why}")]
    Malformed {
        /// Which end.
        who: Role,
        /// Its address.
        peer: String,
        /// What was wrong.
        why: String,
    },
    /// A message of the wrong kind.
    #[error("the {who} at {peer} sent {found:?}, expected {expected:?}")]
    OutOfTurn {
        /// Which end.
        who: Role,
        /// Its address.
        peer: String,
        /// The kind of message.
        found: &'static str,
        /// The kinds that would have been right.
        expected: &'static str,
    },
    /// The other end gives up, and says why.
    #[error("the {who} at {peer}: {why}")]
    Theirs {
        /// Which end.
        who: Role,
        /// Its address.
        peer: String,
        /// Its reason.
        why: String,
    },
    /// A message of this end's that cannot be sent.
    #[error("a message of kind {kind:?} cannot be sent: {why}")]
    Unsendable {
        /// The kind.
        kind: &'static str,
        /// Why.
        why: String,
    },
}

fn after(during: &str) -> String {
    if during.is_empty() { String::new() } else { format!(" {during}") }
}

fn ignored(turned_away: u32, last: &Option<Box<ControlError>>) -> String {
    match last {
        Some(last) => {
            format!("; {turned_away} connections were turned away, the last because {last}")
        }
        None => String::new(),
    }
}
