//! Properties that hold for any bytes that a peer sends. Also the body of the fuzz target.

use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;
use warpverbs_meet::{Connection, HelloError, LONGEST, MeetError, Message, PREAMBLE, Role, Stream};

/// Longer than it takes to read bytes that are there.
const SOON: Duration = Duration::from_secs(30);

/// Greeting of a client of [`Word`]s.
pub(crate) const GREETING: &[u8; PREAMBLE] = b"wvtest\x07\x00c";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Word {
    Ask(Vec<u64>),
    Answer(String),
}

impl Message for Word {
    const NAME: [u8; 6] = *b"wvtest";
    const VERSION: u16 = 7;
    const PROGRAM: &'static str = "warpverbs test";

    fn kind(&self) -> &'static str {
        match self {
            Self::Ask(_) => "question",
            Self::Answer(_) => "answer",
        }
    }
}

/// A message as it travels.
#[derive(Deserialize)]
enum Said {
    Word(Word),
    Failed(String),
}

/// A peer that has sent these bytes, in pieces, and then ended.
struct Sent {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
    pause: bool,
}

impl Read for Sent {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.pause = !self.pause;
        if self.pause {
            return Err(ErrorKind::WouldBlock.into());
        }
        let n = self.piece.min(buf.len()).min(self.bytes.len() - self.at);
        buf[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

impl Write for Sent {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Sent {
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything that a server reads out of `bytes`, cut into pieces, and the error that ends it.
pub(crate) fn read_all(bytes: Vec<u8>, piece: usize) -> (Vec<Word>, MeetError) {
    let sent = Sent { bytes, at: 0, piece, pause: false };
    let mut words = Vec::new();
    match Connection::<Word, Sent>::open(sent, "pipe".into(), Role::Server, SOON) {
        Err(error) => (words, error),
        Ok(mut connection) => loop {
            match connection.recv("anything", SOON) {
                Ok(word) => words.push(word),
                Err(error) => return (words, error),
            }
        },
    }
}

/// How reading ends.
#[derive(Debug, PartialEq)]
enum End {
    Stranger,
    Version,
    SameRole,
    Malformed,
    Theirs(String),
    Ended,
}

impl End {
    fn of(error: MeetError) -> Self {
        match error {
            MeetError::Hello { why: HelloError::Program { .. }, .. } => Self::Stranger,
            MeetError::Hello { why: HelloError::Version { .. }, .. } => Self::Version,
            MeetError::SameRole { .. } => Self::SameRole,
            MeetError::Malformed { .. } => Self::Malformed,
            MeetError::Theirs { why, .. } => Self::Theirs(why),
            MeetError::Ended { .. } => Self::Ended,
            other => panic!("reading bytes gave {other}"),
        }
    }
}

/// The end of a preamble that is not the one expected.
fn greeting(bytes: &[u8]) -> Option<End> {
    let name = &bytes[..bytes.len().min(6)];
    match bytes {
        _ if !GREETING.starts_with(name) => Some(End::Stranger),
        [_, _, _, _, _, _, a, b, ..] if [*a, *b] != [7, 0] => Some(End::Version),
        [_, _, _, _, _, _, _, _, b'c', ..] => None,
        [_, _, _, _, _, _, _, _, b's', ..] => Some(End::SameRole),
        [_, _, _, _, _, _, _, _, _, ..] => Some(End::Stranger),
        _ => Some(End::Ended),
    }
}

/// Messages and end of `bytes` by the format: all at once, and without a connection.
fn model(bytes: &[u8]) -> (Vec<Word>, End) {
    let mut words = Vec::new();
    if let Some(end) = greeting(bytes) {
        return (words, end);
    }
    let mut rest = &bytes[PREAMBLE..];
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*head) as usize;
        if len > LONGEST {
            return (words, End::Malformed);
        }
        let Some((body, after)) = after.split_at_checked(len) else { break };
        rest = after;
        match postcard::take_from_bytes(body) {
            Ok((Said::Failed(why), [])) => return (words, End::Theirs(why)),
            Ok((Said::Word(word), [])) => words.push(word),
            _ => return (words, End::Malformed),
        }
    }
    (words, End::Ended)
}

/// Reads `data` as a server does, behind the right preamble if its second byte is odd; the first
/// byte says how the rest is cut. The result is as the format says.
pub(crate) fn messages(data: &[u8]) {
    let [cut, greeted, rest @ ..] = data else { return };
    let preamble = if greeted & 1 == 1 { &GREETING[..] } else { &[] };
    let bytes = [preamble, rest].concat();
    let (words, error) = read_all(bytes.clone(), 1 + usize::from(*cut));
    assert_eq!((words, End::of(error)), model(&bytes));
}
