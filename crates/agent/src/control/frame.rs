//! What agents say to each other over TCP: a u32 length, little-endian, and a postcard of [`Frame`].

use crate::Generation;
use crate::list::Owner;
use crate::stream::Event;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The longest frame of a peer that has shown the token, bytes: metadata of a million registrations.
const LONGEST: usize = 256 << 20;
/// The longest frame of anybody else.
const LONGEST_STRANGER: usize = 4096;
/// Of the protocol.
pub(crate) const VERSION: u16 = 2;

/// A message. Both ends of a connection may send any that fits its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame<'a> {
    /// The first of a connection, by whoever made it: who it is, and who it wants. Nobody by name: it
    /// fetches or brings metadata, and does nothing else.
    Hello { magic: [u8; 4], version: u16, from: Owner, to: Option<Owner>, nonce: [u8; 16] },
    /// The answer: who this is, and that it has the token.
    Welcome { owner: Owner, nonce: [u8; 16], proof: [u8; 32] },
    /// That the other end has the token too.
    Auth { proof: [u8; 32] },
    /// The connection is of use: what is registered now, and how many notifications there is room
    /// for.
    Ready { live: Vec<u32>, credits: u32 },
    /// It is not.
    Refused { why: Cow<'a, str> },
    /// A notification.
    Notify { number: u64, bytes: Cow<'a, [u8]> },
    /// The notification is where its receiver will find it.
    Accepted { number: u64 },
    /// There is room for so many more.
    Credit { count: u32 },
    /// Memory is no longer registered; the peer is to say when it does not touch it any more.
    Revoke { id: u32 },
    /// It does not.
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

/// What can be asked of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Service {
    /// Its metadata.
    Fetch,
    /// To load metadata of whoever asks.
    Load,
    /// To connect queue pairs.
    Pairs,
    /// To accept TCP connections.
    Tcp,
    /// The key of memory for TCP connections.
    TcpKey,
    /// To send to a stream.
    Stream,
}

impl Service {
    /// Whether it is about metadata alone, which may be asked of whichever agent is there.
    pub(crate) fn is_of_metadata(self) -> bool {
        matches!(self, Self::Fetch | Self::Load)
    }
}

pub(crate) const MAGIC: [u8; 4] = *b"WVAC";

impl Frame<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Writing to a vector does not fail.
        let mut out = postcard::to_extend(self, vec![0; 4]).unwrap_or_default();
        let len = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&len.to_le_bytes());
        out
    }
}

/// Cuts a stream of bytes into frames.
#[derive(Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// Whether the other end has shown the token.
    pub(crate) trusted: bool,
}

impl Decoder {
    pub(crate) fn new(trusted: bool) -> Self {
        Self { bytes: Vec::new(), trusted }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, if all of it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'static>>, String> {
        let Some((len, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        let longest = if self.trusted { LONGEST } else { LONGEST_STRANGER };
        if len > longest {
            return Err(format!("a message of {len} bytes, at most {longest} are taken"));
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let frame = match postcard::take_from_bytes(body) {
            Ok((frame, [])) => Ok(Some(frame)),
            Ok((_, more)) => Err(format!("a message with {} bytes too many", more.len())),
            Err(error) => Err(format!("a message that is none: {error}")),
        };
        self.bytes.drain(..4 + len);
        frame
    }
}

/// The token is shown by a digest over both nonces and the owner that shows it.
pub(crate) fn proof(token: &[u8], role: &[u8], nonces: [&[u8; 16]; 2], owner: &Owner) -> [u8; 32] {
    let Owner { name, generation } = owner;
    let generation: [u8; 16] = Generation::to_bytes(*generation);
    crate::metadata::keyed(token, &[role, nonces[0], nonces[1], name.as_bytes(), &generation])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> Vec<Frame<'static>> {
        let owner = Owner { name: "a".into(), generation: Generation::new().unwrap() };
        vec![
            Frame::Hello {
                magic: MAGIC,
                version: VERSION,
                from: owner.clone(),
                to: Some(owner.clone()),
                nonce: [1; 16],
            },
            Frame::Welcome { owner, nonce: [2; 16], proof: [3; 32] },
            Frame::Auth { proof: [4; 32] },
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
        assert!(decoder.next().unwrap_err().contains("5000 bytes, at most 4096"));
        decoder.trusted = true;
        assert_eq!(decoder.next(), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(frame)) = decoder.next() {
                let mut again = Decoder::new(true);
                again.feed(&frame.encode());
                prop_assert_eq!(again.next(), Ok(Some(frame)));
            }
        }
    }
}
