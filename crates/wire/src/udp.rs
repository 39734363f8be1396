//! UDP header, 8 bytes (RFC 768), always to port 4791.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::layout;
use crate::{HeaderName, Layout, ParseError};

/// The destination port of RoCEv2.
pub const PORT: u16 = 4791;
/// UDP's number as an IP protocol.
pub const PROTOCOL: u8 = 17;

/// The layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Bytes of header and payload.
    pub len: U16,
    /// Checksum, 0 for none. Not covered by the ICRC.
    pub checksum: U16,
}

layout!(Header, Udp, 8);

impl Header {
    /// The payload, which is all of `rest`.
    ///
    /// # Errors
    /// [`ParseError::Length`] if the length field says otherwise.
    pub fn payload<'a>(&self, rest: &'a [u8]) -> Result<&'a [u8], ParseError> {
        let (found, expected) = (usize::from(self.len.get()), Self::LEN + rest.len());
        if found != expected {
            return Err(ParseError::Length { header: HeaderName::Udp, found, expected });
        }
        Ok(rest)
    }
}

/// The value. The length is derived. The checksum is sent as 0, as RoCEv2 does over IPv4 and IPv6
/// alike, and not looked at: the ICRC covers more, with more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port: only entropy for multipath, constant for a queue pair.
    pub src_port: u16,
}

impl Repr {
    /// Reads a header.
    ///
    /// # Errors
    /// [`ParseError::Port`] if it is not for port 4791.
    pub fn parse(header: &Header) -> Result<Repr, ParseError> {
        match header.dst_port.get() {
            PORT => Ok(Repr { src_port: header.src_port.get() }),
            found => Err(ParseError::Port { found }),
        }
    }

    /// Writes a header before `payload_len` bytes, at most 65527.
    pub fn emit(&self, payload_len: u16, out: &mut Header) {
        *out = Header {
            src_port: U16::new(self.src_port),
            dst_port: U16::new(PORT),
            len: U16::new(payload_len.saturating_add(Header::LEN as u16)),
            checksum: U16::ZERO,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 8] = [0xc0, 0x01, 0x12, 0xb7, 0x00, 0x18, 0x00, 0x00];

    #[test]
    fn golden_both_ways() {
        let (header, _) = Header::view(&BYTES).unwrap();
        assert_eq!(Repr::parse(header), Ok(Repr { src_port: 0xc001 }));
        let mut out = [0xa5; 8];
        Repr { src_port: 0xc001 }.emit(16, Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, BYTES);
    }

    #[test]
    fn each_bad_field_is_named() {
        let (header, _) = Header::view(&BYTES).unwrap();
        let other = Header { dst_port: U16::new(4792), ..*header };
        assert_eq!(Repr::parse(&other), Err(ParseError::Port { found: 4792 }));
        assert_eq!(header.payload(&[1; 16]), Ok(&[1; 16][..]));
        for rest in [15, 17] {
            let expected = 8 + rest;
            let error = ParseError::Length { header: HeaderName::Udp, found: 24, expected };
            assert_eq!(header.payload(&[1; 17][..rest]), Err(error));
        }
    }
}
