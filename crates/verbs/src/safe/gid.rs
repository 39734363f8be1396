//! GIDs: the addresses of a port.

use super::{LinkLayer, VerbsError};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A global identifier, in the form of an IPv6 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The bytes as an address. An IPv4 address stands in its last four bytes, after `::ffff:`.
    pub fn ipv6(self) -> Ipv6Addr {
        Ipv6Addr::from(self.0)
    }

    /// The IPv4 address in it.
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        self.ipv6().to_ipv4_mapped()
    }

    /// Whether it is an address of the link only, made from a MAC address as a rule.
    pub fn is_link_local(self) -> bool {
        self.ipv6().is_unicast_link_local()
    }

    /// Whether its entry of the table is not in use.
    pub fn is_zero(self) -> bool {
        // InfiniBand keeps the subnet prefix in unused entries of some drivers.
        self.0[8..] == [0; 8]
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ipv6().fmt(f)
    }
}

/// How packets that use a GID look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidKind {
    /// InfiniBand.
    Ib,
    /// Ethernet type 0x8915, which no router passes on.
    RoceV1,
    /// UDP port 4791.
    RoceV2,
    /// Not known: a type this crate does not know, or a system that does not tell.
    Unknown,
}

impl GidKind {
    /// The kind for a word in `gid_attrs/types` of a port of this link layer.
    pub fn from_sysfs(link_layer: LinkLayer, word: &str) -> Self {
        match (link_layer, word) {
            (LinkLayer::InfiniBand, _) => Self::Ib,
            (_, "IB/RoCE v1") => Self::RoceV1,
            (_, "RoCE v2") => Self::RoceV2,
            _ => Self::Unknown,
        }
    }
}

/// One entry in use of a port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index, which a QP's path names.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// How packets look.
    pub kind: GidKind,
    /// Index of the network interface that it comes from, on Ethernet.
    pub interface: Option<u32>,
}

/// A GID, and why this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidChoice {
    /// The entry.
    pub entry: GidEntry,
    /// One line.
    pub why: String,
}

/// The rank of a kind of address on Ethernet, lower is better, and its name.
fn rank(entry: &GidEntry) -> (u8, &'static str) {
    let address = match (entry.gid.ipv4().is_some(), entry.gid.is_link_local()) {
        (true, _) => 0,
        (_, false) => 1,
        (_, true) => 2,
    };
    match (entry.kind, address) {
        (GidKind::RoceV2, 0) => (0, "RoCEv2 with an IPv4 address, which routers pass on"),
        (GidKind::RoceV2, 1) => (1, "RoCEv2 with a global IPv6 address; there is none with IPv4"),
        (GidKind::RoceV2, _) => (
            2,
            "RoCEv2 link-local, which reaches this link only; give the interface an IPv4 address for more",
        ),
        (GidKind::RoceV1, n) => {
            (3 + n, "RoCEv1, which routers do not pass on; the port has no RoCEv2 GID")
        }
        (_, n) => (6 + n, "of a kind that the system does not tell"),
    }
}

impl GidChoice {
    /// The one that [`Context::choose_gid`](super::Context::choose_gid) takes of a port's `entries`.
    pub fn best(
        device: &str,
        link_layer: LinkLayer,
        port: u8,
        entries: &[GidEntry],
    ) -> Result<Self, VerbsError> {
        let chosen = match link_layer {
            LinkLayer::InfiniBand => {
                entries.first().map(|entry| (entry, "the port's own, on InfiniBand"))
            }
            _ => entries
                .iter()
                .min_by_key(|entry| (rank(entry).0, entry.index))
                .map(|entry| (entry, rank(entry).1)),
        };
        let Some((entry, why)) = chosen else {
            return Err(VerbsError::NoGid {
                device: device.to_owned(),
                port,
                wanted: vec![GidKind::RoceV2, GidKind::RoceV1, GidKind::Ib],
                found: "its table is empty: is the network interface up, with an address?"
                    .to_owned(),
            });
        };
        let why = format!("GID {} of {}: {}, {why}", entry.index, entries.len(), entry.gid);
        Ok(GidChoice { entry: *entry, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: LinkLayer = LinkLayer::Ethernet;

    fn entry(index: u32, address: &str, kind: GidKind) -> GidEntry {
        let gid = Gid(address.parse::<Ipv6Addr>().unwrap().octets());
        GidEntry { index, gid, kind, interface: None }
    }

    #[test]
    fn rocev2_with_ipv4_comes_first() {
        use GidKind::{RoceV1, RoceV2};
        let table = [
            entry(0, "fe80::1", RoceV1),
            entry(1, "fe80::1", RoceV2),
            entry(2, "2001:db8::1", RoceV2),
            entry(3, "::ffff:10.0.0.1", RoceV1),
            entry(4, "::ffff:10.0.0.1", RoceV2),
            entry(5, "::ffff:10.0.0.2", RoceV2),
        ];
        let best = |n: usize| GidChoice::best("x", ETHERNET, 1, &table[..n]).unwrap().entry.index;
        assert_eq!([1, 2, 3, 4, 5, 6].map(best), [0, 1, 2, 2, 4, 4]);
        let why = GidChoice::best("x", ETHERNET, 1, &table).unwrap().why;
        assert!(why.contains("GID 4 of 6: ::ffff:10.0.0.1, RoCEv2"), "{why}");
    }

    #[test]
    fn infiniband_takes_its_first_and_an_empty_table_is_an_error() {
        let table = [entry(0, "fe80::9", GidKind::Ib), entry(1, "2001:db8::1", GidKind::Ib)];
        assert_eq!(GidChoice::best("x", LinkLayer::InfiniBand, 1, &table).unwrap().entry.index, 0);
        let error =
            GidChoice::best("mlx5_0", LinkLayer::InfiniBand, 2, &[]).unwrap_err().to_string();
        assert!(error.contains("port 2 of mlx5_0"), "{error}");
    }

    #[test]
    fn gids_are_addresses() {
        let gid = entry(0, "::ffff:192.0.2.7", GidKind::RoceV2).gid;
        assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(192, 0, 2, 7)));
        assert!(!gid.is_link_local() && !gid.is_zero());
        assert_eq!(gid.to_string(), "::ffff:192.0.2.7");
        assert!(entry(0, "fe80::", GidKind::Ib).gid.is_zero());
    }
}
