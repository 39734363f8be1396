//! Messages in a stream of bytes, without I/O.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read};
use thiserror::Error;

/// Bytes could not be decoded as a message, or a value could not be encoded as one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum FrameError {
    /// It is longer than allowed.
    #[error("a message of {len} bytes, expected at most {longest}")]
    TooLong { len: usize, longest: usize },
    /// It is longer than its value.
    #[error("a message with {more} bytes too many")]
    Trailing { more: usize },
    /// The bytes do not decode.
    #[error("cannot decode a message: {0}")]
    Malformed(postcard::Error),
    /// The value has no bytes.
    #[error("cannot encode a message: {0}")]
    Unsendable(postcard::Error),
}

/// The bytes of a message: a `u32` length, little-endian, and the value in postcard's format.
///
/// # Errors
/// It has more than `longest` bytes, or the value cannot be encoded.
pub fn frame<T: Serialize>(value: &T, longest: usize) -> Result<Vec<u8>, FrameError> {
    let mut out = postcard::to_extend(value, vec![0; 4]).map_err(FrameError::Unsendable)?;
    let len = out.len() - 4;
    if len > longest.min(u32::MAX as usize) {
        return Err(FrameError::TooLong { len, longest });
    }
    out[..4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(out)
}

/// The value of a message without its length.
///
/// # Errors
/// The bytes do not decode, or bytes are left over.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body).map_err(FrameError::Malformed)? {
        (value, []) => Ok(value),
        (_, rest) => Err(FrameError::Trailing { more: rest.len() }),
    }
}

/// Cuts a stream of bytes into messages. It holds bytes that have arrived and no others, whatever length a
/// message announces.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Where the first message that was not taken yet begins.
    at: usize,
    /// The longest message that is taken, in bytes.
    pub longest: usize,
}

/// Bytes of one read.
const READ: usize = 16 << 10;
/// Capacity that is kept while no bytes are held.
const KEPT: usize = 64 << 10;

impl Frames {
    /// At the beginning of a message of at most `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self { bytes: Vec::new(), at: 0, longest }
    }

    /// Takes bytes that have arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.at));
        self.bytes.extend_from_slice(bytes);
    }

    /// Reads once, at most 16 KiB. 0 is the end of the stream.
    ///
    /// # Errors
    /// The stream's; an interrupted read is repeated.
    pub fn read(&mut self, mut stream: impl Read) -> io::Result<usize> {
        let mut bytes = [0; READ];
        loop {
            match stream.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => {
                    return read.inspect(|&count| self.feed(&bytes[..count]));
                }
            }
        }
    }

    /// The bytes that have not been taken yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Discards bytes that do not belong to a message, at most `count` and at most those that are there.
    pub fn skip(&mut self, count: usize) {
        self.at = self.bytes.len().min(self.at.saturating_add(count));
        if self.at == self.bytes.len() {
            self.at = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
        }
    }

    /// Bytes of memory for data that has not been taken yet.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether the next call of [`Frames::take`] returns a message or an error.
    pub fn is_ready(&self) -> bool {
        !matches!(self.body(), Ok(None))
    }

    /// The bytes of the next message, if all of them are there.
    fn body(&self) -> Result<Option<&[u8]>, FrameError> {
        let Some((len, rest)) = self.rest().split_first_chunk::<4>() else { return Ok(None) };
        let (len, longest) = (u32::from_le_bytes(*len) as usize, self.longest);
        if len > longest {
            return Err(FrameError::TooLong { len, longest });
        }
        Ok(rest.get(..len))
    }

    /// The next message, if all of it is there.
    ///
    /// # Errors
    /// The message is too long, after which the stream cannot be read on, or it does not decode.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        self.take_with(decode)?.transpose()
    }

    /// As [`Frames::take`], decoded by `read`.
    ///
    /// # Errors
    /// It is too long.
    pub fn take_with<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, FrameError> {
        let Some(body) = self.body()? else { return Ok(None) };
        let (len, value) = (body.len(), read(body));
        self.skip(4 + len);
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Value = (u8, Vec<u8>);

    fn framed(value: &Value) -> Vec<u8> {
        frame(value, 1 << 20).unwrap()
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_at_once() {
        let mut frames = Frames::new(4096);
        frames.feed(&5000u32.to_le_bytes());
        assert!(frames.is_ready());
        let why = frames.take::<Value>().unwrap_err().to_string();
        assert!(why.contains("5000 bytes, expected at most 4096"), "{why}");
        frames.longest = 1 << 20;
        assert_eq!(frames.take::<Value>(), Ok(None));
        let why = frame(&vec![0u8; 100], 100).unwrap_err();
        assert_eq!(why, FrameError::TooLong { len: 101, longest: 100 });
    }

    #[test]
    fn an_announced_message_takes_memory_as_its_bytes_arrive() {
        let mut frames = Frames::new(256 << 20);
        frames.feed(&(250u32 << 20).to_le_bytes());
        assert_eq!(frames.take::<Value>(), Ok(None));
        assert!(frames.held() < 4096);
        let part = [7; 1 << 16];
        for arrived in 1..=16 {
            frames.feed(&part);
            assert_eq!(frames.take::<Value>(), Ok(None));
            assert!(frames.held() <= 2 * (arrived * part.len() + 4));
        }
    }

    #[test]
    fn a_long_message_leaves_no_memory_behind() {
        let value = (1, vec![3; 1 << 19]);
        let mut frames = Frames::new(1 << 20);
        frames.feed(&framed(&value));
        assert!(frames.is_ready());
        assert_eq!(frames.take(), Ok(Some(value)));
        assert!(!frames.is_ready() && frames.held() <= KEPT);
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_however_the_stream_is_cut(
            values in prop::collection::vec(any::<Value>(), 0..6),
            step in 1..40usize,
        ) {
            let stream: Vec<u8> = values.iter().flat_map(framed).collect();
            let (mut frames, mut seen) = (Frames::new(1 << 20), Vec::new());
            for part in stream.chunks(step) {
                frames.feed(part);
                while let Some(value) = frames.take::<Value>().unwrap() {
                    seen.push(value);
                }
            }
            prop_assert_eq!(seen, values);
        }
    }
}
