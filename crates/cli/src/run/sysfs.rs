//! A `sysfs` with devices of ours, as libibverbs reads it.

use super::Kind;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Major and first minor number of the devices, as the preloaded library has them.
const MAJOR: u32 = 231;
const MINOR: u32 = 192;
/// PCI numbers of vendor and device by which libraries know their own: ConnectX-7, 57508 ("Thor"), Pollara.
fn pci_numbers(kind: Kind) -> (u16, u16) {
    match kind {
        Kind::Mlx5 => (0x15b3, 0x1021),
        Kind::Bnxt => (0x14e4, 0x1750),
        Kind::Ionic => (0x1dd8, 0x1002),
    }
}

/// The name of a device, as its driver gives it.
fn device_name(kind: Kind, index: u32) -> String {
    match kind {
        Kind::Mlx5 => format!("mlx5_{index}"),
        Kind::Bnxt => format!("bnxt_re{index}"),
        Kind::Ionic => format!("ionic_{index}"),
    }
}

/// Writes the tree of `nics` devices into the empty folder `root`.
pub(super) fn write(root: &Path, kind: Kind, nics: u32) -> io::Result<()> {
    fs::create_dir_all(root.join("class/infiniband"))?;
    fs::create_dir_all(root.join("class/infiniband_verbs"))?;
    put(root, "class/infiniband_verbs/abi_version", "6")?;
    (0..nics).try_for_each(|index| device(root, kind, index))
}

fn put(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    let path = folder.join(file);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, format!("{text}\n"))
}

/// A PCI function, the device below it, and links to both from the classes. UCX finds the vendor
/// only where the device's folder is below that of a PCI function.
fn device(root: &Path, kind: Kind, index: u32) -> io::Result<()> {
    let pci = format!("devices/pci0000:00/0000:00:{:02x}.0", index + 5);
    let (name, file) = (device_name(kind, index), format!("uverbs{index}"));
    let function = root.join(&pci);
    let (vendor, part) = pci_numbers(kind);
    let modalias = format!("pci:v{vendor:08X}d{part:08X}sv{vendor:08X}sd00000000bc02sc00i00");
    let (vendor, part) = (format!("{vendor:#06x}"), format!("{part:#06x}"));
    for (file, text) in [
        ("modalias", modalias.as_str()),
        ("vendor", &vendor),
        ("device", &part),
        ("numa_node", "-1"),
        ("max_link_speed", "32.0 GT/s PCIe"),
        ("max_link_width", "16"),
        ("current_link_speed", "32.0 GT/s PCIe"),
        ("current_link_width", "16"),
    ] {
        put(&function, file, text)?;
    }
    let device = function.join("infiniband").join(&name);
    let guid = format!("0257:56ff:fe00:{:04x}", index + 1);
    for (file, text) in [
        ("node_type", "1: CA"),
        ("node_guid", guid.as_str()),
        ("sys_image_guid", guid.as_str()),
        ("node_desc", "software: warpverbs run"),
        ("board_id", "WARPVERBS_SOFT"),
        ("hca_type", "software"),
        ("fw_ver", "0.1.0000"),
        ("hw_rev", "0"),
        ("ports/1/pkeys/0", "0xffff"),
        ("ports/1/gid_attrs/types/0", "RoCE v2"),
        ("ports/1/gid_attrs/ndevs/0", "lo"),
        ("ports/1/rate", "200 Gb/sec (4X HDR)"),
        ("ports/1/state", "4: ACTIVE"),
        ("ports/1/phys_state", "5: LinkUp"),
        ("ports/1/link_layer", "Ethernet"),
    ] {
        put(&device, file, text)?;
    }
    let verbs = function.join("infiniband_verbs").join(&file);
    put(&verbs, "ibdev", &name)?;
    put(&verbs, "dev", &format!("{MAJOR}:{}", MINOR + index))?;
    put(&verbs, "abi_version", "1")?;
    let function_link = format!("../../../0000:00:{:02x}.0", index + 5);
    symlink(&function_link, device.join("device"))?;
    symlink(&function_link, verbs.join("device"))?;
    symlink(format!("../../{pci}/infiniband/{name}"), root.join("class/infiniband").join(&name))?;
    symlink(
        format!("../../{pci}/infiniband_verbs/{file}"),
        root.join("class/infiniband_verbs").join(&file),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_lead_to_devices_below_pci_functions() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), Kind::Mlx5, 2).unwrap();
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!(read("class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
        assert_eq!(read("class/infiniband_verbs/uverbs1/dev"), "231:193\n");
        assert_eq!(read("class/infiniband/mlx5_0/device/vendor"), "0x15b3\n");
        let real = root.path().join("class/infiniband/mlx5_0").canonicalize().unwrap();
        assert!(real.ends_with("devices/pci0000:00/0000:00:05.0/infiniband/mlx5_0"));
        let root = tempfile::tempdir().unwrap();
        write(root.path(), Kind::Bnxt, 1).unwrap();
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!(read("class/infiniband_verbs/uverbs0/ibdev"), "bnxt_re0\n");
        let modalias = read("class/infiniband/bnxt_re0/device/modalias");
        assert!(modalias.starts_with("pci:v000014E4d00001750sv000014E4sd"), "{modalias}");
    }
}
