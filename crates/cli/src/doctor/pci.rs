//! PCIe, its bridges and the IOMMU between a GPU and a NIC.

use super::check::Check;
use super::root::Root;
use std::path::Path;
use warpverbs_bench::units;

/// The region of PCI through which other devices see a GPU's memory.
#[derive(Clone, Copy)]
pub(super) struct Bar {
    what: &'static str,
    /// Its line in the device's `resource`.
    line: usize,
}

impl Bar {
    pub(super) const NVIDIA: Self = Self { what: "BAR1 of the GPU", line: 1 };
    pub(super) const AMD: Self = Self { what: "BAR0 of the GPU", line: 0 };
}

/// The window for other devices into a GPU's memory.
pub(super) fn window(root: &Root, slot: &str, Bar { what, line }: Bar, memory: u64) -> Check {
    let regions = root.read(format!("sys/bus/pci/devices/{slot}/resource")).unwrap_or_default();
    let number = |word: Option<&str>| u64::from_str_radix(word?.strip_prefix("0x")?, 16).ok();
    let size = regions.lines().nth(line).and_then(|line| {
        let mut words = line.split_whitespace();
        let (first, last) = (number(words.next())?, number(words.next())?);
        Some(if last > first { last - first + 1 } else { 0 })
    });
    match size {
        None => Check::less(what, "not readable", "is /sys mounted in the container?"),
        Some(size) if size < memory => Check::less(
            what,
            format!("{} for {} of memory", units::bytes(size), units::bytes(memory)),
            "no more can be registered at a time; allow 64-bit addresses (\"above 4G decoding\") and \
             resizable BARs in the machine's setup",
        ),
        Some(size) => Check::good(what, units::bytes(size)),
    }
}

/// Whether addresses of the devices are translated.
pub(super) fn iommu(root: &Root, slots: &[&str]) -> Check {
    let what = "IOMMU";
    let kind = |slot| root.read(format!("sys/bus/pci/devices/{slot}/iommu_group/type"));
    let translated = slots.iter().find_map(|slot| {
        let kind = kind(slot).filter(|kind| kind.starts_with("DMA"))?;
        Some(format!("translates addresses of {slot} ({kind})"))
    });
    match translated {
        Some(found) => Check::less(
            what,
            found,
            "devices may not reach each other, or only by the CPU: `iommu=pt` on the kernel's command \
             line (in a virtual machine, the host's)",
        ),
        None if slots.iter().any(|slot| kind(slot).is_some()) => {
            Check::good(what, "passes addresses")
        }
        None => command_line(what, &root.read("proc/cmdline").unwrap_or_default()),
    }
}

/// The IOMMU by the kernel's command line, where sysfs has no groups, as in a container.
fn command_line(what: &'static str, line: &str) -> Check {
    let word = |wanted: &[&str]| line.split_whitespace().find(|word| wanted.contains(word));
    let off =
        word(&["iommu=pt", "iommu.passthrough=1", "iommu=off", "intel_iommu=off", "amd_iommu=off"]);
    let on = word(&["intel_iommu=on", "iommu=force", "iommu=nopt", "iommu.passthrough=0"]);
    match (off, on) {
        (Some(word), _) => Check::good(what, format!("passes addresses ({word})")),
        (None, Some(word)) => Check::less(
            what,
            format!("may translate addresses ({word})"),
            "devices may not reach each other: `iommu=pt` on the kernel's command line",
        ),
        (None, None) => Check::good(what, "off, or not seen"),
    }
}

/// Access control of PCIe bridges above one of the devices and not the other: what they send to each
/// other may have to go through the CPU.
pub(super) fn acs(root: &Root, gpu: &str, nic: &str) -> Check {
    let what = "PCIe access control (ACS)";
    let (above_gpu, above_nic) = (bridges(root, gpu), bridges(root, nic));
    let apart = above_gpu.iter().filter(|bridge| !above_nic.contains(bridge));
    let apart: Vec<_> =
        apart.chain(above_nic.iter().filter(|bridge| !above_gpu.contains(bridge))).collect();
    let mut unread = Vec::new();
    for bridge in apart {
        let config = root.join(format!("sys/bus/pci/devices/{bridge}/config"));
        match redirects(&std::fs::read(config).unwrap_or_default()) {
            None => unread.push(&**bridge),
            Some(false) => {}
            Some(true) => {
                let found = format!("{bridge} sends requests between devices to the CPU");
                let remedy = format!(
                    "turn it off: in the machine's setup, or `setpci -s {bridge} ECAP_ACS+6.w=0` at \
                     each boot"
                );
                return Check::less(what, found, remedy);
            }
        }
    }
    match unread.is_empty() {
        true => Check::good(what, "does not redirect"),
        false => {
            let found = format!("not readable of {}", unread.join(", "));
            Check::less(what, found, "run this as root to see it")
        }
    }
}

/// The bridges above a device, from the root complex down.
fn bridges(root: &Root, slot: &str) -> Vec<String> {
    let found = root.join(format!("sys/bus/pci/devices/{slot}")).canonicalize();
    let is_slot = |name: &&str| name.len() == 12 && name.as_bytes()[4] == b':' && *name != slot;
    let names = |path: &Path| -> Vec<String> {
        let parts = path.iter().filter_map(|part| part.to_str());
        parts.filter(is_slot).map(str::to_owned).collect()
    };
    found.map(|path| names(&path)).unwrap_or_default()
}

