//! Messages between agents, in the project's [frames](warpverbs_meet::frame). Encodes and decodes only;
//! sockets and connection state are elsewhere.

use crate::names::Owner;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use warpverbs_meet::{FrameError, Frames, Hello, decode};

pub(crate) const VERSION: u16 = 4;
pub(crate) const MAGIC: [u8; 4] = *b"WVAC";

/// The longest frame that a connection takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Longest {
    /// Before the other end has authenticated itself.
    #[default]
    Stranger,
    /// Between peers: the longest notification and its header.
    Peer,
    /// For metadata: that of a million registrations.
    Metadata,
}

impl Longest {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Stranger => 4096,
            Self::Peer => 1 << 20,
            Self::Metadata => 256 << 20,
        }
    }
}

/// A message. Both ends of a connection may send any that fits its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame<'a> {
    /// The first of a connection, from the end that made it: its agent, the agent that it asks for, and
    /// the proof that it has the key. A connection that names no agent only exchanges metadata.
    Hello {
        magic: [u8; 4],
        version: u16,
        from: Owner,
        to: Option<Owner>,
        nonce: [u8; 16],
        proof: [u8; 32],
    },
    /// The answer: the agent of this end, and the proof that it has the key too.
    Welcome { owner: Owner, nonce: [u8; 16], proof: [u8; 32] },
    /// Proof that the first end has the key now (its `Hello` is not a replay), and that it is the agent
    /// that it names.
    Auth { proof: [u8; 32], identity: [u8; 32] },
    /// The connection is established: the memory that is registered now, and the number of notifications
    /// for which there is room.
    Ready { live: Vec<u32>, credits: u32 },
    /// The connection is refused and ends.
    Refused { why: Cow<'a, str> },
    /// A notification.
    Notify { number: u64, bytes: Cow<'a, [u8]> },
    /// The notification is in the inbox of its receiver.
    Accepted { number: u64 },
    /// The notification was not taken, and there is room for another one. Its sender may try again.
    Declined { number: u64, why: Cow<'a, str> },
    /// The receiver has room for `count` further notifications.
    Credit { count: u32 },
    /// Memory was deregistered. The peer confirms once it no longer accesses it.
    Revoke { id: u32 },
    /// The confirmation.
    Revoked { id: u32 },
    /// A question.
    Call { number: u64, service: Service, bytes: Cow<'a, [u8]> },
    /// Its answer.
    Reply { number: u64, answer: Result<Cow<'a, [u8]>, Cow<'a, str>> },
    /// A keepalive that asks for a `Pong`.
    Ping,
    /// The answer to a `Ping`.
    Pong,
    /// An event of a stream.
    Stream { id: u64, event: Event<'a> },
}

/// An event of a stream, as it travels by the control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event<'a> {
    /// Sender: a message is in its slot.
    Filled { number: u64, len: u64 },
    /// Sender: the stream ends after `count` messages.
    End { count: u64 },
    /// Receiver: messages below this number may be sent.
    Room { limit: u64 },
    /// Receiver: all messages have arrived.
    Ended,
    /// Sender: the offer came too late and is declined.
    NotTaken,
    /// Either: the stream is abandoned.
    GivenUp { why: Cow<'a, str> },
}

/// A question to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Service {
    /// Its metadata.
    Fetch,
    /// To load metadata of the agent that asks.
    Load,
    /// To connect queue pairs.
    Pairs,
    /// To accept a TCP connection; or, with its secret, to end it.
    Tcp,
    /// The key of memory for TCP connections.
    TcpKey,
    /// To send to a stream.
    Stream,
    /// To prove that it owns the memory that its metadata describes.
    Prove,
    /// To end queue pairs.
    EndPairs,
}

impl Service {
    /// Whether it only exchanges metadata, which a connection that names no agent may do.
    pub(crate) fn is_of_metadata(self) -> bool {
        matches!(self, Self::Fetch | Self::Load)
    }
}

impl Frame<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Writing to a vector does not fail.
        warpverbs_meet::frame(self, usize::MAX).unwrap_or_default()
    }

    /// The next frame of a byte stream, if all of it has arrived.
    pub(crate) fn next(frames: &mut Frames) -> Result<Option<Frame<'static>>, String> {
        let read = |body: &[u8]| decode(body).map_err(|error| undecoded(body, &error));
        frames.take_with(read).map_err(|why| why.to_string())?.transpose()
    }
}

