//! Conditions of the direct way that only AMD's GPUs have: what amdgpu and its kernel must offer.

use super::check::{Check, loaded};
use super::root::Root;
use warpverbs::raw::transport::DeviceSurvey;
use warpverbs::transport::RegistrationPath;

/// Where modules of peer memory (`ib_peer_mem`, MLNX_OFED) list amdkfd, by their age.
const PEER_MEMORY: [&str; 3] = [
    "sys/kernel/mm/memory_peers/amdkfd/version",
    "sys/kernel/memory_peers/amdkfd/version",
    "sys/memory_peers/amdkfd/version",
];
/// Options of the kernel without which a NIC gets no dmabuf of a GPU's own memory.
const OPTIONS: [&str; 2] = ["CONFIG_PCI_P2PDMA", "CONFIG_DMABUF_MOVE_NOTIFY"];

/// The NIC's doorbell register in the GPU's address space.
pub(super) fn register(survey: &DeviceSurvey) -> Check {
    let what = "doorbell register in the GPU";
    match &survey.register {
        Some(Ok(())) => Check::good(what, "kernels reach it"),
        Some(Err(why)) => {
            let remedy = "HIP 7.1.1 and later take registers as I/O memory; see the reason";
            Check::stop(what, format!("refused: {}", why.why), remedy)
        }
        None => Check::less(what, "not tried", "first mend what the queues are refused for"),
    }
}

/// How the NIC gets at memory of the GPU. A registration that was made counts for more than options.
pub(super) fn payload(root: &Root, survey: &DeviceSurvey) -> Check {
    let what = "GPU memory for the NIC";
    if let Ok(taken) = &survey.memory
        && taken.route != RegistrationPath::Bounce
    {
        return Check::good(what, taken.route.to_string());
    }
    if !loaded(root, "amdgpu") {
        let remedy = "`modprobe amdgpu`; is /sys mounted in the container?";
        return Check::less(what, "amdgpu is not seen", remedy);
    }
    if PEER_MEMORY.iter().any(|file| root.exists(file)) {
        return Check::good(what, "peer memory of amdkfd");
    }
    let release = root.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let file = format!("boot/config-{release}");
    let Some(config) = root.read(&file) else {
        let found = format!("no peer memory of amdkfd, and /{file} cannot be read");
        let remedy = format!("look for {} in the kernel's configuration (dmabuf)", set(&OPTIONS));
        return Check::less(what, found, remedy);
    };
    match missing(&config)[..] {
        [] => Check::good(what, "the kernel has what dmabufs need"),
        ref missing => Check::less(
            what,
            format!("no peer memory of amdkfd, and the kernel was built without {}", set(missing)),
            "boot a kernel with both (dmabuf, Linux 6.2 and ROCm 5.6), or install amdgpu-dkms with \
             the NIC's peer memory module",
        ),
    }
}

/// Options of [`OPTIONS`] that a kernel's configuration does not set.
fn missing(config: &str) -> Vec<&'static str> {
    let is_set = |option: &str| config.lines().any(|line| line.strip_prefix(option) == Some("=y"));
    OPTIONS.into_iter().filter(|option| !is_set(option)).collect()
}

/// The lines that set these options.
fn set(options: &[&str]) -> String {
    options.iter().map(|option| format!("{option}=y")).collect::<Vec<_>>().join(" and ")
}

