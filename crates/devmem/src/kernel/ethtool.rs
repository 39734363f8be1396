//! Family `ethtool`: rings, header split and flow hashing (`Documentation/networking/ethtool-netlink.rst`).

use super::Interface;
use super::netlink::{Netlink, NetlinkError, find, find_number, nested, number};
use netlink_packet_core::DefaultNla;
use std::collections::BTreeSet;

const RINGS_GET: u8 = 15;
const RSS_GET: u8 = 38;
const HEADER: u16 = 1;
const HEADER_INDEX: u16 = 1;
const RX_MAX: u16 = 2;
const RX: u16 = 6;
const TCP_DATA_SPLIT: u16 = 11;
const HDS_THRESH: u16 = 17;
const SPLIT_ENABLED: u8 = 2;
const RSS_INDIRECTION: u16 = 4;

/// Rings of an interface; `None` where its driver does not report a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Entries of a receive ring.
    pub receive: Option<u32>,
    /// Entries that it may have at most.
    pub receive_max: Option<u32>,
    /// Whether headers and payload go to different buffers.
    pub header_split: Option<bool>,
    /// Payload of up to this many bytes stays with the headers.
    pub split_threshold: Option<u32>,
}

/// A connection to the kernel's ethtool.
pub struct Ethtool {
    netlink: Netlink,
}

impl Ethtool {
    /// # Errors
    /// The kernel lacks the family: it is older than 5.6.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { netlink: Netlink::open("ethtool")? })
    }

    fn header(interface: &Interface) -> DefaultNla {
        nested(HEADER, &[number(HEADER_INDEX, interface.index)])
    }

    /// # Errors
    /// The driver does not report its rings, or there is no such interface.
    pub fn rings(&mut self, interface: &Interface) -> Result<Rings, NetlinkError> {
        let answers = self.netlink.request(RINGS_GET, vec![Self::header(interface)])?;
        let found = answers.first().map(|answer| answer.attributes.as_slice()).unwrap_or_default();
        Ok(Rings {
            receive: find_number(found, RX),
            receive_max: find_number(found, RX_MAX),
            // 0 is "unknown".
            header_split: find_number(found, TCP_DATA_SPLIT)
                .filter(|split| *split != 0)
                .map(|split| split == SPLIT_ENABLED.into()),
            split_threshold: find_number(found, HDS_THRESH),
        })
    }

    /// The receive queues to which flows are hashed, in ascending order. Packets of no flow come to
    /// the others, unless a rule steers them there.
    ///
    /// # Errors
    /// The driver does not report it, or the kernel is older than 6.2.
    pub fn hashed_queues(&mut self, interface: &Interface) -> Result<Vec<u32>, NetlinkError> {
        let answers = self.netlink.request(RSS_GET, vec![Self::header(interface)])?;
        let table = answers.first().and_then(|answer| find(&answer.attributes, RSS_INDIRECTION));
        let what = "no table of queues".to_owned();
        let table = table.ok_or(NetlinkError::Malformed { what })?;
        let words = table.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word));
        Ok(words.collect::<BTreeSet<u32>>().into_iter().collect())
    }
}
