//! Envelopes of packets: IP and UDP headers, which the link does not show but the ICRC covers, and
//! the route header that a datagram has in its receive.

use std::net::SocketAddr;
use warpverbs_link::{Arrival, Seal};
use warpverbs_wire::{Envelope, Ip, ParseError, Transport, Udp, icrc};

/// Bytes before the payload in a receive: a global route header, or the IP header at its end.
pub(super) const GRH: usize = 40;

/// The envelopes of packets to this end.
#[derive(Debug, Default)]
pub(super) struct Envelopes {
    /// This end's address, if there is a link.
    pub(super) local: Option<SocketAddr>,
    hidden: HiddenIds,
}

impl Envelopes {
    pub(super) fn new(local: Option<SocketAddr>) -> Self {
        Self { local, ..Self::default() }
    }
}

impl Envelopes {
    /// The packet without its ICRC, which is checked.
    pub(super) fn open<'a>(&mut self, arrival: Arrival<'a>) -> Result<&'a [u8], ParseError> {
        match arrival.seal {
            Seal::Absent => Ok(icrc::split(arrival.bytes)?.0),
            Seal::Exact(id) => self.envelope(arrival.from, id)?.open(arrival.bytes),
            Seal::HiddenId => {
                let envelope = self.envelope(arrival.from, self.hidden.guess())?;
                let (ib, explained) = envelope.open_any_id(arrival.bytes)?;
                if let Ip::V4(ip) = explained.ip {
                    self.hidden.learn(ip.id);
                }
                Ok(ib)
            }
        }
    }

    /// The headers around a datagram from `from`; `id` is its IPv4 identification.
    fn envelope(&self, from: SocketAddr, id: u16) -> Result<Envelope, ParseError> {
        let unknown = ParseError::IpVersion { found: 0 };
        let local = self.local.ok_or(unknown)?;
        let mut ip = Ip::new(from.ip(), local.ip()).ok_or(unknown)?;
        if let Ip::V4(ip) = &mut ip {
            ip.id = id;
        }
        Ok(Envelope { ip, udp: Udp { src_port: from.port() } })
    }

    /// The route header of a datagram, and whether it is one of IPv6.
    pub(super) fn route_header(
        &self,
        from: SocketAddr,
        packet: &Transport<'_>,
    ) -> Option<([u8; GRH], bool)> {
        let ip = Ip::new(from.ip(), self.local?.ip())?;
        let envelope = Envelope { ip, udp: Udp { src_port: from.port() } };
        let (mut headers, mut grh) = ([0; GRH + 8], [0; GRH]);
        envelope.emit(packet.len() + icrc::LEN, &mut headers).ok()?;
        let ip_len = envelope.len() - 8;
        grh[GRH - ip_len..].copy_from_slice(&headers[..ip_len]);
        Some((grh, from.is_ipv6()))
    }
}

/// Guesses IPv4 identifications that a link hides. A sender numbers the datagrams of one call from
/// 0 on; a right guess saves computing it from the ICRC.
#[derive(Debug, Default)]
struct HiddenIds {
    last: u16,
    follows: bool,
}

impl HiddenIds {
    fn guess(&self) -> u16 {
        if self.follows { self.last.wrapping_add(1) } else { 0 }
    }

    fn learn(&mut self, id: u16) {
        self.follows = id != 0 && id == self.last.wrapping_add(1);
        self.last = id;
    }
}
