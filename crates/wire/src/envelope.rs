//! Headers around the InfiniBand part: IP and UDP.

use core::net::IpAddr;

use crate::{HeaderName, Layout, ParseError, Udp, ipv4, ipv6, udp};

/// An IP header of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// Version 4.
    V4(ipv4::Repr),
    /// Version 6.
    V6(ipv6::Repr),
}

impl Ip {
    /// An ordinary header from `src` to `dst`, or `None` if they are of different families.
    pub const fn new(src: IpAddr, dst: IpAddr) -> Option<Ip> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Ip::V4(ipv4::Repr::new(src, dst))),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Ip::V6(ipv6::Repr::new(src, dst))),
            _ => None,
        }
    }

    /// Source address.
    pub const fn src(&self) -> IpAddr {
        match self {
            Ip::V4(ip) => IpAddr::V4(ip.src),
            Ip::V6(ip) => IpAddr::V6(ip.src),
        }
    }

    /// Destination address.
    pub const fn dst(&self) -> IpAddr {
        match self {
            Ip::V4(ip) => IpAddr::V4(ip.dst),
            Ip::V6(ip) => IpAddr::V6(ip.dst),
        }
    }
}

/// The IP and UDP headers of a packet. The ICRC covers them, so code that seals or checks a
/// datagram must know them even where a socket writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The IP header.
    pub ip: Ip,
    /// The UDP header.
    pub udp: Udp,
}

impl Envelope {
    /// The longest datagram, ICRC included, that both IP versions can carry.
    pub const MAX_DATAGRAM: usize = 65535 - ipv4::Header::LEN - udp::Header::LEN;

    /// Bytes of both headers: 28 or 48.
    pub const fn len(&self) -> usize {
        udp::Header::LEN
            + match self.ip {
                Ip::V4(_) => ipv4::Header::LEN,
                Ip::V6(_) => ipv6::Header::LEN,
            }
    }

    /// Never: an envelope has two headers.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Reads the headers at the start of `packet`; also returns the datagram behind them. Link
    /// padding after it is cut off: the shortest packets are below Ethernet's minimum.
    ///
    /// # Errors
    /// Truncation, a version other than 4 and 6, whatever the headers' `parse` refuse, and lengths
    /// that contradict each other.
    pub fn parse(packet: &[u8]) -> Result<(Envelope, &[u8]), ParseError> {
        let version = packet.first().map_or(4, |byte| byte >> 4);
        let (ip, segment) = match version {
            4 => {
                let (header, rest) = ipv4::Header::view(packet)?;
                (Ip::V4(ipv4::Repr::parse(header)?), header.payload(rest)?)
            }
            6 => {
                let (header, rest) = ipv6::Header::view(packet)?;
                (Ip::V6(ipv6::Repr::parse(header)?), header.payload(rest)?)
            }
            found => return Err(ParseError::IpVersion { found }),
        };
        let (header, rest) = udp::Header::view(segment)?;
        let udp = udp::Repr::parse(header)?;
        Ok((Envelope { ip, udp }, header.payload(rest)?))
    }

    /// Writes the headers for a datagram of `datagram_len` bytes at the start of `out`; returns
    /// what follows them.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `out` is too short for them, [`ParseError::Length`] if the
    /// datagram is longer than [`MAX_DATAGRAM`](Self::MAX_DATAGRAM).
    pub fn emit<'a>(
        &self,
        datagram_len: usize,
        out: &'a mut [u8],
    ) -> Result<&'a mut [u8], ParseError> {
        let (datagram_len, segment_len) = lengths(datagram_len)?;
        let rest = match self.ip {
            Ip::V4(ip) => {
                let (header, rest) = ipv4::Header::view_mut(out)?;
                ip.emit(segment_len, header);
                rest
            }
            Ip::V6(ip) => {
                let (header, rest) = ipv6::Header::view_mut(out)?;
                ip.emit(segment_len, header);
                rest
            }
        };
        let (header, rest) = udp::Header::view_mut(rest)?;
        self.udp.emit(datagram_len, header);
        Ok(rest)
    }
}

/// Lengths of a datagram and of the UDP segment around it.
pub(crate) fn lengths(datagram_len: usize) -> Result<(u16, u16), ParseError> {
    let expected = Envelope::MAX_DATAGRAM;
    if datagram_len > expected {
        return Err(ParseError::Length { header: HeaderName::Udp, found: datagram_len, expected });
    }
    Ok((datagram_len as u16, datagram_len as u16 + udp::Header::LEN as u16))
}
