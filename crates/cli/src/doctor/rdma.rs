//! RDMA devices as the kernel lists them in `/sys/class/infiniband`, and whether we may open them.

use super::root::Root;
use serde::Serialize;
use std::fs::OpenOptions;

const CLASS: &str = "sys/class/infiniband";

/// All there is to say about RDMA on this machine.
#[derive(Debug, Serialize)]
pub(crate) struct Rdma {
    /// Devices of the kernel's RDMA stack.
    pub(crate) devices: Vec<Device>,
    /// Whether this build can drive any of them.
    pub(crate) provider: &'static str,
    /// The kernel module that lets a NIC reach GPU memory, if loaded.
    pub(crate) peer_memory: bool,
}

/// One RDMA device.
#[derive(Debug, Serialize)]
pub(crate) struct Device {
    /// `mlx5_0`.
    pub(crate) name: String,
    /// Kernel driver, `mlx5_core`.
    pub(crate) driver: Option<String>,
    /// Firmware version.
    pub(crate) firmware: Option<String>,
    /// Type as the driver names it, `MT4129`.
    pub(crate) hca_type: Option<String>,
    /// Its ports.
    pub(crate) ports: Vec<Port>,
    /// Device node, `/dev/infiniband/uverbs0`.
    pub(crate) node: Option<String>,
    /// Why the node cannot be opened; absent if it can.
    pub(crate) not_usable: Option<String>,
}

/// One port.
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
}

/// What this build can do with them.
pub(crate) const PROVIDER: &str =
    "this build has no verbs provider; RDMA devices are listed, not driven";

pub(crate) fn rdma(root: &Root) -> Rdma {
    let devices = root.list(CLASS).into_iter().map(|name| device(root, name)).collect();
    Rdma { devices, provider: PROVIDER, peer_memory: root.exists("sys/module/nvidia_peermem") }
}

fn device(root: &Root, name: String) -> Device {
    let base = format!("{CLASS}/{name}");
    let read = |what: &str| root.read(format!("{base}/{what}"));
    let driver = std::fs::read_link(root.join(format!("{base}/device/driver")))
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let uverbs = root.list(format!("{base}/device/infiniband_verbs")).into_iter().next();
    let (node, not_usable) = match uverbs {
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
        ports: ports.iter().filter_map(|number| port(root, &base, number)).collect(),
        node,
        not_usable,
        name,
    }
}

fn port(root: &Root, base: &str, number: &str) -> Option<Port> {
    let read =
        |what| root.read(format!("{base}/ports/{number}/{what}")).unwrap_or_else(|| "?".to_owned());
    Some(Port {
        number: number.parse().ok()?,
        // "4: ACTIVE" in the kernel's words.
        state: read("state").rsplit(": ").next().unwrap_or("?").to_owned(),
        link_layer: read("link_layer"),
        rate: read("rate"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::root::fake;

    #[test]
    fn a_device_is_described_with_its_port_and_node() {
        let (_dir, root) = fake(&[
            ("sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n"),
            ("sys/class/infiniband/mlx5_0/hca_type", "MT4129\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n"),
            ("sys/class/infiniband/mlx5_0/device/infiniband_verbs/uverbs0/dev", "231:192\n"),
            ("dev/infiniband/uverbs0", ""),
        ]);
        let rdma = rdma(&root);
        let [device] = rdma.devices.as_slice() else { panic!("{rdma:?}") };
        assert_eq!(device.firmware.as_deref(), Some("28.39.1002"));
        assert_eq!(device.node.as_deref(), Some("/dev/infiniband/uverbs0"));
        assert_eq!(device.not_usable, None);
        assert_eq!(device.ports[0].state, "ACTIVE");
        assert_eq!(device.ports[0].rate, "400 Gb/sec (4X NDR)");
    }

    #[test]
    fn a_device_without_a_node_says_why_it_is_of_no_use() {
        let (_dir, root) = fake(&[
            ("sys/class/infiniband/rxe0/fw_ver", "\n"),
            ("sys/class/infiniband/mlx5_1/device/infiniband_verbs/uverbs1/dev", "231:193\n"),
        ]);
        let rdma = rdma(&root);
        let [missing_node, no_uverbs] = rdma.devices.as_slice() else { panic!("{rdma:?}") };
        assert!(missing_node.not_usable.as_deref().is_some_and(|w| w.contains("uverbs1")));
        assert!(no_uverbs.not_usable.as_deref().is_some_and(|w| w.contains("ib_uverbs")));
    }
}
