//! Where devices sit on the PCI bus, and how far apart: bytes that cross a CPU's root complex, or
//! the link between two CPUs, are slower than those that turn around in a switch.

use serde::Serialize;
use std::cmp::Reverse;
use std::path::{Component, Path};

/// Where a device sits.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Slot {
    /// `0000:3b:00.0`.
    pub address: String,
    /// NUMA node of the CPU it is attached to, if the kernel reports it.
    pub numa_node: Option<u32>,
    /// Speed and width of its link, `16.0 GT/s PCIe x16`.
    pub link: Option<String>,
    /// The same as the device could have it, if that is more.
    pub link_could: Option<String>,
    /// From the root complex down, the device last.
    #[serde(skip)]
    chain: Vec<String>,
}

/// How far two devices are from each other, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Distance {
    /// Functions of one card.
    SameCard,
    /// A PCIe switch, or several, below one port of the CPU.
    Switch,
    /// The root complex of one CPU.
    RootComplex,
    /// Two root complexes of one NUMA node.
    NumaNode,
    /// Two NUMA nodes.
    AcrossNodes,
    /// The kernel does not report it.
    Unknown,
}

impl Distance {
    /// As part of a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::SameCard => "on the same card",
            Self::Switch => "through PCIe switches only",
            Self::RootComplex => "through the CPU's root complex",
            Self::NumaNode => "through two root complexes of one NUMA node",
            Self::AcrossNodes => "across NUMA nodes",
            Self::Unknown => "at an unknown distance",
        }
    }
}

impl Slot {
    /// The device at a PCI address, by sysfs below `root`, which is `/` but for tests.
    pub fn at(root: &Path, address: &str) -> Option<Self> {
        Self::behind(root, &format!("sys/bus/pci/devices/{address}"))
    }

    /// The device to which a link in sysfs points, relative to `root`.
    pub fn behind(root: &Path, link: &str) -> Option<Self> {
        let folder = std::fs::canonicalize(root.join(link)).ok()?;
        let chain = chain(&folder);
        let address = chain.last().filter(|name| is_address(name))?.clone();
        let read = |what: &str| {
            let text = std::fs::read_to_string(folder.join(what)).ok()?;
            Some(text.trim().to_owned())
        };
        let speed = |kind: &str| {
            let width = read(&format!("{kind}_link_width")).filter(|width| width != "0")?;
            Some(format!("{} x{width}", read(&format!("{kind}_link_speed"))?))
        };
        let (link, could) = (speed("current"), speed("max"));
        Some(Self {
            numa_node: read("numa_node").and_then(|node| node.parse().ok()),
            link_could: could.filter(|could| link.as_ref().is_some_and(|link| link != could)),
            link,
            address,
            chain,
        })
    }

    /// Bridges above both, from the root complex down.
    fn shared(&self, other: &Self) -> usize {
        self.chain.iter().zip(&other.chain).take_while(|(a, b)| a == b).count()
    }

    /// Orders devices by how near they are to this one, nearest first: by distance, then by the
    /// depth of the lowest bridge above both, then by NUMA node.
    #[cfg_attr(not(feature = "verbs"), allow(dead_code))]
    pub(crate) fn nearness(&self, other: &Self) -> impl Ord + use<> {
        let elsewhere = self.numa_node.is_some() && self.numa_node != other.numa_node;
        (self.distance(other), Reverse(self.shared(other)), elsewhere)
    }

    /// How far `other` is.
    pub fn distance(&self, other: &Self) -> Distance {
        let shared = self.shared(other);
        let card = |slot: &Self| slot.address.split('.').next().unwrap_or_default().to_owned();
        match shared {
            _ if card(self) == card(other) => Distance::SameCard,
            0 => match (self.numa_node, other.numa_node) {
                (Some(a), Some(b)) if a == b => Distance::NumaNode,
                (Some(_), Some(_)) => Distance::AcrossNodes,
                _ => Distance::Unknown,
            },
            1 => Distance::RootComplex,
            _ => Distance::Switch,
        }
    }
}

/// The part of a path of sysfs that begins at a root complex, `pci0000:3a`.
fn chain(folder: &Path) -> Vec<String> {
    let names = folder.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str().map(str::to_owned),
        _ => None,
    });
    names.skip_while(|name| !(name.starts_with("pci") && name.contains(':'))).collect()
}

/// `0000:3b:00.0`.
fn is_address(name: &str) -> bool {
    let parts: Vec<_> = name.split([':', '.']).map(str::len).collect();
    parts == [4, 2, 2, 1] && name.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use warpverbs_dev::machine::{MACHINE, add_machine};

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        add_machine(root.path());
        root
    }

    #[test]
    fn distances_are_those_of_the_tree() {
        let root = machine();
        let slot = |address| Slot::at(root.path(), address).unwrap();
        let from = slot("0000:05:00.0");
        let to = |address| from.distance(&slot(address));
        assert_eq!(to("0000:06:00.0"), Distance::Switch);
        assert_eq!(to("0000:07:00.0"), Distance::RootComplex);
        assert_eq!(to("0000:21:00.0"), Distance::NumaNode);
        assert_eq!(to("0000:81:00.0"), Distance::AcrossNodes);
        assert_eq!(slot("0000:06:00.0").distance(&slot("0000:06:00.1")), Distance::SameCard);
        assert!(
            Distance::Switch < Distance::RootComplex && Distance::NumaNode < Distance::AcrossNodes
        );
        let mut all = MACHINE.map(|(address, _)| slot(address));
        all.reverse();
        all.sort_by_key(|slot| from.nearness(slot));
        let order = all.each_ref().map(|slot| slot.address.as_str());
        let expected = [5, 6, 6, 7, 0x21, 0x81].map(|bus| format!("0000:{bus:02x}:00."));
        assert!(order.iter().zip(&expected).all(|(slot, bus)| slot.starts_with(bus)), "{order:?}");
    }

    #[test]
    fn a_link_below_its_width_is_noticed() {
        let root = machine();
        let slow = Slot::at(root.path(), "0000:07:00.0").unwrap();
        assert_eq!(slow.link.as_deref(), Some("16.0 GT/s PCIe x8"));
        assert_eq!(slow.link_could.as_deref(), Some("16.0 GT/s PCIe x16"));
        let full = Slot::at(root.path(), "0000:81:00.0").unwrap();
        assert_eq!((full.link_could, full.numa_node), (None, Some(1)));
    }

    #[test]
    fn what_is_no_pci_device_has_no_slot() {
        let root = machine();
        let virtual_device = root.path().join("sys/devices/virtual/net/lo");
        fs::create_dir_all(&virtual_device).unwrap();
        symlink(virtual_device, root.path().join("device")).unwrap();
        assert!(Slot::behind(root.path(), "device").is_none());
        assert!(Slot::at(root.path(), "0000:99:00.0").is_none());
        assert!(is_address("0000:3b:00.0") && !is_address("pci0000:3a") && !is_address("uverbs0"));
    }
}