/// Whether the driver lets other devices into the GPU's memory.
pub(super) fn peers(root: &Root) -> Check {
    let what = "peers of the GPU (amdgpu.pcie_p2p)";
    match root.read("sys/module/amdgpu/parameters/pcie_p2p").as_deref() {
        Some("N") => Check::less(
            what,
            "off",
            "take `amdgpu.pcie_p2p=0` off the kernel's command line, or pcie_p2p=0 out of /etc/modprobe.d",
        ),
        Some(_) => Check::good(what, "on"),
        // A module built without HSA_AMD_P2P has no such parameter.
        None => Check::less(
            what,
            "not seen",
            "GPUs reach each other by xGMI alone unless the kernel has CONFIG_HSA_AMD_P2P",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::direct::checks;
    use crate::doctor::root::{add, fake};
    use warpverbs::gpu::{Found, GpuInfo, GpuKind};
    use warpverbs::transport::{Decision, Reason};

    fn refused() -> DeviceSurvey {
        DeviceSurvey::refused("no device")
    }

    #[test]
    fn an_amd_gpu_has_conditions_of_its_own() {
        let (_dir, root) = fake(&[
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("proc/driver/nvidia/params", "RegistryDwords: \"\"\n"),
        ]);
        let report = crate::doctor::report(&root);
        let mut info = GpuInfo::new(GpuKind::Hip, 0, "AMD Instinct MI300X");
        info.pci = Some("0000:05:00.0".to_owned());
        let (name, info) = ("hip:0".to_owned(), Some(info));
        let gpu = Found { name, kind: GpuKind::Hip, info, unusable: None, software: Vec::new() };
        let checks = checks(&root, &report, &gpu, &report.rdma.devices[0], &refused());
        let all: Vec<&str> = checks.iter().map(|check| check.what).collect();
        for what in ["doorbell register in the GPU", "BAR0 of the GPU", "IOMMU"] {
            assert!(all.contains(&what), "{what}: {all:?}");
        }
        let words = format!("{checks:?}");
        assert!(!words.contains("NVIDIA") && !words.contains("BAR1"), "{words}");
    }

    #[test]
    fn a_register_counts_as_it_was_tried() {
        let tried = |register: Option<Result<(), Reason>>| {
            super::register(&DeviceSurvey { register, ..refused() })
        };
        assert!(tried(Some(Ok(()))).remedy.is_none());
        let check = tried(Some(Err(Reason::new("register", "hipErrorInvalidValue"))));
        assert!(check.stops && check.found.contains("hipErrorInvalidValue"), "{check:?}");
        assert!(check.remedy.unwrap().contains("7.1.1"));
        let check = tried(None);
        assert!(!check.stops && check.found == "not tried", "{check:?}");
    }

    #[test]
    fn memory_is_reached_by_peer_memory_or_by_dmabufs() {
        let (_dir, root) = fake(&[("proc/sys/kernel/osrelease", "6.8.0-1-generic\n")]);
        assert!(payload(&root, &refused()).remedy.unwrap().contains("modprobe amdgpu"));
        add(&root, "sys/module/amdgpu/version", "6.16.13\n");
        let check = payload(&root, &refused());
        assert!(check.found.contains("/boot/config-6.8.0-1-generic cannot be read"), "{check:?}");
        let config = |text| {
            add(&root, "boot/config-6.8.0-1-generic", text);
            payload(&root, &refused())
        };
        let none = config("# CONFIG_PCI_P2PDMA is not set\nCONFIG_DMABUF_MOVE_NOTIFY=m\n");
        assert!(none.found.ends_with("CONFIG_PCI_P2PDMA=y and CONFIG_DMABUF_MOVE_NOTIFY=y"));
        let one = config("CONFIG_PCI_P2PDMA=y\nCONFIG_XDMABUF_MOVE_NOTIFY=y\n");
        assert!(one.found.ends_with("without CONFIG_DMABUF_MOVE_NOTIFY=y"), "{one:?}");
        assert!(one.remedy.is_some() && !one.stops);
        let both = config("CONFIG_PCI_P2PDMA=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n");
        assert!(both.remedy.is_none(), "{both:?}");
        // A registration that works counts for more than options of the kernel.
        let memory = Ok(Decision::best(RegistrationPath::Dmabuf));
        let works = DeviceSurvey { memory, ..refused() };
        config("");
        assert!(payload(&root, &works).remedy.is_none());
        for file in PEER_MEMORY {
            let (_dir, root) = fake(&[("sys/module/amdgpu/version", ""), (file, "1.0\n")]);
            assert_eq!(payload(&root, &refused()).found, "peer memory of amdkfd");
        }
    }

    #[test]
    fn peers_that_are_kept_out_are_said() {
        let file = "sys/module/amdgpu/parameters/pcie_p2p";
        let of = |text: &str| peers(&fake(&[(file, text)]).1);
        assert!(of("Y\n").remedy.is_none());
        let off = of("N\n");
        assert!(off.found == "off" && off.remedy.unwrap().contains("amdgpu.pcie_p2p"));
        assert!(peers(&fake(&[]).1).remedy.unwrap().contains("CONFIG_HSA_AMD_P2P"));
    }
}
