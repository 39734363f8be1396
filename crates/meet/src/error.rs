//! Why two programs do not meet.

use crate::{FrameError, HelloError, ResolveError, Role};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// Why two programs could not connect, or why their connection ended. `who` is the other end, `peer` its
/// address, `waited` how long this end waited.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are; the messages show them")]
pub enum MeetError {
    /// No process listens there.
    #[error("no server at {host} port {port}: {cause} (tried for {waited:.1?})")]
    Unreachable { host: String, port: u16, waited: Duration, cause: io::Error },
    /// The host's name has no address.
    #[error(transparent)]
    Unknown(#[from] ResolveError),
    /// The address cannot be listened at.
    #[error("cannot listen at {addr}: {cause}")]
    Bind { addr: SocketAddr, cause: io::Error },
    /// No client came in time.
    #[error("no client came to {addr} within {waited:.0?}{}", ignored(*.turned_away, last))]
    NoClient { addr: SocketAddr, waited: Duration, turned_away: u32, last: Option<Box<MeetError>> },
    /// The peer's preamble is another protocol's, or another version's.
    #[error("{peer} does not speak this version of `{program}`: {why}")]
    Hello { peer: String, program: &'static str, why: HelloError },
    /// The peer is the same end as this one: a client that reached a client.
    #[error("{peer} is a {role} of `{program}` as well, expected a {}", role.other())]
    SameRole { peer: String, program: &'static str, role: Role },
    /// The other program has ended.
    #[error("the {who} at {peer} ended the connection{}", after(during))]
    Ended { who: Role, peer: String, during: &'static str },
    /// The connection failed.
    #[error("connection to the {who} at {peer}: {cause}")]
    Io { who: Role, peer: String, cause: io::Error },
    /// No message in time.
    #[error("the {who} at {peer} did not send {awaited:?} within {waited:.1?}")]
    Silent { who: Role, peer: String, awaited: &'static str, waited: Duration },
    /// Bytes that cannot be decoded.
    #[error("the {who} at {peer} sent a malformed message: {why}")]
    Malformed { who: Role, peer: String, why: FrameError },
    /// A message of the wrong kind.
    #[error("the {who} at {peer} sent {found:?}, expected {expected:?}")]
    OutOfTurn { who: Role, peer: String, found: &'static str, expected: &'static str },
    /// The other end gives up, and says why.
    #[error("the {who} at {peer}: {why}")]
    Theirs { who: Role, peer: String, why: String },
    /// A message of this end cannot be sent.
    #[error("a message of kind {kind:?} cannot be sent: {why}")]
    Unsendable { kind: &'static str, why: FrameError },
}

fn after(during: &str) -> String {
    if during.is_empty() { String::new() } else { format!(" {during}") }
}

fn ignored(turned_away: u32, last: &Option<Box<MeetError>>) -> String {
    match last {
        Some(last) => {
            format!("; {turned_away} connections were turned away, the last because {last}")
        }
        None => String::new(),
    }
}
