//! Messages between agents: a u32 length, little-endian, and a postcard of [`Frame`]. Bytes to values and
//! back; without sockets and state of connections.

use crate::names::Owner;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Of the protocol.
pub(crate) const VERSION: u16 = 3;
pub(crate) const MAGIC: [u8; 4] = *b"WVAC";

/// The longest frame that a connection takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Longest {
    /// Before the other end has authenticated itself.
    #[default]
    Stranger,
    /// Between peers: a notification and its surroundings.
    Peer,
    /// Where metadata travels: that of a million registrations.
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
    /// The first of a connection, from the end that made it: its agent, the agent that it wants, and the
    /// proof that it has the key. A connection that wants no agent by name is for metadata alone.
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
    /// The first end has the key now, not at some time before; and it is the agent of its name.
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
    /// There is room for so many more.
    Credit { count: u32 },
    /// Memory is no longer registered. The peer confirms when it does not touch it any more.
    Revoke { id: u32 },
    /// The confirmation.
    Revoked { id: u32 },
    /// A question.
    Call { number: u64, service: Service, bytes: Cow<'a, [u8]> },
    /// Its answer.
    Reply { number: u64, answer: Result<Cow<'a, [u8]>, Cow<'a, str>> },
    /// Asks for a sign of life.
    Ping,
    /// A sign of life.
    Pong,
    /// News of a stream.
    Stream { id: u64, event: Event<'a> },
}

/// News of a stream, as they travel by the control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event<'a> {
    /// Sender: a message is in its slot.
    Filled { number: u64, len: u64 },
    /// Sender: there are so many messages in all.
    End { count: u64 },
    /// Receiver: messages below this number may be sent.
    Room { limit: u64 },
    /// Receiver: all messages are there.
    Ended,
    /// Sender: the offer came too late, and is not taken up.
    NotTaken,
    /// Either: it does not go on.
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
    /// To prove what it says of memory.
    Prove,
    /// To end queue pairs.
    EndPairs,
}

impl Service {
    /// Whether it is about metadata alone, which may be asked of whichever agent is there.
    pub(crate) fn is_of_metadata(self) -> bool {
        matches!(self, Self::Fetch | Self::Load)
    }
}

impl Frame<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Writing to a vector does not fail.
        let mut out = postcard::to_extend(self, vec![0; 4]).unwrap_or_default();
        let len = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&len.to_le_bytes());
        out
    }
}

/// Cuts a stream of bytes into frames. It holds bytes that have arrived and no others, whatever length
/// a frame announces.
#[derive(Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// Where the first frame begins that was not given out.
    at: usize,
    /// The longest frame that is taken.
    pub(crate) longest: Longest,
}

/// Capacity that an empty decoder keeps.
const KEPT: usize = 64 << 10;

impl Decoder {
    pub(crate) fn new(longest: Longest) -> Self {
        Self { longest, ..Self::default() }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.at));
        self.bytes.extend_from_slice(bytes);
    }

    /// Memory for frames that have not been given out.
    pub(crate) fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether the next call of [`Decoder::next`] gives a frame or an error.
    pub(crate) fn is_ready(&self) -> bool {
        !matches!(self.body(), Ok(None))
    }

    /// The bytes of the next frame, if all of them are there.
    fn body(&self) -> Result<Option<&[u8]>, String> {
        let Some((len, rest)) = self.bytes[self.at..].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let (len, longest) = (u32::from_le_bytes(*len) as usize, self.longest.bytes());
        if len > longest {
            return Err(format!("a message of {len} bytes, expected at most {longest}"));
        }
        Ok(rest.get(..len))
    }

    /// The next frame, if all of it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'static>>, String> {
        let Some(body) = self.body()? else { return Ok(None) };
        let len = body.len();
        let frame = match postcard::take_from_bytes(body) {
            Ok((frame, [])) => Ok(Some(frame)),
            Ok((_, more)) => Err(format!("a message with {} bytes too many", more.len())),
            Err(error) => Err(undecoded(body, error)),
        };
        self.at += 4 + len;
        if self.at == self.bytes.len() {
            self.at = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
        }
        frame
    }
}

/// Why these bytes are no frame. The `Hello` of every version begins alike.
fn undecoded(body: &[u8], error: postcard::Error) -> String {
    if let [0, magic @ ..] = body
        && let Ok(((magic, version), _)) = postcard::take_from_bytes::<([u8; 4], u16)>(magic)
        && let Err(why) = check_protocol(magic, version)
    {
        return why;
    }
    format!("cannot decode a message: {error}")
}

/// Whether a `Hello` is of this protocol and version.
pub(crate) fn check_protocol(magic: [u8; 4], version: u16) -> Result<(), String> {
    if magic != MAGIC {
        let (found, expected) = (magic.escape_ascii(), MAGIC.escape_ascii());
        return Err(format!("magic \"{found}\", expected \"{expected}\""));
    }
    match version == VERSION {
        true => Ok(()),
        false => Err(format!("version {version} of the protocol, expected {VERSION}")),
    }
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
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for part in stream.chunks(step) {
                decoder.feed(part);
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames, "{step} bytes at a time");
        }
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_at_once() {
        let mut decoder = Decoder::default();
        decoder.feed(&5000u32.to_le_bytes());
        assert!(decoder.next().unwrap_err().contains("5000 bytes, expected at most 4096"));
        decoder.longest = Longest::Peer;
        assert_eq!(decoder.next(), Ok(None));
    }

    #[test]
    fn an_announced_frame_takes_memory_as_its_bytes_arrive() {
        let mut decoder = Decoder::new(Longest::Metadata);
        decoder.feed(&(250u32 << 20).to_le_bytes());
        assert_eq!(decoder.next(), Ok(None));
        assert!(decoder.held() < 4096);
        let part = [7; 1 << 16];
        for arrived in 1..=16 {
            decoder.feed(&part);
            assert_eq!(decoder.next(), Ok(None));
            assert!(decoder.held() <= 2 * (arrived * part.len() + 4));
        }
    }

    #[test]
    fn a_long_frame_leaves_no_memory_behind() {
        let bytes = vec![3; 1 << 19];
        let frame = Frame::Call { number: 0, service: Service::Load, bytes: bytes.into() };
        let mut decoder = Decoder::new(Longest::Peer);
        decoder.feed(&frame.encode());
        assert!(decoder.is_ready());
        assert_eq!(decoder.next(), Ok(Some(frame)));
        assert!(!decoder.is_ready() && decoder.held() <= KEPT);
    }

    #[test]
    fn another_program_and_another_version_are_told_apart() {
        let first = |magic: [u8; 4], version: u16, rest: &[u8]| {
            let mut bytes = postcard::to_stdvec(&(0u8, magic, version)).unwrap();
            bytes.extend(rest);
            let mut decoder = Decoder::default();
            decoder.feed(&(bytes.len() as u32).to_le_bytes());
            decoder.feed(&bytes);
            decoder.next().unwrap_err()
        };
        assert_eq!(first(*b"HTTP", 2, b"x"), "magic \"HTTP\", expected \"WVAC\"");
        assert_eq!(first(MAGIC, 2, b""), "version 2 of the protocol, expected 3");
        assert!(first(MAGIC, VERSION, b"").starts_with("cannot decode a message"));
        assert_eq!(check_protocol(*b"WVAB", 2).unwrap_err(), "magic \"WVAB\", expected \"WVAC\"");
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(frame)) = decoder.next() {
                let mut again = Decoder::new(Longest::Metadata);
                again.feed(&frame.encode());
                prop_assert_eq!(again.next(), Ok(Some(frame)));
            }
        }
    }
}