/// The reason why these bytes cannot be decoded. The `Hello` of every version begins alike, so that
/// another version can be named.
fn undecoded(body: &[u8], error: &FrameError) -> String {
    if let [0, magic @ ..] = body
        && let Ok(((magic, version), _)) = postcard::take_from_bytes::<([u8; 4], u16)>(magic)
        && let Err(why) = check_protocol(magic, version)
    {
        return why;
    }
    error.to_string()
}

/// Whether a `Hello` is of this protocol and version.
pub(crate) fn check_protocol(magic: [u8; 4], version: u16) -> Result<(), String> {
    let hello = [&magic[..], &version.to_le_bytes()].concat();
    let checked = Hello { magic: &MAGIC, version: VERSION }.check(&hello);
    checked.map(drop).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generation;
    use proptest::prelude::*;

    fn frames() -> Vec<Frame<'static>> {
        let owner = Owner { name: "a".into(), generation: Generation::of(7, 9) };
        vec![
            Frame::Hello {
                magic: MAGIC,
                version: VERSION,
                from: owner.clone(),
                to: Some(owner.clone()),
                nonce: [1; 16],
                proof: [5; 32],
            },
            Frame::Welcome { owner, nonce: [2; 16], proof: [3; 32] },
            Frame::Auth { proof: [4; 32], identity: [6; 32] },
            Frame::Ready { live: vec![1, 2, 70_000], credits: 64 },
            Frame::Refused { why: "no".into() },
            Frame::Notify { number: 7, bytes: b"UUID1"[..].into() },
            Frame::Accepted { number: 7 },
            Frame::Declined { number: 7, why: "full".into() },
            Frame::Credit { count: 1 },
            Frame::Revoke { id: 9 },
            Frame::Revoked { id: 9 },
            Frame::Call { number: 1, service: Service::Fetch, bytes: b""[..].into() },
            Frame::Ping,
            Frame::Pong,
            Frame::Stream { id: 3, event: Event::Filled { number: 1 << 40, len: 4096 } },
            Frame::Stream { id: 3, event: Event::End { count: 9 } },
            Frame::Stream { id: 3, event: Event::Room { limit: 12 } },
            Frame::Stream { id: 3, event: Event::Ended },
            Frame::Stream { id: 3, event: Event::NotTaken },
            Frame::Stream { id: 3, event: Event::GivenUp { why: "no more".into() } },
            Frame::Reply { number: 1, answer: Ok(b"yes"[..].into()) },
            Frame::Reply { number: 2, answer: Err("no".into()) },
        ]
    }

    #[test]
    fn frames_arrive_whole_however_the_stream_is_cut() {
        let frames = frames();
        let stream: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for step in [1, 3, 7, stream.len()] {
            let mut decoder = Frames::new(Longest::Stranger.bytes());
            let mut seen = Vec::new();
            for part in stream.chunks(step) {
                decoder.feed(part);
                while let Some(frame) = Frame::next(&mut decoder).unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames, "{step} bytes at a time");
        }
    }

    #[test]
    fn another_program_and_another_version_are_told_apart() {
        let first = |magic: [u8; 4], version: u16, rest: &[u8]| {
            let mut bytes = postcard::to_stdvec(&(0u8, magic, version)).unwrap();
            bytes.extend(rest);
            let mut decoder = Frames::new(Longest::Stranger.bytes());
            decoder.feed(&(bytes.len() as u32).to_le_bytes());
            decoder.feed(&bytes);
            Frame::next(&mut decoder).unwrap_err()
        };
        assert_eq!(first(*b"HTTP", 2, b"x"), "magic \"HTTP\", expected \"WVAC\"");
        assert_eq!(first(MAGIC, 2, b""), "version 2 of the protocol, expected 4");
        assert!(first(MAGIC, VERSION, b"").starts_with("cannot decode a message"));
        assert_eq!(check_protocol(*b"WVAB", 2).unwrap_err(), "magic \"WVAB\", expected \"WVAC\"");
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Frames::new(Longest::Stranger.bytes());
            decoder.feed(&bytes);
            while let Ok(Some(frame)) = Frame::next(&mut decoder) {
                let mut again = Frames::new(Longest::Metadata.bytes());
                again.feed(&frame.encode());
                prop_assert_eq!(Frame::next(&mut again), Ok(Some(frame)));
            }
        }
    }
}
