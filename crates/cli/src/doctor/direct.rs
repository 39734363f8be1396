//! Whether kernels of a GPU can drive an RDMA device with no CPU between them, and what to change
//! where they cannot: one check for each condition.

use super::Report;
use super::rdma::Device;
use super::root::Root;
use serde::Serialize;
use std::path::Path;
use warpverbs::gpu::{Found, GpuKind};
use warpverbs::raw::transport::DeviceSurvey;
use warpverbs::transport::Reason;
use warpverbs_bench::units;

/// One condition.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) what: &'static str,
    pub(crate) found: String,
    /// Advice; absent if all is well.
    pub(crate) remedy: Option<String>,
    /// As it is, the direct way is not possible.
    pub(crate) stops: bool,
}

impl Check {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, found: found.into(), remedy: None, stops: false }
    }

    /// It works without, but less well.
    fn less(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::good(what, found) }
    }

    fn stop(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { stops: true, ..Self::less(what, found, remedy) }
    }
}

/// All conditions, in the order in which one would mend them. `survey` is
/// what `transport` says of the two.
pub(crate) fn checks(
    root: &Root,
    report: &Report,
    gpu: &Found,
    nic: &Device,
    survey: &DeviceSurvey,
) -> Vec<Check> {
    let queues = &survey.queues;
    let mut checks =
        vec![driver(nic), firmware(nic, queues), modules(root, queues), locked(report)];
    if gpu.kind == GpuKind::Cuda {
        checks.extend([register(root, survey), payload(root)]);
        checks.extend(gpu.info.as_ref().map(|info| order(info.ordered_nic_writes)));
        let memory = gpu.info.as_ref().map_or(0, |info| info.memory_bytes);
        let slot = gpu.info.as_ref().and_then(|info| info.pci.as_deref());
        checks.extend(slot.map(|slot| bar1(root, slot, memory)));
        let slots = [slot, nic.pci.as_ref().map(|slot| &*slot.address)];
        let slots: Vec<&str> = slots.into_iter().flatten().collect();
        checks.push(iommu(root, &slots));
        if let [gpu, nic] = slots[..] {
            checks.push(acs(root, gpu, nic));
        }
    }
    checks
}

fn driver(nic: &Device) -> Check {
    let what = "the RDMA device";
    match nic.driver.as_deref() {
        Some("mlx5_core") => Check::good(what, format!("{} of mlx5_core", nic.name)),
        _ if nic.name.starts_with("mlx5") => Check::good(what, nic.name.clone()),
        other => {
            let found = format!("{} of {}", nic.name, other.unwrap_or("an unknown driver"));
            let remedy = "only mlx5 devices (ConnectX-5 and later) have queues that kernels drive";
            Check::stop(what, found, remedy)
        }
    }
}

fn firmware(nic: &Device, opened: &Result<(), Reason>) -> Check {
    let what = "queues by firmware commands";
    match opened {
        Ok(()) => Check::good(what, "libmlx5 and firmware take them"),
        // The reason comes with its advice.
        Err(why) => {
            let version = nic.firmware.as_deref().unwrap_or("unknown");
            let remedy =
                "see the reason; firmware options are read by `mlxconfig -d DEVICE query UCTX_EN`";
            Check::stop(what, format!("refused (firmware {version}): {}", why.why), remedy)
        }
    }
}

/// Modules of the kernel, by their folders in sysfs. They may be built in, and a container may not see
/// them: a device that works needs none.
fn modules(root: &Root, opened: &Result<(), Reason>) -> Check {
    let what = "kernel modules";
    let mut missing = vec!["ib_uverbs", "mlx5_core", "mlx5_ib"];
    missing.retain(|module| !loaded(root, module));
    match (missing.is_empty(), opened) {
        (true, _) => Check::good(what, "ib_uverbs, mlx5_core and mlx5_ib are loaded"),
        (false, Ok(())) => {
            Check::good(what, format!("{} not seen, nor needed", missing.join(", ")))
        }
        (false, Err(_)) => Check::less(
            what,
            format!("{} not seen", missing.join(", ")),
            format!("`modprobe -a {}`", missing.join(" ")),
        ),
    }
}