/// Whether the access control of a bridge redirects requests or completions between its ports.
/// `None`: its extended configuration was not read, which only root may.
fn redirects(config: &[u8]) -> Option<bool> {
    const FIRST: usize = 0x100;
    const ACS: u16 = 0x0d;
    /// Request redirect, completion redirect.
    const REDIRECT: u16 = 1 << 2 | 1 << 3;
    let half = |at: usize| Some(u16::from_le_bytes([*config.get(at)?, *config.get(at + 1)?]));
    let mut at = FIRST;
    // As many capabilities as fit.
    for _ in 0..(0x1000 - FIRST) / 4 {
        let (id, next) = (half(at)?, usize::from(half(at + 2)? >> 4));
        if id == ACS {
            return Some(half(at + 6)? & REDIRECT != 0);
        }
        if next < FIRST {
            break;
        }
        at = next;
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::root::{add, add_machine, fake, link};

    #[test]
    fn a_window_that_is_smaller_than_the_memory_is_said() {
        let slot = "0000:05:00.0";
        let bar = |last: &str| {
            let resource = format!(
                "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n\
                 0x000000d000000000 0x{last} 0x000000000014220c\n"
            );
            let (_dir, root) =
                fake(&[(&format!("sys/bus/pci/devices/{slot}/resource"), &resource)]);
            window(&root, slot, Bar::NVIDIA, 16 << 30)
        };
        let small = bar("000000d00fffffff");
        assert!(small.found.starts_with("256 MiB") && small.remedy.is_some(), "{small:?}");
        assert!(bar("000000d3ffffffff").remedy.is_none(), "as large as the memory");
        let (_dir, root) = fake(&[]);
        assert!(window(&root, slot, Bar::NVIDIA, 1).found.contains("not readable"));
        // An MI300X, whose doorbells are region 2 and whose registers are region 5.
        let resource = "0x00000a8000000000 0x00000abfffffffff 0x000000000014220c\n\
                        0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                        0x00000ac000000000 0x00000ac0001fffff 0x000000000014220c\n";
        let (_dir, root) = fake(&[(&format!("sys/bus/pci/devices/{slot}/resource"), resource)]);
        let whole = window(&root, slot, Bar::AMD, 192 << 30);
        assert!(whole.found == "256 GiB" && whole.remedy.is_none(), "{whole:?}");
        assert!(window(&root, slot, Bar::AMD, 288 << 30).remedy.is_some());
    }

    #[test]
    fn an_iommu_that_translates_is_said() {
        let (_dir, root) = fake(&[("sys/bus/pci/devices/a/iommu_group/type", "identity\n")]);
        assert_eq!(iommu(&root, &["a", "b"]).found, "passes addresses");
        add(&root, "sys/bus/pci/devices/b/iommu_group/type", "DMA-FQ\n");
        let check = iommu(&root, &["a", "b"]);
        assert!(check.found.contains("of b (DMA-FQ)"), "{check:?}");
        assert!(check.remedy.unwrap().contains("iommu=pt") && !check.stops);
        assert_eq!(iommu(&fake(&[]).1, &["a"]).found, "off, or not seen");
        let line = |words| iommu(&fake(&[("proc/cmdline", words)]).1, &["a"]);
        assert_eq!(line("quiet amd_iommu=on iommu=pt\n").found, "passes addresses (iommu=pt)");
        assert!(line("intel_iommu=on ro\n").remedy.unwrap().contains("iommu=pt"));
        assert_eq!(line("root=/dev/sda1 xiommu=pt\n").found, "off, or not seen");
    }

    /// The extended configuration of a bridge: another capability, then ACS with this control word.
    fn config(control: u16) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[0x100..0x104].copy_from_slice(&(0x148u32 << 20 | 1 << 16 | 0x0001).to_le_bytes());
        bytes[0x148..0x14c].copy_from_slice(&(1u32 << 16 | 0x000d).to_le_bytes());
        bytes[0x14c..0x14e].copy_from_slice(&0x5fu16.to_le_bytes());
        bytes[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        bytes
    }

    #[test]
    fn bridges_that_redirect_are_found_between_the_two() {
        assert_eq!(redirects(&config(0x1d)), Some(true));
        assert_eq!(redirects(&config(0x01)), Some(false), "source validation alone");
        assert_eq!(redirects(&[0; 64]), None, "the bytes that all users may read");
        assert_eq!(redirects(&vec![0; 4096]), Some(false), "no capability");
        let mut loops = config(0);
        loops[0x148..0x14c].copy_from_slice(&(0x100u32 << 20 | 1 << 16 | 2).to_le_bytes());
        assert_eq!(redirects(&loops), Some(false));

        let (_dir, root) = fake(&[]);
        add_machine(&root);
        let (gpu, nic) = ("0000:05:00.0", "0000:06:00.0");
        let above = ["0000:00:01.0", "0000:03:00.0", "0000:04:00.0"];
        assert_eq!(bridges(&root, gpu), above);
        let between = ["0000:04:00.0", "0000:04:01.0"];
        assert_eq!(acs(&root, gpu, nic).found, format!("not readable of {}", between.join(", ")));
        for (slot, folder) in [
            (between[0], "sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0/0000:04:00.0"),
            (between[1], "sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0/0000:04:01.0"),
        ] {
            link(&root, &format!("sys/bus/pci/devices/{slot}"), folder);
            std::fs::write(root.join(format!("{folder}/config")), config(0)).unwrap();
        }
        assert_eq!(acs(&root, gpu, nic).found, "does not redirect");
        let file = "sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0/0000:04:01.0/config";
        std::fs::write(root.join(file), config(0x1d)).unwrap();
        let check = acs(&root, gpu, nic);
        assert!(check.found.starts_with("0000:04:01.0 sends"), "{check:?}");
        assert!(check.remedy.unwrap().contains("setpci -s 0000:04:01.0 ECAP_ACS+6.w=0"));
    }
}
