//! The beginning of a connection: magic number and version.

use serde::de::DeserializeOwned;
use std::error::Error;

/// Name and version of a protocol, as they travel: the magic number, then the version, little-endian.
#[derive(Clone, Copy, Debug)]
pub struct Hello {
    /// The magic number.
    pub magic: &'static [u8],
    /// Raised with every change of the protocol.
    pub version: u16,
}

/// Why the peer's hello is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum HelloError {
    /// It is another program.
    #[error("magic \"{}\", expected \"{}\"", .found.escape_ascii(), .expected.escape_ascii())]
    Program { found: Vec<u8>, expected: &'static [u8] },
    /// It is the right program in another version.
    #[error("version {found} of the protocol, expected {expected}")]
    Version { found: u16, expected: u16 },
}

impl Hello {
    /// The bytes to begin with.
    pub fn bytes(&self) -> Vec<u8> {
        [self.magic, &self.version.to_le_bytes()].concat()
    }

    /// Whether `start` holds all of it. Each byte is compared as it arrives, so that another program is
    /// recognised even if it sends a few bytes and waits for an answer.
    ///
    /// # Errors
    /// `start` begins otherwise.
    pub fn check(&self, start: &[u8]) -> Result<bool, HelloError> {
        let (magic, rest) = start.split_at(self.magic.len().min(start.len()));
        if !self.magic.starts_with(magic) {
            return Err(self.other_program(magic));
        }
        let Some(found) = rest.first_chunk::<2>().map(|bytes| u16::from_le_bytes(*bytes)) else {
            return Ok(false);
        };
        match found == self.version {
            true => Ok(true),
            false => Err(HelloError::Version { found, expected: self.version }),
        }
    }

    /// Decodes a message that consists of this hello and one value.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        message: &[u8],
    ) -> Result<T, Box<dyn Error + Send + Sync>> {
        match self.check(message)? {
            true => Ok(crate::decode(&message[self.magic.len() + 2..])?),
            false => Err(self.other_program(message).into()),
        }
    }

    /// The error for another program, which began with `found`.
    pub fn other_program(&self, found: &[u8]) -> HelloError {
        HelloError::Program { found: found.to_vec(), expected: self.magic }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_and_another_version_are_told_apart() {
        let hello = Hello { magic: b"WVAC", version: 0x0302 };
        let own = hello.bytes();
        assert_eq!(own, b"WVAC\x02\x03");
        for len in 0..own.len() {
            assert_eq!(hello.check(&own[..len]), Ok(false));
        }
        assert_eq!(hello.check(b"WVAC\x02\x03more"), Ok(true));
        let why = |bytes| hello.check(bytes).unwrap_err().to_string();
        assert_eq!(why(b"WX"), "magic \"WX\", expected \"WVAC\"");
        assert_eq!(why(b"HTTP\x02\x03"), "magic \"HTTP\", expected \"WVAC\"");
        assert_eq!(why(b"WVAC\x02\x02"), "version 514 of the protocol, expected 770");
    }
}
