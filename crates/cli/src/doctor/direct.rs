//! Whether kernels of a GPU can drive an RDMA device with no CPU between them, and what to change
//! where they cannot: one check for each condition.

use super::Report;
use super::amd;
use super::check::{Check, loaded};
use super::pci::{Bar, acs, iommu, window};
use super::rdma::Device;
use super::root::Root;
use warpverbs::gpu::{Found, GpuKind};
use warpverbs::raw::transport::DeviceSurvey;
use warpverbs::transport::Reason;
use warpverbs_bench::units;

/// All conditions, in the order in which one would mend them. `survey` is
/// what `transport` says of the two.
pub(crate) fn checks(
    root: &Root,
    report: &Report,
    gpu: &Found,
    nic: &Device,
    survey: &DeviceSurvey,
) -> Vec<Check> {
    let (family, made) = (Family::of(nic).unwrap_or(&MLX5), &survey.queues);
    let queues = queues(family, nic, made);
    let mut checks = vec![driver(nic), queues, modules(root, family, made), locked(report)];
    match gpu.kind {
        GpuKind::Cuda => checks.extend([register(root, survey), payload(root)]),
        GpuKind::Hip => {
            checks.extend([amd::register(survey), amd::payload(root, survey), amd::peers(root)]);
        }
        _ => {}
    }
    if gpu.kind != GpuKind::Simt {
        checks.extend(gpu.info.as_ref().map(|info| order(info.ordered_nic_writes)));
        let memory = gpu.info.as_ref().map_or(0, |info| info.memory_bytes);
        let slot = gpu.info.as_ref().and_then(|info| info.pci.as_deref());
        let bar = if gpu.kind == GpuKind::Hip { Bar::AMD } else { Bar::NVIDIA };
        checks.extend(slot.map(|slot| window(root, slot, bar, memory)));
        let slots = [slot, nic.pci.as_ref().map(|slot| &*slot.address)];
        let slots: Vec<&str> = slots.into_iter().flatten().collect();
        checks.push(iommu(root, &slots));
        if let [gpu, nic] = slots[..] {
            checks.push(acs(root, gpu, nic));
        }
    }
    checks
}

/// Devices that read queues of kernels, and what each needs.
struct Family {
    /// How the names of devices begin.
    name: &'static str,
    /// Driver of the PCI function.
    driver: &'static str,
    modules: [&'static str; 3],
    /// The condition: by whom queues are made.
    queues: &'static str,
    taken: &'static str,
    remedy: &'static str,
}

const MLX5: Family = Family {
    name: "mlx5",
    driver: "mlx5_core",
    modules: ["ib_uverbs", "mlx5_core", "mlx5_ib"],
    queues: "queues by firmware commands",
    taken: "libmlx5 and firmware take them",
    remedy: "see the reason; firmware options are read by `mlxconfig -d DEVICE query UCTX_EN`",
};
const BNXT: Family = Family {
    name: "bnxt_re",
    driver: "bnxt_en",
    modules: ["ib_uverbs", "bnxt_en", "bnxt_re"],
    queues: "queues by the vendor's library",
    taken: "Broadcom's libbnxt_re and the device take them",
    remedy: "see the reason; the library with bnxt_re_dv_* and the kernel's driver are of Broadcom's own \
             package, not of rdma-core",
};
const IONIC: Family = Family {
    name: "ionic",
    driver: "ionic",
    modules: ["ib_uverbs", "ionic", "ionic_rdma"],
    queues: "queues that the vendor's library tells of",
    taken: "libionic and the device take them, and AMD's libionic tells where they lie",
    remedy: "see the reason; the library with ionic_dv_get_qp and the kernel's driver are of AMD's own package, not \
             of rdma-core, which makes the queues from v61 on",
};

impl Family {
    fn of(nic: &Device) -> Option<&'static Self> {
        let is = |family: &&Self| {
            nic.driver.as_deref() == Some(family.driver) || nic.name.starts_with(family.name)
        };
        [&MLX5, &BNXT, &IONIC].into_iter().find(is)
    }
}

fn driver(nic: &Device) -> Check {
    let (what, of) = ("the RDMA device", nic.driver.as_deref());
    match (Family::of(nic), of) {
        (Some(_), Some(driver)) => Check::good(what, format!("{} of {driver}", nic.name)),
        (Some(_), None) => Check::good(what, nic.name.clone()),
        (None, other) => {
            let found = format!("{} of {}", nic.name, other.unwrap_or("an unknown driver"));
            let remedy = "only mlx5 devices (ConnectX-5 and later), bnxt_re devices (Thor) and ionic devices \
                          (Pollara) have queues that kernels drive";
            Check::stop(what, found, remedy)
        }
    }
}

fn queues(family: &Family, nic: &Device, opened: &Result<(), Reason>) -> Check {
    match opened {
        Ok(()) => Check::good(family.queues, family.taken),
        // The reason comes with its advice.
        Err(why) => {
            let version = nic.firmware.as_deref().unwrap_or("unknown");
            let found = format!("refused (firmware {version}): {}", why.why);
            Check::stop(family.queues, found, family.remedy)
        }
    }
}

/// Modules of the kernel, by their folders in sysfs. They may be built in, and a container may not see
/// them: a device that works needs none.
fn modules(root: &Root, family: &Family, opened: &Result<(), Reason>) -> Check {
    let what = "kernel modules";
    let mut missing = family.modules.to_vec();
    missing.retain(|module| !loaded(root, module));
    match (missing.is_empty(), opened) {
        (true, _) => {
            let [first, second, third] = family.modules;
            Check::good(what, format!("{first}, {second} and {third} are loaded"))
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::root::{add, fake};

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
        let check = modules(&root, &MLX5, &refused);
        assert_eq!(check.remedy.as_deref(), Some("`modprobe -a ib_uverbs mlx5_ib`"), "{check:?}");
        assert!(!check.stops && modules(&root, &MLX5, &Ok(())).remedy.is_none());
        for module in ["ib_uverbs", "mlx5_ib"] {
            add(&root, &format!("sys/module/{module}/version"), "1\n");
        }
        assert!(modules(&root, &MLX5, &refused).remedy.is_none());
        let check = modules(&root, &BNXT, &refused);
        assert_eq!(check.remedy.as_deref(), Some("`modprobe -a bnxt_en bnxt_re`"), "{check:?}");
        let check = modules(&root, &IONIC, &refused);
        assert_eq!(check.remedy.as_deref(), Some("`modprobe -a ionic ionic_rdma`"), "{check:?}");
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
