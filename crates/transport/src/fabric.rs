//! On which network a NIC is, and where: what a handle says of it, and whether two NICs can meet.

use crate::wire::Frame;
use crate::{HandleError, UsageError};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use warpverbs_rdma::ROCE_PORT;
#[cfg(feature = "verbs")]
use warpverbs_verbs as verbs;

/// The network a NIC is on, and its address there. A GID has the form of an IPv6 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FabricAddress {
    /// On none: only QPs of the same NIC reach it.
    #[default]
    Local,
    /// RoCEv2 from a UDP socket, as the software NIC speaks it, on any port.
    Udp(SocketAddr),
    /// RoCEv2 of a device: UDP port 4791 of the IP address that the GID is.
    RoceV2 {
        /// The device's GID.
        gid: [u8; 16],
    },
    /// RoCEv1: Ethernet frames, which no router passes on.
    RoceV1 {
        /// The device's GID.
        gid: [u8; 16],
    },
    /// InfiniBand.
    Infiniband {
        /// The port's GID.
        gid: [u8; 16],
        /// The port's local identifier.
        lid: u16,
    },
}

impl FabricAddress {
    /// The address of a device's port on this kind of network.
    #[cfg(feature = "verbs")]
    pub fn of_port(layer: verbs::LinkLayer, gid: &verbs::GidEntry, lid: u16) -> Self {
        let address = gid.gid.0;
        match (layer, gid.kind) {
            (verbs::LinkLayer::InfiniBand, _) => Self::Infiniband { gid: address, lid },
            (_, verbs::GidKind::RoceV1) => Self::RoceV1 { gid: address },
            _ => Self::RoceV2 { gid: address },
        }
    }

    /// The IP address and the UDP port to which RoCEv2 packets go, if they are spoken.
    pub fn udp(&self) -> Option<SocketAddr> {
        match *self {
            Self::Udp(addr) => Some(addr),
            Self::RoceV2 { gid } => {
                Some(SocketAddr::new(Ipv6Addr::from(gid).to_canonical(), ROCE_PORT))
            }
            _ => None,
        }
    }

    /// Kind, GID, port, LID: 21 bytes in all.
    pub(crate) fn fields(&self) -> (u8, [u8; 16], u16, u16) {
        match *self {
            Self::Local => (0, [0; 16], 0, 0),
            Self::Udp(addr) => (1, gid_of(addr.ip()), addr.port(), 0),
            Self::RoceV2 { gid } => (2, gid, 0, 0),
            Self::RoceV1 { gid } => (3, gid, 0, 0),
            Self::Infiniband { gid, lid } => (4, gid, 0, lid),
        }
    }

    /// Reads the fields of [`Self::fields`], every one checked.
    pub(crate) fn from_fields(
        frame: &Frame,
        (kind, gid, port, lid): (u8, [u8; 16], u16, u16),
    ) -> Result<Self, HandleError> {
        frame.field("network", kind.into(), kind <= 4, "0 to 4")?;
        let (has_port, has_lid) = (port != 0, lid != 0);
        frame.field("port", port.into(), has_port == (kind == 1), "0 but for a UDP socket")?;
        frame.field("lid", lid.into(), !has_lid || kind == 4, "0 but on InfiniBand")?;
        let (ip, zero) = (Ipv6Addr::from(gid).to_canonical(), gid == [0; 16]);
        frame.field("gid", gid[0].into(), zero == (kind == 0), "0 without a network, else not")?;
        let host = !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        frame.field("gid", gid[0].into(), host, "the address of one host")?;
        Ok(match kind {
            0 => Self::Local,
            1 => Self::Udp(SocketAddr::new(ip, port)),
            2 => Self::RoceV2 { gid },
            3 => Self::RoceV1 { gid },
            _ => Self::Infiniband { gid, lid },
        })
    }

    /// Whether packets of `nic`, which is here, arrive at a NIC at `peer`, both ways.
    ///
    /// # Errors
    /// They do not; the error says why.
    pub fn check(&self, nic: &str, peer: &Self) -> Result<(), UsageError> {
        let why = match (self, peer) {
            (Self::Local, _) | (_, Self::Local) => "one of them is on no network",
            (Self::Infiniband { .. }, Self::Infiniband { .. }) => return Ok(()),
            (Self::RoceV1 { .. }, Self::RoceV1 { .. }) => return Ok(()),
            _ => match (self.udp(), peer.udp()) {
                (Some(own), Some(far)) if own.is_ipv4() != far.is_ipv4() => {
                    "one has an IPv4 address, the other an IPv6 address"
                }
                (Some(own), Some(far))
                    if self.needs_port(peer)
                        && (own.port(), far.port()) != (ROCE_PORT, ROCE_PORT) =>
                {
                    "a device speaks to UDP port 4791 only; give the software NIC that port"
                }
                (Some(_), Some(_)) => return Ok(()),
                _ => "they are on networks of different kinds",
            },
        };
        let nic = nic.to_owned();
        Err(UsageError::NoWay { nic, own: *self, peer: *peer, why })
    }

    /// One of the two is a device.
    fn needs_port(&self, peer: &Self) -> bool {
        !matches!((self, peer), (Self::Udp(_), Self::Udp(_)))
    }
}

/// An address as a GID: IPv6, or IPv4 mapped into it.
pub(crate) fn gid_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl fmt::Display for FabricAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |gid: &[u8; 16]| Ipv6Addr::from(*gid);
        match self {
            Self::Local => f.write_str("no network"),
            Self::Udp(addr) => write!(f, "RoCEv2 by a UDP socket at {addr}"),
            Self::RoceV2 { gid } => write!(f, "RoCEv2 at GID {}", text(gid)),
            Self::RoceV1 { gid } => write!(f, "RoCEv1 at GID {}", text(gid)),
            Self::Infiniband { gid, lid } => {
                write!(f, "InfiniBand at LID {lid}, GID {}", text(gid))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(addr: &str) -> FabricAddress {
        FabricAddress::Udp(addr.parse().unwrap())
    }

    fn roce(addr: &str) -> FabricAddress {
        FabricAddress::RoceV2 { gid: gid_of(addr.parse().unwrap()) }
    }

    #[test]
    fn who_meets_whom() {
        let gid = [1; 16];
        let ib = |lid| FabricAddress::Infiniband { gid, lid };
        let rows = [
            (udp("10.0.0.1:5000"), udp("10.0.0.2:6000"), None),
            (udp("10.0.0.1:4791"), roce("10.0.0.2"), None),
            (roce("10.0.0.2"), roce("10.0.0.1"), None),
            (ib(1), ib(2), None),
            (FabricAddress::RoceV1 { gid }, FabricAddress::RoceV1 { gid }, None),
            (udp("10.0.0.1:5000"), roce("10.0.0.2"), Some("4791")),
            (udp("10.0.0.1:4791"), roce("fd00::2"), Some("IPv6")),
            (roce("fd00::2"), roce("10.0.0.1"), Some("IPv6")),
            (ib(1), roce("10.0.0.1"), Some("different kinds")),
            (FabricAddress::RoceV1 { gid }, roce("10.0.0.1"), Some("different kinds")),
            (FabricAddress::Local, roce("10.0.0.1"), Some("no network")),
        ];
        for (a, b, why) in rows {
            for (own, peer) in [(a, b), (b, a)] {
                match (own.check("x", &peer), why) {
                    (Ok(()), None) => {}
                    (Err(error), Some(why)) => {
                        assert!(error.to_string().contains(why), "{error}");
                    }
                    (result, _) => panic!("{own} to {peer}: {result:?}"),
                }
            }
        }
    }
}
