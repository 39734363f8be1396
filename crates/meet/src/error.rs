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
    #[error("the {who} at {peer}: {}", printable(why))]
    Theirs { who: Role, peer: String, why: String },
    /// A message of this end cannot be sent.
    #[error("a message of kind {kind:?} cannot be sent: {why}")]
    Unsendable { kind: &'static str, why: FrameError },
}

/// Text of another program as people may read it: a control character, which could steer their terminal or begin
/// a line of its own in a log, is shown as its escape.
pub fn printable(text: &str) -> String {
    let shown = |at: char| match at.is_control() {
        true => at.escape_default().to_string(),
        false => at.to_string(),
    };
    text.chars().map(shown).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_words_steer_no_terminal() {
        let why = "no \u{1b}[2Jroom\nfor \u{9b}\"größer\"".to_owned();
        let error = MeetError::Theirs { who: Role::Server, peer: "::1".into(), why };
        let expected = r#"the server at ::1: no \u{1b}[2Jroom\nfor \u{9b}"größer""#;
        assert_eq!(error.to_string(), expected);
    }
}