fn loaded(root: &Root, module: &str) -> bool {
    root.exists(&format!("sys/module/{module}"))
}

/// Rings, CQs and registered memory count.
fn locked(report: &Report) -> Check {
    const ENOUGH: u64 = 64 << 20;
    let what = "locked memory";
    match report.limits.memlock_bytes.0 {
        Some(limit) if limit < ENOUGH => Check::less(
            what,
            format!("at most {}", units::bytes(limit)),
            "`ulimit -l unlimited`; for a container --ulimit memlock=-1",
        ),
        Some(limit) => Check::good(what, format!("at most {}", units::bytes(limit))),
        None => Check::good(what, "unlimited"),
    }
}

/// The NIC's doorbell register in the GPU's address space, and the driver's option for that.
fn register(root: &Root, survey: &DeviceSurvey) -> Check {
    let what = "doorbell register in the GPU";
    let option = option(root);
    let tried = survey.register.as_ref().map(|tried| tried.as_ref().map_err(|why| &why.why));
    match (tried, option) {
        (Some(Ok(())), _) => Check::good(what, "kernels reach it"),
        (Some(Err(why)), Ok(set)) => {
            Check::stop(what, format!("refused, with {set}: {why}"), "see the reason")
        }
        (Some(Err(why)), Err((found, remedy))) => {
            Check::stop(what, format!("refused: {why}; {found}"), remedy)
        }
        (None, Ok(set)) => Check::good(what, set),
        (None, Err((found, remedy))) => Check::stop(what, found, remedy),
    }
}

/// The option of NVIDIA's kernel module, or what was found in its place, with advice.
fn option(root: &Root) -> Result<&'static str, (String, &'static str)> {
    let (file, option) = ("proc/driver/nvidia/params", "PeerMappingOverride=1");
    let Some(params) = root.read(file) else {
        let remedy =
            "is NVIDIA's kernel module loaded, and /proc/driver/nvidia seen in the container?";
        return Err((format!("/{file} cannot be read"), remedy));
    };
    let words = params.lines().find_map(|line| line.strip_prefix("RegistryDwords:"));
    let words = words.unwrap_or_default().trim().trim_matches('"');
    match words.split(';').any(|word| word.trim() == option) {
        true => Ok(option),
        false => Err((
            format!("NVIDIA's module was loaded without PeerMappingOverride (\"{words}\")"),
            "put `options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\"` into \
             /etc/modprobe.d/nvidia.conf, rebuild the initramfs, and reboot",
        )),
    }
}

/// How the NIC gets at memory of the GPU.
fn payload(root: &Root) -> Check {
    let what = "GPU memory for the NIC";
    let version = root.read("proc/driver/nvidia/version").unwrap_or_default();
    let open = version.contains("Open Kernel Module");
    match (open, loaded(root, "nvidia_peermem")) {
        (true, true) => Check::good(what, "open kernel module (dmabuf), nvidia_peermem"),
        (true, false) => Check::good(what, "open kernel module (dmabuf)"),
        (false, true) => Check::good(what, "nvidia_peermem"),
        (false, false) => Check::less(
            what,
            "neither the open kernel module nor nvidia_peermem",
            "install NVIDIA's open kernel module (dmabuf, Linux 5.12), or `modprobe nvidia_peermem`",
        ),
    }
}

/// Whether what the NIC wrote is there when a kernel sees the completion.
fn order(ordered: bool) -> Check {
    let what = "order of the NIC's writes";
    match ordered {
        true => Check::good(what, "kernels see them in order"),
        false => Check::stop(
            what,
            "kernels of this GPU may see a completion before the data (GPU_DIRECT_RDMA_WRITES_ORDERING \
             is NONE)",
            "endpoints for its kernels are refused on RDMA devices: `--nic soft`, or another GPU",
        ),
    }
}

