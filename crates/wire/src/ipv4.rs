//! IPv4 header without options, 20 bytes (RFC 791).

use core::net::Ipv4Addr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::layout;
use crate::udp::PROTOCOL;
use crate::{HeaderName, Layout, ParseError};

const DONT_FRAGMENT: u16 = 0x4000;
const VERSION_IHL: u8 = 0x45;

/// The layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Version 4, then header length in words.
    pub version_ihl: u8,
    /// DSCP, then ECN. Not covered by the ICRC.
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_len: U16,
    /// Identification.
    pub id: U16,
    /// Three flags, then the fragment offset.
    pub flags_fragment: U16,
    /// Time to live. Not covered by the ICRC.
    pub ttl: u8,
    /// 17 for UDP.
    pub protocol: u8,
    /// Header checksum. Not covered by the ICRC.
    pub checksum: U16,
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
}

layout!(Header, Ipv4, 20);

impl Header {
    /// The bytes that the header calls its payload; link padding behind them is cut off.
    ///
    /// # Errors
    /// [`ParseError::Length`] if the total length is below the header's own or beyond `rest`.
    pub fn payload<'a>(&self, rest: &'a [u8]) -> Result<&'a [u8], ParseError> {
        let found = usize::from(self.total_len.get());
        let payload = found.checked_sub(Self::LEN).and_then(|len| rest.get(..len));
        let expected = Self::LEN + rest.len();
        payload.ok_or(ParseError::Length { header: HeaderName::Ipv4, found, expected })
    }

    /// The value that the checksum field must have, given the others.
    pub fn expected_checksum(&self) -> u16 {
        let blank = Header { checksum: U16::ZERO, ..*self };
        let (words, _) = blank.as_bytes().as_chunks::<2>();
        let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        // At most ten words: two folds are enough.
        let sum = (sum & 0xffff) + (sum >> 16);
        !((sum & 0xffff) + (sum >> 16)) as u16
    }
}

/// The value. Total length and checksum are derived; options and fragments do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Identification. Covered by the ICRC, though a UDP socket neither sets nor shows it.
    pub id: u16,
    /// Don't fragment. Covered by the ICRC.
    pub dont_fragment: bool,
}

impl Repr {
    /// Best effort, TTL 64, id 0, don't fragment: what a UDP socket sends that forbids
    /// fragmentation.
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr) -> Repr {
        Repr { src, dst, tos: 0, ttl: 64, id: 0, dont_fragment: true }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Another version, options, a fragment, the reserved flag, another protocol than UDP, or a
    /// wrong checksum.
    pub fn parse(header: &Header) -> Result<Repr, ParseError> {
        let (version, words) = (header.version_ihl >> 4, header.version_ihl & 0xf);
        if version != 4 {
            return Err(ParseError::IpVersion { found: version });
        }
        if words != VERSION_IHL & 0xf {
            return Err(ParseError::Ipv4HeaderWords { found: words });
        }
        let (found, expected) = (header.checksum.get(), header.expected_checksum());
        if found != expected {
            return Err(ParseError::Ipv4Checksum { found, expected });
        }
        let flags = header.flags_fragment.get();
        if flags & !DONT_FRAGMENT != 0 {
            return Err(ParseError::Ipv4Fragment { found: flags });
        }
        if header.protocol != PROTOCOL {
            return Err(ParseError::Protocol { found: header.protocol });
        }
        Ok(Repr {
            src: Ipv4Addr::from(header.src),
            dst: Ipv4Addr::from(header.dst),
            tos: header.tos,
            ttl: header.ttl,
            id: header.id.get(),
            dont_fragment: flags == DONT_FRAGMENT,
        })
    }

    /// Writes a header before `payload_len` bytes of UDP, at most 65515.
    pub fn emit(&self, payload_len: u16, out: &mut Header) {
        *out = self.without_checksum(payload_len);
        out.checksum = U16::new(out.expected_checksum());
    }

    pub(crate) fn without_checksum(&self, payload_len: u16) -> Header {
        Header {
            version_ihl: VERSION_IHL,
            tos: self.tos,
            total_len: U16::new(payload_len.saturating_add(Header::LEN as u16)),
            id: U16::new(self.id),
            flags_fragment: U16::new(if self.dont_fragment { DONT_FRAGMENT } else { 0 }),
            ttl: self.ttl,
            protocol: PROTOCOL,
            checksum: U16::ZERO,
            src: self.src.octets(),
            dst: self.dst.octets(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 10.1.2.3 to 10.1.2.4, 64 bytes of UDP; the checksum worked out by hand from RFC 1071.
    const BYTES: [u8; 20] = [
        0x45, 0x02, 0x00, 0x54, 0xbe, 0xef, 0x40, 0x00, 0x40, 0x11, 0x63, 0x9f, 10, 1, 2, 3, 10, 1,
        2, 4,
    ];

    fn repr() -> Repr {
        let (src, dst) = (Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(10, 1, 2, 4));
        Repr { src, dst, tos: 2, ttl: 64, id: 0xbeef, dont_fragment: true }
    }

    fn parse_with(change: impl Fn(&mut Header)) -> Result<Repr, ParseError> {
        let mut bytes = BYTES;
        let (header, _) = Header::view_mut(&mut bytes).unwrap();
        change(header);
        header.checksum = U16::new(header.expected_checksum());
        Repr::parse(header)
    }

    #[test]
    fn golden_both_ways() {
        let (header, rest) = Header::view(&BYTES).unwrap();
        assert_eq!((Repr::parse(header), rest), (Ok(repr()), &[][..]));
        let mut out = [0xa5; 20];
        repr().emit(64, Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, BYTES);
    }

    #[test]
    fn each_bad_field_is_named() {
        assert_eq!(parse_with(|_| ()), Ok(repr()));
        type Change = fn(&mut Header);
        let cases: [(Change, ParseError); 5] = [
            (|h| h.version_ihl = 0x55, ParseError::IpVersion { found: 5 }),
            (|h| h.version_ihl = 0x46, ParseError::Ipv4HeaderWords { found: 6 }),
            (|h| h.flags_fragment = U16::new(0x2000), ParseError::Ipv4Fragment { found: 0x2000 }),
            (|h| h.flags_fragment = U16::new(0xc000), ParseError::Ipv4Fragment { found: 0xc000 }),
            (|h| h.protocol = 6, ParseError::Protocol { found: 6 }),
        ];
        for (change, error) in cases {
            assert_eq!(parse_with(change), Err(error));
        }
        let mut bytes = BYTES;
        bytes[10] ^= 1;
        let error = ParseError::Ipv4Checksum { found: 0x629f, expected: 0x639f };
        assert_eq!(Repr::parse(Header::view(&bytes).unwrap().0), Err(error));
    }

    #[test]
    fn payload_is_cut_at_the_total_length() {
        let (header, _) = Header::view(&BYTES).unwrap();
        assert_eq!(header.payload(&[7; 70]).map(<[u8]>::len), Ok(64));
        let error = ParseError::Length { header: HeaderName::Ipv4, found: 84, expected: 83 };
        assert_eq!(header.payload(&[7; 63]), Err(error));
        let short = Header { total_len: U16::new(19), ..*header };
        assert!(matches!(short.payload(&[7; 63]), Err(ParseError::Length { found: 19, .. })));
    }
}
