//! A machine's PCI bus, as sysfs shows it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A machine of two CPUs: two GPUs and a NIC below a switch, a NIC beside it, one far away. Addresses,
/// and the bridges above.
pub const MACHINE: [(&str, &str); 6] = [
    ("0000:05:00.0", "pci0000:00/0000:00:01.0/0000:03:00.0/0000:04:00.0"),
    ("0000:06:00.0", "pci0000:00/0000:00:01.0/0000:03:00.0/0000:04:01.0"),
    ("0000:06:00.1", "pci0000:00/0000:00:01.0/0000:03:00.0/0000:04:01.0"),
    ("0000:07:00.0", "pci0000:00/0000:00:02.0"),
    ("0000:21:00.0", "pci0000:20/0000:20:01.0"),
    ("0000:81:00.0", "pci0000:80/0000:80:01.0"),
];

/// Adds the machine to a tree.
pub fn add_machine(root: &Path) {
    let links = root.join("sys/bus/pci/devices");
    fs::create_dir_all(&links).expect("a folder");
    for (address, above) in MACHINE {
        let folder = root.join(format!("sys/devices/{above}/{address}"));
        fs::create_dir_all(&folder).expect("a folder");
        let node = if above.starts_with("pci0000:80") { "1\n" } else { "0\n" };
        for (name, text) in [
            ("numa_node", node),
            ("current_link_speed", "16.0 GT/s PCIe\n"),
            ("current_link_width", if address == "0000:07:00.0" { "8\n" } else { "16\n" }),
            ("max_link_speed", "16.0 GT/s PCIe\n"),
            ("max_link_width", "16\n"),
        ] {
            fs::write(folder.join(name), text).expect("a file");
        }
        symlink(folder, links.join(address)).expect("a link");
    }
}