/// The window for other devices into a GPU's memory.
fn bar1(root: &Root, slot: &str, memory: u64) -> Check {
    let what = "BAR1 of the GPU";
    let regions = root.read(format!("sys/bus/pci/devices/{slot}/resource")).unwrap_or_default();
    let number = |word: Option<&str>| u64::from_str_radix(word?.strip_prefix("0x")?, 16).ok();
    let size = regions.lines().nth(1).and_then(|line| {
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
fn iommu(root: &Root, slots: &[&str]) -> Check {
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
        None => Check::good(what, "off, or not seen"),
    }
}

/// Access control of PCIe bridges above one of the devices and not the other: what they send to each
/// other may have to go through the CPU.
fn acs(root: &Root, gpu: &str, nic: &str) -> Check {
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

    const NVIDIA: &str = "proc/driver/nvidia";

    #[test]
    fn the_driver_option_must_be_there_as_a_whole() {
        let params = |words: &str| {
            let text = format!("Mobile: 4294967295\nRegistryDwords: \"{words}\"\nRmMsg: \"\"\n");
            let (_dir, root) = fake(&[(&format!("{NVIDIA}/params"), &text)]);
            register(&root, &DeviceSurvey::refused("no device"))
        };
        for good in
            ["PeerMappingOverride=1", "PeerMappingOverride=1;", "Other=3; PeerMappingOverride=1;"]
        {
            let check = params(good);
            assert!(!check.stops && check.remedy.is_none(), "{good}: {check:?}");
        }
        for bad in
            ["", "PeerMappingOverride=0", "NoPeerMappingOverride=1", "PeerMappingOverride=12"]
        {
            let check = params(bad);
            assert!(check.stops && check.remedy.unwrap().contains("modprobe.d"), "{bad}");
        }
        let (_dir, root) = fake(&[]);
        assert!(register(&root, &DeviceSurvey::refused("no device")).stops);
    }

    #[test]
    fn modules_are_missed_where_the_device_does_not_open() {
        let (_dir, root) = fake(&[("sys/module/mlx5_core/version", "1\n")]);
        let refused = Err(Reason::new("queues", "no devices"));
        let check = modules(&root, &refused);
        assert_eq!(check.remedy.as_deref(), Some("`modprobe -a ib_uverbs mlx5_ib`"), "{check:?}");
        assert!(!check.stops && modules(&root, &Ok(())).remedy.is_none());
        for module in ["ib_uverbs", "mlx5_ib"] {
            add(&root, &format!("sys/module/{module}/version"), "1\n");
        }
        assert!(modules(&root, &refused).remedy.is_none());
    }

    #[test]
    fn memory_of_the_gpu_is_reached_by_either_module() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n";
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1\n";
        let of = |version: &str, peermem: bool| {
            let (_dir, root) = fake(&[(&format!("{NVIDIA}/version"), version)]);
            if peermem {
                add(&root, "sys/module/nvidia_peermem/version", "1\n");
            }
            payload(&root)
        };
        assert!(of(open, false).found.contains("dmabuf"));
        assert_eq!(of(closed, true).found, "nvidia_peermem");
        assert!(of(closed, false).remedy.unwrap().contains("modprobe nvidia_peermem"));
    }

    #[test]
    fn a_gpu_that_does_not_order_writes_is_not_for_the_direct_way() {
        assert!(order(true).remedy.is_none());
        let check = order(false);
        assert!(check.stops && check.remedy.unwrap().contains("--nic soft"));
    }

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
            bar1(&root, slot, 16 << 30)
        };
        let small = bar("000000d00fffffff");
        assert!(small.found.starts_with("256 MiB") && small.remedy.is_some(), "{small:?}");
        assert!(bar("000000d3ffffffff").remedy.is_none(), "as large as the memory");
        let (_dir, root) = fake(&[]);
        assert!(bar1(&root, slot, 1).found.contains("not readable"));
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

    #[test]
    fn a_register_that_was_tried_counts_for_more_than_the_option() {
        let (_dir, root) = fake(&[(&format!("{NVIDIA}/params"), "RegistryDwords: \"\"\n")]);
        let tried = |register| DeviceSurvey { register, ..DeviceSurvey::refused("") };
        let check = register(&root, &tried(Some(Ok(()))));
        assert!(!check.stops && check.remedy.is_none(), "{check:?}");
        let check = register(&root, &tried(Some(Err(Reason::new("register", "no such address")))));
        assert!(check.stops && check.found.contains("no such address"), "{check:?}");
        assert!(check.remedy.unwrap().contains("modprobe.d"));
    }
}
