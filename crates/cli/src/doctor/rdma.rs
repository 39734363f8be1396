//! RDMA devices as the kernel lists them in `/sys/class/infiniband`, and whether we may open them.

use super::memory::Pairing;
use super::root::Root;
use serde::Serialize;
use std::fs::OpenOptions;
use std::net::Ipv6Addr;
use warpverbs::raw::transport::FabricAddress;
use warpverbs::raw::transport::pci::Slot;
use warpverbs::raw::verbs::{Gid, GidChoice, GidEntry, GidKind, LinkLayer, Verbs};

const CLASS: &str = "sys/class/infiniband";

#[derive(Debug, Serialize)]
pub(crate) struct Rdma {
    pub(crate) devices: Vec<Device>,
    pub(crate) library: Library,
    /// Whether each of them reaches each GPU's memory.
    pub(crate) gpu_memory: Vec<Pairing>,
    /// Whether this build can drive any of them.
    pub(crate) provider: &'static str,
    /// The kernel module that lets a NIC reach GPU memory, if loaded.
    pub(crate) peer_memory: bool,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Library {
    pub(crate) file: Option<String>,
    pub(crate) why_not: Option<String>,
    /// The devices that it finds and `WARPVERBS_NICS` selects.
    pub(crate) devices: Vec<String>,
    pub(crate) no_device: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Device {
    /// `mlx5_0`.
    pub(crate) name: String,
    /// Kernel driver, `mlx5_core`.
    pub(crate) driver: Option<String>,
    pub(crate) firmware: Option<String>,
    /// Type as the driver names it, `MT4129`.
    pub(crate) hca_type: Option<String>,
    /// Where it sits; absent for one in software.
    pub(crate) pci: Option<Slot>,
    /// The network interface that a device in software stands on.
    pub(crate) parent: Option<String>,
    pub(crate) ports: Vec<Port>,
    /// Device node, `/dev/infiniband/uverbs0`.
    pub(crate) node: Option<String>,
    /// Why the node cannot be opened; absent if it can.
    pub(crate) not_usable: Option<String>,
}

impl Device {
    pub(crate) fn active(&self) -> Option<&Port> {
        self.ports.iter().find(|port| port.state == "ACTIVE")
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Port {
    /// Number, from 1.
    pub(crate) number: u32,
    /// `ACTIVE`, `DOWN`.
    pub(crate) state: String,
    /// `Ethernet` or `InfiniBand`.
    pub(crate) link_layer: String,
    /// `400 Gb/sec (4X NDR)`.
    pub(crate) rate: String,
    pub(crate) gids: Vec<PortGid>,
    pub(crate) gid_choice: Option<Chosen>,
    /// Where peers reach it, by that.
    #[serde(skip)]
    pub(crate) address: Option<FabricAddress>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PortGid {
    pub(crate) index: u32,
    /// In the form of an IPv6 address.
    pub(crate) address: String,
    /// `IB/RoCE v1` or `RoCE v2`.
    pub(crate) kind: String,
    /// The network interface it comes from.
    pub(crate) interface: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Chosen {
    pub(crate) index: u32,
    pub(crate) why: String,
}

/// Ways of this build to drive RDMA devices.
pub(crate) const PROVIDER: &str =
    "libibverbs, for the host and for kernels, whose queues the software NIC reads";

pub(crate) fn rdma(root: &Root) -> Rdma {
    let devices = root.list(CLASS).into_iter().map(|name| device(root, name)).collect();
    let peer_memory = root.exists("sys/module/nvidia_peermem");
    Rdma { devices, library: library(), gpu_memory: Vec::new(), provider: PROVIDER, peer_memory }
}

fn library() -> Library {
    let verbs = match Verbs::load() {
        Ok(verbs) => verbs,
        Err(error) => return Library { why_not: Some(error.to_string()), ..Library::default() },
    };
    let file = Some(verbs.file().to_owned());
    let (devices, no_device) = match verbs.devices() {
        Ok(found) if found.is_empty() => (Vec::new(), Some(verbs.why_no_device())),
        Ok(found) => (found.iter().map(|d| d.name().to_owned()).collect(), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    Library { file, why_not: None, devices, no_device }
}

fn device(root: &Root, name: String) -> Device {
    let base = format!("{CLASS}/{name}");
    let read = |what: &str| root.read(format!("{base}/{what}")).filter(|text| !text.is_empty());
    let driver = std::fs::read_link(root.join(format!("{base}/device/driver")))
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let (node, not_usable) = match uverbs(root, &name) {
        None => (None, Some("no uverbs device belongs to it; is ib_uverbs loaded?".to_owned())),
        Some(node) => {
            let path = format!("dev/infiniband/{node}");
            let opened = OpenOptions::new().read(true).write(true).open(root.join(&path));
            (Some(format!("/{path}")), opened.err().map(|e| format!("/{path}: {e}")))
        }
    };
    let ports = root.list(format!("{base}/ports"));
    Device {
        driver,
        firmware: read("fw_ver"),
        hca_type: read("hca_type"),
        pci: Slot::behind(root.path(), &format!("{base}/device")),
        parent: read("parent"),
        ports: ports.iter().filter_map(|number| port(root, &name, number)).collect(),
        node,
        not_usable,
        name,
    }
}

/// The uverbs device of an RDMA device: a card's is below it, one in software is found by
/// its name.
fn uverbs(root: &Root, name: &str) -> Option<String> {
    let below = root.list(format!("{CLASS}/{name}/device/infiniband_verbs")).into_iter().next();
    below.or_else(|| {
        let class = "sys/class/infiniband_verbs";
        let is_ours =
            |node: &String| root.read(format!("{class}/{node}/ibdev")).as_deref() == Some(name);
        root.list(class).into_iter().find(is_ours)
    })
}

fn port(root: &Root, device: &str, number: &str) -> Option<Port> {
    let base = format!("{CLASS}/{device}/ports/{number}");
    let read = |what| root.read(format!("{base}/{what}")).unwrap_or_else(|| "?".to_owned());
    let number = number.parse().ok()?;
    let link_layer = read("link_layer");
    let layer = match link_layer.as_str() {
        "Ethernet" => LinkLayer::Ethernet,
        _ => LinkLayer::InfiniBand,
    };
    let entries = gids(root, &base, layer);
    let table: Vec<_> = entries.iter().map(|(entry, _)| *entry).collect();
    let choice = GidChoice::best(device, layer, number as u8, &table).ok();
    // "0x1" in the kernel's words.
    let lid = u16::from_str_radix(read("lid").trim_start_matches("0x"), 16).unwrap_or_default();
    let address = choice.as_ref().map(|c| FabricAddress::of_port(layer, &c.entry, lid));
    Some(Port {
        number,
        address,
        // "4: ACTIVE" in the kernel's words.
        state: read("state").rsplit(": ").next().unwrap_or("?").to_owned(),
        rate: read("rate"),
        gids: entries.into_iter().map(|(_, shown)| shown).collect(),
        gid_choice: choice.map(|c| Chosen { index: c.entry.index, why: c.why }),
        link_layer,
    })
}

fn gids(root: &Root, base: &str, layer: LinkLayer) -> Vec<(GidEntry, PortGid)> {
    let mut found = Vec::new();
    for name in root.list(format!("{base}/gids")) {
        let text = root.read(format!("{base}/gids/{name}")).unwrap_or_default();
        let (Ok(index), Ok(address)) = (name.parse(), text.parse::<Ipv6Addr>()) else { continue };
        let gid = Gid(address.octets());
        if gid.is_zero() {
            continue;
        }
        let attribute = |kind: &str| root.read(format!("{base}/gid_attrs/{kind}/{name}"));
        let word = attribute("types").unwrap_or_default();
        let kind = GidKind::from_sysfs(layer, &word);
        let interface = attribute("ndevs").filter(|name| !name.is_empty());
        let shown = PortGid { index, address: address.to_string(), kind: word, interface };
        found.push((GidEntry { index, gid, kind, interface: None }, shown));
    }
    found.sort_by_key(|(entry, _)| entry.index);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::root::add_machine;
    use crate::doctor::root::{fake, link};

    #[test]
    fn a_device_is_described_with_its_port_and_node() {
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        let (_dir, root) = fake(&[
            ("sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n"),
            ("sys/class/infiniband/mlx5_0/hca_type", "MT4129\n"),
            (&format!("{port}/state"), "4: ACTIVE\n"),
            (&format!("{port}/link_layer"), "Ethernet\n"),
            (&format!("{port}/rate"), "400 Gb/sec (4X NDR)\n"),
            (&format!("{port}/gids/0"), "fe80:0000:0000:0000:0000:0000:0000:0001\n"),
            (&format!("{port}/gids/3"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            (&format!("{port}/gids/4"), "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            (&format!("{port}/gids/10"), "0000:0000:0000:0000:0000:ffff:0a00:0002\n"),
            (&format!("{port}/gid_attrs/types/0"), "IB/RoCE v1\n"),
            (&format!("{port}/gid_attrs/types/3"), "RoCE v2\n"),
            (&format!("{port}/gid_attrs/types/10"), "RoCE v2\n"),
            (&format!("{port}/gid_attrs/ndevs/3"), "eth2\n"),
            ("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
            ("dev/infiniband/uverbs0", ""),
        ]);
        add_machine(&root);
        link(&root, "sys/class/infiniband/mlx5_0/device", "sys/bus/pci/devices/0000:06:00.0");
        let rdma = rdma(&root);
        let [device] = rdma.devices.as_slice() else { panic!("{rdma:?}") };
        assert_eq!(device.firmware.as_deref(), Some("28.39.1002"));
        assert_eq!(device.node.as_deref(), Some("/dev/infiniband/uverbs0"));
        assert_eq!(device.not_usable, None);
        assert_eq!(device.pci.as_ref().map(|slot| &*slot.address), Some("0000:06:00.0"));
        let port = &device.ports[0];
        assert_eq!((&*port.state, &*port.rate), ("ACTIVE", "400 Gb/sec (4X NDR)"));
        let indexes: Vec<_> = port.gids.iter().map(|gid| gid.index).collect();
        assert_eq!(indexes, [0, 3, 10], "in the order of numbers, without those not in use");
        assert_eq!(port.gids[1].address, "::ffff:10.0.0.1");
        assert_eq!(port.gids[1].interface.as_deref(), Some("eth2"));
        let choice = port.gid_choice.as_ref().unwrap();
        assert_eq!(choice.index, 3);
        assert!(choice.why.contains("RoCEv2 with an IPv4 address"), "{choice:?}");
    }

    #[test]
    fn a_device_without_a_node_says_why_it_is_of_no_use() {
        let (_dir, root) = fake(&[
            ("sys/class/infiniband/rxe0/fw_ver", "\n"),
            ("sys/class/infiniband/rxe0/parent", "eth0\n"),
            ("sys/class/infiniband/mlx5_1/device/infiniband_verbs/uverbs1/dev", "231:193\n"),
        ]);
        let rdma = rdma(&root);
        let [missing_node, no_uverbs] = rdma.devices.as_slice() else { panic!("{rdma:?}") };
        assert!(missing_node.not_usable.as_deref().is_some_and(|w| w.contains("uverbs1")));
        assert!(no_uverbs.not_usable.as_deref().is_some_and(|w| w.contains("ib_uverbs")));
        assert_eq!(no_uverbs.parent.as_deref(), Some("eth0"));
        assert!(no_uverbs.pci.is_none() && no_uverbs.firmware.is_none());
    }
}
