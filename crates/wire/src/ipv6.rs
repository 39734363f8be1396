//! IPv6 header, 40 bytes (RFC 8200). UDP follows at once: extension headers do not exist here.

use core::net::Ipv6Addr;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::layout;
use crate::udp::PROTOCOL;
use crate::{HeaderName, ParseError};

const FLOW_LABEL: u32 = 0xf_ffff;

/// The layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Version 6 (4 bits), traffic class (8), flow label (20). The ICRC covers the version only.
    pub version_class_flow: U32,
    /// Bytes after this header.
    pub payload_len: U16,
    /// 17 for UDP.
    pub next_header: u8,
    /// Hop limit. Not covered by the ICRC.
    pub hop_limit: u8,
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
}

layout!(Header, Ipv6, 40);

impl Header {
    /// The bytes that the header calls its payload; link padding behind them is cut off.
    ///
    /// # Errors
    /// [`ParseError::Length`] if the payload length is beyond `rest`.
    pub fn payload<'a>(&self, rest: &'a [u8]) -> Result<&'a [u8], ParseError> {
        let (found, expected) = (usize::from(self.payload_len.get()), rest.len());
        rest.get(..found).ok_or(ParseError::Length { header: HeaderName::Ipv6, found, expected })
    }
}

/// The value. The payload length is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label; the low 20 bits are sent.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Repr {
    /// Best effort, no flow label, hop limit 64.
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr) -> Repr {
        Repr { src, dst, traffic_class: 0, flow_label: 0, hop_limit: 64 }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Another version, or another next header than UDP.
    pub fn parse(header: &Header) -> Result<Repr, ParseError> {
        let word = header.version_class_flow.get();
        if word >> 28 != 6 {
            return Err(ParseError::IpVersion { found: (word >> 28) as u8 });
        }
        if header.next_header != PROTOCOL {
            return Err(ParseError::Protocol { found: header.next_header });
        }
        Ok(Repr {
            src: Ipv6Addr::from(header.src),
            dst: Ipv6Addr::from(header.dst),
            traffic_class: (word >> 20) as u8,
            flow_label: word & FLOW_LABEL,
            hop_limit: header.hop_limit,
        })
    }

    /// Writes a header before `payload_len` bytes of UDP.
    pub fn emit(&self, payload_len: u16, out: &mut Header) {
        let class = u32::from(self.traffic_class) << 20;
        *out = Header {
            version_class_flow: U32::new(6 << 28 | class | self.flow_label & FLOW_LABEL),
            payload_len: U16::new(payload_len),
            next_header: PROTOCOL,
            hop_limit: self.hop_limit,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    const BYTES: [u8; 40] = [
        0x68, 0x11, 0x23, 0x45, 0x00, 0x20, 0x11, 0x40, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 1, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
    ];

    fn repr() -> Repr {
        let src = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        let dst = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
        Repr { src, dst, traffic_class: 0x81, flow_label: 0x12345, hop_limit: 64 }
    }

    #[test]
    fn golden_both_ways() {
        let (header, _) = Header::view(&BYTES).unwrap();
        assert_eq!(Repr::parse(header), Ok(repr()));
        let mut out = [0xa5; 40];
        repr().emit(32, Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, BYTES);
        let wide = Repr { flow_label: 0xfff1_2345, ..repr() };
        wide.emit(32, Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, BYTES, "no more than 20 bits of flow label");
    }

    #[test]
    fn each_bad_field_is_named() {
        let (header, _) = Header::view(&BYTES).unwrap();
        let old = Header { version_class_flow: U32::new(0x4811_2345), ..*header };
        assert_eq!(Repr::parse(&old), Err(ParseError::IpVersion { found: 4 }));
        let hop_by_hop = Header { next_header: 0, ..*header };
        assert_eq!(Repr::parse(&hop_by_hop), Err(ParseError::Protocol { found: 0 }));
        assert_eq!(header.payload(&[0; 40]).map(<[u8]>::len), Ok(32));
        let error = ParseError::Length { header: HeaderName::Ipv6, found: 32, expected: 31 };
        assert_eq!(header.payload(&[0; 31]), Err(error));
    }
}
