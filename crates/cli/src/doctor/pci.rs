//! Where devices sit on the PCI bus, and how far apart: bytes that cross a CPU's root complex, or
//! the link between two CPUs, are slower than those that turn around in a switch.

use super::root::Root;
use serde::Serialize;
use std::path::{Component, Path};

/// Where a device sits.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Slot {
    /// `0000:3b:00.0`.
    pub(crate) address: String,
    /// NUMA node of the CPU it is attached to, if the kernel reports it.
    pub(crate) numa_node: Option<u32>,
    /// Speed and width of its link, `16.0 GT/s PCIe x16`.
    pub(crate) link: Option<String>,
    /// What the device could have, if that is more.
    pub(crate) link_could: Option<String>,
    /// From the root complex down, the device last.
    #[serde(skip)]
    chain: Vec<String>,
}

/// How far two devices are from each other, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Distance {
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
    /// The machine does not tell.
    Unknown,
}

impl Distance {
    /// As part of a sentence.
    pub(crate) fn words(self) -> &'static str {
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
    /// The device at a PCI address.
    pub(crate) fn at(root: &Root, address: &str) -> Option<Self> {
        Self::behind(root, &format!("sys/bus/pci/devices/{address}"))
    }

    /// The device that a link in sysfs leads to.
    pub(crate) fn behind(root: &Root, link: &str) -> Option<Self> {
        let folder = std::fs::canonicalize(root.join(link)).ok()?;
        let chain = chain(&folder);
        let address = chain.last().filter(|name| is_address(name))?.clone();
        let read = |what: &str| root.read(folder.join(what));
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

    /// How far `other` is.
    pub(crate) fn distance(&self, other: &Self) -> Distance {
        let pairs = self.chain.iter().zip(&other.chain);
        let shared = pairs.take_while(|(a, b)| a == b).count();
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
pub(crate) mod tests {
    use super::*;
    use crate::doctor::root::{fake, link};

    /// A machine of two CPUs: two GPUs and a NIC below a switch, a NIC beside it, one far away.
    pub(crate) const MACHINE: [(&str, &str); 6] = [
        ("0000:05:00.0", "pci0000:00/0000:00:01.0/0000:03:00.0/0000:04:00.0"),
        ("0000:06:00.0", "pci0000:00/0000:00:01.0/0000:03:00.0/0000:04:01.0"),
        ("0000:06:00.1", "pci0000:00/0000:00:01.0/0000:03:00.0/0000:04:01.0"),
        ("0000:07:00.0", "pci0000:00/0000:00:02.0"),
        ("0000:21:00.0", "pci0000:20/0000:20:01.0"),
        ("0000:81:00.0", "pci0000:80/0000:80:01.0"),
    ];

    /// Adds `MACHINE` to a tree.
    pub(crate) fn add_machine(root: &Root) {
        for (address, above) in MACHINE {
            let folder = format!("sys/devices/{above}/{address}");
            let node = if above.starts_with("pci0000:80") { "1\n" } else { "0\n" };
            for (name, text) in [
                ("numa_node", node),
                ("current_link_speed", "16.0 GT/s PCIe\n"),
                ("current_link_width", if address == "0000:07:00.0" { "8\n" } else { "16\n" }),
                ("max_link_speed", "16.0 GT/s PCIe\n"),
                ("max_link_width", "16\n"),
            ] {
                crate::doctor::root::add(root, &format!("{folder}/{name}"), text);
            }
            link(root, &format!("sys/bus/pci/devices/{address}"), &folder);
        }
    }

    #[test]
    fn distances_are_those_of_the_tree() {
        let (_dir, root) = fake(&[]);
        add_machine(&root);
        let slot = |address| Slot::at(&root, address).unwrap();
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
    }

    #[test]
    fn a_link_below_its_width_is_noticed() {
        let (_dir, root) = fake(&[]);
        add_machine(&root);
        let slow = Slot::at(&root, "0000:07:00.0").unwrap();
        assert_eq!(slow.link.as_deref(), Some("16.0 GT/s PCIe x8"));
        assert_eq!(slow.link_could.as_deref(), Some("16.0 GT/s PCIe x16"));
        let full = Slot::at(&root, "0000:81:00.0").unwrap();
        assert_eq!((full.link_could, full.numa_node), (None, Some(1)));
    }

    #[test]
    fn what_is_no_pci_device_has_no_slot() {
        let (_dir, root) = fake(&[("sys/devices/virtual/net/lo/x", "")]);
        link(&root, "sys/class/infiniband/rxe0/device", "sys/devices/virtual/net/lo");
        assert!(Slot::behind(&root, "sys/class/infiniband/rxe0/device").is_none());
        assert!(Slot::at(&root, "0000:99:00.0").is_none());
        assert!(is_address("0000:3b:00.0") && !is_address("pci0000:3a") && !is_address("uverbs0"));
    }
}
