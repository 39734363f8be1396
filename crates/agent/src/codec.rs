//! The frame around all bytes that agents leave elsewhere: magic, version, length, checksum, body.
//!
//! ```text
//! 0  magic    4 bytes, says which kind
//! 4  version  u16
//! 6  reserved u16, 0
//! 8  length   u32, of the body
//! 12 checksum u32, CRC-32 of the body
//! 16 body     postcard
//! ```
//! Numbers are little-endian.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

const HEADER: usize = 16;

/// Bytes could not be decoded as metadata or as a list of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodingError {
    /// The magic is that of another kind of message or of another program.
    #[error("{what} begins with {found:02x?}, expected {expected:02x?}")]
    Magic {
        /// The expected kind.
        what: &'static str,
        /// The first four bytes.
        found: [u8; 4],
        /// Those of this kind.
        expected: [u8; 4],
    },
    /// The bytes are of another version of the format.
    #[error("{what} has version {found}, expected {expected}")]
    Version {
        /// The expected kind.
        what: &'static str,
        /// Its version.
        found: u16,
        /// The version of this library.
        expected: u16,
    },
    /// The bytes are cut off, or followed by others.
    #[error("{what} has {found} bytes, expected {expected}")]
    Length {
        /// The expected kind.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// The checksum is wrong.
    #[error("{what} has checksum {found:#010x}, its bytes give {expected:#010x}")]
    Checksum {
        /// The expected kind.
        what: &'static str,
        /// The stored checksum.
        found: u32,
        /// The checksum of its bytes.
        expected: u32,
    },
    /// The checksum is right, but the content breaks the rules of this version.
    #[error("{what}: {why}")]
    Content {
        /// The expected kind.
        what: &'static str,
        /// The reason.
        why: String,
    },
}

/// A kind of message.
pub(crate) struct Format {
    pub(crate) what: &'static str,
    pub(crate) magic: [u8; 4],
    pub(crate) version: u16,
}

impl Format {
    /// An error about the content.
    pub(crate) fn wrong(&self, why: impl ToString) -> EncodingError {
        EncodingError::Content { what: self.what, why: why.to_string() }
    }

    pub(crate) fn seal(&self, body: &impl Serialize) -> Result<Vec<u8>, EncodingError> {
        self.frame(postcard::to_stdvec(body).map_err(|error| self.wrong(error))?)
    }

    /// The header, and a body that is encoded already.
    pub(crate) fn frame(&self, body: Vec<u8>) -> Result<Vec<u8>, EncodingError> {
        let len = u32::try_from(body.len()).map_err(|_| self.wrong("more than 4 GiB"))?;
        let mut out = Vec::with_capacity(HEADER + body.len());
        out.extend_from_slice(&self.magic);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        out.extend_from_slice(&body);
        Ok(out)
    }

    pub(crate) fn open<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, EncodingError> {
        let what = self.what;
        let length = |expected| EncodingError::Length { what, found: bytes.len(), expected };
        let (header, body) = bytes.split_first_chunk::<HEADER>().ok_or(length(HEADER))?;
        let word = |at: usize| [0, 1, 2, 3].map(|i| header[at + i]);
        let (found, expected) = (word(0), self.magic);
        if found != expected {
            return Err(EncodingError::Magic { what, found, expected });
        }
        let (found, expected) = (u16::from_le_bytes([header[4], header[5]]), self.version);
        if found != expected {
            return Err(EncodingError::Version { what, found, expected });
        }
        if header[6..8] != [0; 2] {
            return Err(self.wrong("reserved bytes are not 0"));
        }
        let expected = u32::from_le_bytes(word(8)) as usize;
        if body.len() != expected {
            return Err(length(HEADER.saturating_add(expected)));
        }
        let (found, expected) = (u32::from_le_bytes(word(12)), crc32fast::hash(body));
        if found != expected {
            return Err(EncodingError::Checksum { what, found, expected });
        }
        match postcard::take_from_bytes(body) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(self.wrong(format!("{} bytes too many", rest.len()))),
            Err(error) => Err(self.wrong(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { what: "a test", magic: *b"TEST", version: 3 };

    #[test]
    fn every_damaged_byte_and_every_cut_is_refused() {
        let sealed = FORMAT.seal(&(7u32, "words".to_owned())).unwrap();
        let opened: (u32, String) = FORMAT.open(&sealed).unwrap();
        assert_eq!(opened, (7, "words".to_owned()));
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut damaged = sealed.clone();
                damaged[at] ^= 1 << bit;
                FORMAT.open::<(u32, String)>(&damaged).unwrap_err();
            }
            FORMAT.open::<(u32, String)>(&sealed[..at]).unwrap_err();
        }
        let longer = [&sealed[..], &[0]].concat();
        assert!(matches!(FORMAT.open::<(u32, String)>(&longer), Err(EncodingError::Length { .. })));
        let other = Format { version: 4, ..FORMAT };
        assert!(matches!(
            other.open::<(u32, String)>(&sealed),
            Err(EncodingError::Version { found: 3, expected: 4, .. })
        ));
        assert!(matches!(FORMAT.open::<u8>(&sealed), Err(EncodingError::Content { .. })));
    }
}
