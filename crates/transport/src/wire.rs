//! The frame around everything peers exchange: magic, version, length, then fixed fields in
//! little-endian order. A later version may append fields; a reader refuses what is newer.

use crate::HandleError;

/// Magic, u16 version, u16 length of the whole message in bytes.
pub(crate) const HEADER: usize = 8;

/// A kind of message.
pub(crate) struct Frame {
    pub(crate) what: &'static str,
    pub(crate) magic: [u8; 4],
    pub(crate) version: u16,
    /// Bytes after the header.
    pub(crate) body: usize,
}

impl Frame {
    pub(crate) fn wrap(&self, body: &[u8]) -> Vec<u8> {
        debug_assert_eq!(body.len(), self.body);
        let mut out = Vec::with_capacity(HEADER + body.len());
        out.extend_from_slice(&self.magic);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&((HEADER + body.len()) as u16).to_le_bytes());
        out.extend_from_slice(body);
        out
    }

    /// The body, if `bytes` is exactly one message of this kind.
    pub(crate) fn unwrap<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], HandleError> {
        let what = self.what;
        let short = |expected| HandleError::Truncated { what, expected, found: bytes.len() };
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or(short(HEADER))?;
        if *magic != self.magic {
            return Err(HandleError::Magic { what, expected: self.magic, found: *magic });
        }
        let (version, rest) = rest.split_first_chunk::<2>().ok_or(short(HEADER))?;
        let (length, body) = rest.split_first_chunk::<2>().ok_or(short(HEADER))?;
        let version = u16::from_le_bytes(*version);
        if version > self.version {
            return Err(HandleError::Version { what, found: version, newest: self.version });
        }
        if version < self.version {
            return Err(HandleError::Outdated { what, found: version, oldest: self.version });
        }
        let length = usize::from(u16::from_le_bytes(*length));
        let right = length == HEADER + self.body;
        self.field("length", length as u64, right, "the length of its version")?;
        if body.len() < self.body {
            return Err(short(length));
        }
        match body.len() - self.body {
            0 => Ok(body),
            extra => Err(HandleError::Trailing { what, extra }),
        }
    }

    pub(crate) fn field(
        &self,
        field: &'static str,
        value: u64,
        right: bool,
        expected: &'static str,
    ) -> Result<(), HandleError> {
        let what = self.what;
        if right { Ok(()) } else { Err(HandleError::Field { what, field, value, expected }) }
    }
}

/// Takes fixed fields off the front of a body whose length was checked.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    /// The next `N` bytes; zeros past the end.
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.0 = rest;
                *head
            }
            None => [0; N],
        }
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}
