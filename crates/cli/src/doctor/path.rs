//! `warpverbs doctor path A B`: the way bytes take between two devices of this machine, and what
//! keeps a faster one from being taken.

use super::Report;
use super::direct::{self, Check, Verdict};
use super::memory::{FabricAddress, distance};
use super::rdma::{Device, Port};
use super::root::Root;
use anyhow::bail;
use serde::Serialize;
use warpverbs::gpu::{self, Found, GpuKind};
use warpverbs::raw::transport::pci::{Distance, Slot};

/// A path, and what limits it.
#[derive(Debug, Serialize)]
pub(crate) struct Way {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Of a GPU and an RDMA device: who reads the queues of kernels, at best.
    pub(crate) verdict: Option<Verdict>,
    /// The conditions of the direct way.
    pub(crate) checks: Vec<Check>,
    /// Steps of a transfer, in order.
    pub(crate) steps: Vec<String>,
    /// Obstacles to a faster way, or to this one.
    pub(crate) held_back_by: Vec<String>,
}

/// A device, by its name.
enum End<'a> {
    Gpu(&'a Found),
    Nic(&'a Device),
    Soft,
}

/// `open` tries whether an RDMA device can be driven directly.
pub(crate) fn way(
    root: &Root,
    report: &Report,
    [from, to]: [&str; 2],
    open: impl Fn(&str) -> Result<(), String>,
) -> anyhow::Result<Way> {
    let mut way = Way {
        from: from.to_owned(),
        to: to.to_owned(),
        verdict: None,
        checks: Vec::new(),
        steps: Vec::new(),
        held_back_by: Vec::new(),
    };
    match (find(report, from)?, find(report, to)?) {
        (End::Gpu(gpu), End::Nic(nic)) | (End::Nic(nic), End::Gpu(gpu)) => {
            way.gpu_and_nic(root, report, gpu, nic, &open(&nic.name));
        }
        (End::Gpu(gpu), End::Soft) | (End::Soft, End::Gpu(gpu)) => way.gpu_and_soft(gpu),
        (End::Gpu(one), End::Gpu(other)) => way.two_gpus(root, one, other),
        (End::Nic(one), End::Nic(other)) => way.two_nics(one, other),
        (End::Nic(nic), End::Soft) | (End::Soft, End::Nic(nic)) => way.nic_and_soft(nic),
        (End::Soft, End::Soft) => way.step("the software NIC copies between two regions it knows"),
    }
    Ok(way)
}

fn find<'a>(report: &'a Report, name: &str) -> anyhow::Result<End<'a>> {
    if name == "soft" {
        return Ok(End::Soft);
    }
    let full = if name == "cuda" { "cuda:0" } else { name };
    if let Some(gpu) = report.gpus.iter().find(|gpu| gpu.name == full && gpu.info.is_some()) {
        return Ok(End::Gpu(gpu));
    }
    if let Some(nic) = report.rdma.devices.iter().find(|nic| nic.name == name) {
        return Ok(End::Nic(nic));
    }
    let gpus = report.gpus.iter().filter(|gpu| gpu.info.is_some()).map(|gpu| &*gpu.name);
    let nics = report.rdma.devices.iter().map(|nic| &*nic.name);
    let names: Vec<_> = gpus.chain(["soft"]).chain(nics).collect();
    bail!("nothing here is called {name}; there are {}", names.join(", "))
}

impl Way {
    fn step(&mut self, text: impl Into<String>) {
        self.steps.push(text.into());
    }

    fn held_back(&mut self, text: impl Into<String>) {
        self.held_back_by.push(text.into());
    }

    /// How a kernel's requests come to the software NIC.
    fn kernel_posts(&mut self, gpu: &Found) {
        let queues = match gpu.kind {
            GpuKind::Simt => "host memory",
            _ => "pinned host memory",
        };
        self.step(format!("kernels on {} write work requests into queues in {queues}", gpu.name));
    }

    fn gpu_and_soft(&mut self, gpu: &Found) {
        self.kernel_posts(gpu);
        self.step("a CPU thread of the software NIC reads them there");
        match gpu.kind {
            GpuKind::Simt => self.step("it copies host memory itself"),
            _ => {
                self.step(format!(
                    "it has {}'s copy engine move what lies in its memory",
                    gpu.name
                ));
                self.held_back("every copy by the driver costs microseconds, see docs/gpu.md");
            }
        }
        self.held_back("every packet to another host is made by the CPU");
    }

    fn gpu_and_nic(
        &mut self,
        root: &Root,
        report: &Report,
        gpu: &Found,
        nic: &Device,
        opened: &Result<(), String>,
    ) {
        let found = distance(root, gpu, Some(nic));
        let reach = report.rdma.gpu_memory.iter().find(|r| r.gpu == gpu.name && r.nic == nic.name);
        self.checks = direct::checks(root, report, gpu, nic, opened);
        let verdict = direct::verdict(&self.checks, reach);
        self.verdict = Some(verdict);
        self.kernel_posts(gpu);
        match verdict {
            Verdict::Direct => self.step(format!(
                "they ring {0}'s register, and {0} reads the queues itself (--way direct; auto takes \
                 a CPU thread, until hardware was tried)",
                nic.name
            )),
            Verdict::Proxy | Verdict::Bounce => self.step(format!(
                "a CPU thread of the software NIC reads them there, and posts to {} for them",
                nic.name
            )),
        }
        match reach.and_then(|reach| Some((reach, reach.how.as_ref()?))) {
            Some((reach, how)) => {
                let place = place(gpu, found);
                self.step(format!(
                    "{} reads and writes {}'s memory: {how}{place}",
                    nic.name, gpu.name
                ));
                self.reach_is_less(reach);
            }
            None => {
                let why = reach.and_then(|reach| reach.why.clone());
                let why = why.unwrap_or_else(|| no_driver(report, nic));
                self.held_back(format!("{}'s memory is not registered: {why}", gpu.name));
                if reach.is_some_and(|reach| reach.bounce == Some(true)) {
                    self.step(format!(
                        "a program that asks for it (RegisterOptions::bounce) has {}'s memory copied \
                         through host memory, for its own side of transfers",
                        gpu.name
                    ));
                }
            }
        }
        if gpu.kind != GpuKind::Simt {
            self.nearer(root, report, gpu, found);
        }
        let remedies = self.checks.iter().filter_map(|check| {
            Some(format!("{}: {}; {}", check.what, check.found, check.remedy.as_ref()?))
        });
        self.held_back_by.extend(remedies.collect::<Vec<_>>());
        self.nic_is_less(nic);
    }

    fn reach_is_less(&mut self, reach: &FabricAddress) {
        if let Some(why) = reach.why.as_ref().filter(|_| !reach.direct) {
            self.held_back(format!("memory is registered by way of {why}"));
        }
    }

    /// Another device that is nearer to the GPU.
    fn nearer(&mut self, root: &Root, report: &Report, gpu: &Found, than: Distance) {
        let all = report.rdma.devices.iter().map(|nic| (distance(root, gpu, Some(nic)), nic));
        let nearest = all.min_by_key(|(distance, _)| *distance);
        if let Some((nearest, nic)) = nearest.filter(|(nearest, _)| *nearest < than) {
            self.held_back(format!(
                "{} is nearer to {}: {}, not {}",
                nic.name,
                gpu.name,
                nearest.words(),
                than.words()
            ));
        }
    }

    /// Notes the faults of a device by itself.
    fn nic_is_less(&mut self, nic: &Device) {
        if let Some(why) = &nic.not_usable {
            self.held_back(format!("{} cannot be opened: {why}", nic.name));
        }
        if let Some(parent) = &nic.parent {
            self.held_back(format!(
                "{} is software: the CPU moves every byte by {parent}",
                nic.name
            ));
        }
        if let Some((link, could)) =
            nic.pci.as_ref().and_then(|slot| slot.link.as_ref().zip(slot.link_could.as_ref()))
        {
            self.held_back(format!("{}'s PCIe link is {link}, it could be {could}", nic.name));
        }
        match nic.ports.iter().find(|port| port.state == "ACTIVE") {
            None => self.held_back(format!("{} has no active port", nic.name)),
            Some(port) => self.port_is_less(nic, port),
        }
    }

    fn port_is_less(&mut self, nic: &Device, port: &Port) {
        let chosen = port.gid_choice.as_ref();
        let gid = chosen.and_then(|c| port.gids.iter().find(|gid| gid.index == c.index));
        let ethernet = port.link_layer == "Ethernet";
        match (gid, chosen) {
            (Some(gid), Some(chosen)) if ethernet && !gid.address.starts_with("::ffff:") => {
                self.held_back(format!("{} takes {}", nic.name, chosen.why));
            }
            (None, _) => self.held_back(format!("port {} of {} has no GID", port.number, nic.name)),
            _ => {}
        }
    }

    fn two_gpus(&mut self, root: &Root, one: &Found, other: &Found) {
        if one.name == other.name {
            return self.gpu_and_soft(one);
        }
        if one.kind != other.kind {
            self.step("the software NIC copies through pinned host memory");
            return self
                .held_back("one of the two is the host, which has no link to turn around on");
        }
        let slot = |gpu: &Found| {
            gpu.info.as_ref().and_then(|info| Slot::at(root.path(), info.pci.as_deref()?))
        };
        let far = slot(one).zip(slot(other)).map_or(Distance::Unknown, |(a, b)| a.distance(&b));
        match peers(one, other) {
            Ok(()) => self.step(format!(
                "{}'s copy engine writes into {}: by NVLink if there is one, else {}",
                one.name,
                other.name,
                far.words()
            )),
            Err(why) => {
                self.step("the driver copies through host memory");
                self.held_back(format!("no access to a peer's memory: {why}"));
            }
        }
    }

    fn two_nics(&mut self, one: &Device, other: &Device) {
        if one.name == other.name {
            self.step(format!("{} turns the bytes around by itself", one.name));
            return self.nic_is_less(one);
        }
        let active = |nic: &'_ Device| nic.ports.iter().position(|port| port.state == "ACTIVE");
        if let (Some(a), Some(b)) = (active(one), active(other)) {
            let (a, b) = (&one.ports[a], &other.ports[b]);
            if a.link_layer != b.link_layer {
                self.held_back(format!(
                    "no way: {} speaks {}, {} {}",
                    one.name, a.link_layer, other.name, b.link_layer
                ));
            } else {
                self.step(format!(
                    "{} sends over {} ({}) to {} ({})",
                    one.name, a.link_layer, a.rate, other.name, b.rate
                ));
            }
            if a.rate != b.rate {
                self.held_back("the slower of the two rates, and what lies between them");
            }
        }
        self.nic_is_less(one);
        self.nic_is_less(other);
    }

    fn nic_and_soft(&mut self, nic: &Device) {
        match nic.ports.iter().any(|port| port.link_layer == "Ethernet") {
            true => self.step(format!("{} and the software NIC speak RoCEv2 over UDP", nic.name)),
            false => self.held_back(format!("no way: {} speaks no Ethernet", nic.name)),
        }
        self.held_back("the CPU makes and reads every packet of the software NIC");
        self.nic_is_less(nic);
    }
}

fn place(gpu: &Found, distance: Distance) -> String {
    match gpu.kind {
        GpuKind::Simt => String::new(),
        _ => format!(", {}", distance.words()),
    }
}

fn no_driver(report: &Report, nic: &Device) -> String {
    let library = &report.rdma.library;
    let reason = library.why_not.as_ref().or(library.no_device.as_ref());
    reason.cloned().unwrap_or_else(|| format!("libibverbs does not drive {}", nic.name))
}

fn peers(one: &Found, other: &Found) -> Result<(), String> {
    let open = |gpu: &Found| {
        let choice = gpu.name.parse().map_err(|e: gpu::ChoiceError| e.to_string())?;
        gpu::open(choice).map_err(|e| e.to_string())
    };
    open(one)?.enable_peer(&*open(other)?).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::root::add_machine;
    use crate::doctor::root::{add, fake, link};
    use warpverbs::gpu::GpuInfo;

    fn cuda(ordinal: u32, pci: &str) -> Found {
        let mut info = GpuInfo::new(GpuKind::Cuda, ordinal, "a GPU");
        info.pci = Some(pci.to_owned());
        info.dmabuf = true;
        Found {
            name: format!("cuda:{ordinal}"),
            kind: GpuKind::Cuda,
            info: Some(info),
            unusable: None,
            software: Vec::new(),
        }
    }

    /// A GPU, a NIC below the same switch, one at another CPU, and one in software.
    fn machine() -> (tempfile::TempDir, Root, Report) {
        let (dir, root) = fake(&[]);
        add_machine(&root);
        for (name, slot, link_layer) in [
            ("mlx5_0", Some("0000:06:00.0"), "Ethernet"),
            ("mlx5_1", Some("0000:81:00.0"), "InfiniBand"),
            ("rxe0", None, "Ethernet"),
        ] {
            let base = format!("sys/class/infiniband/{name}");
            match slot {
                Some(slot) => {
                    link(&root, &format!("{base}/device"), &format!("sys/bus/pci/devices/{slot}"));
                }
                None => add(&root, &format!("{base}/parent"), "eth0\n"),
            }
            add(&root, &format!("{base}/ports/1/state"), "4: ACTIVE\n");
            add(&root, &format!("{base}/ports/1/link_layer"), link_layer);
            add(&root, &format!("{base}/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
            let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001\n";
            add(&root, &format!("{base}/ports/1/gids/0"), gid);
            add(&root, &format!("{base}/ports/1/gid_attrs/types/0"), "RoCE v2\n");
            add(&root, &format!("sys/class/infiniband_verbs/u{name}/ibdev"), name);
            add(&root, &format!("dev/infiniband/u{name}"), "");
        }
        let mut report = crate::doctor::report(&root);
        report.gpus.push(cuda(0, "0000:05:00.0"));
        let row = |nic: &str, how: Option<&str>, why: Option<&str>, direct| FabricAddress {
            gpu: "cuda:0".to_owned(),
            nic: nic.to_owned(),
            distance: Distance::Unknown,
            how: how.map(str::to_owned),
            why: why.map(str::to_owned),
            bounce: how.is_none().then_some(true),
            direct,
        };
        report.rdma.gpu_memory = vec![
            row("mlx5_0", Some("dmabuf"), None, true),
            row("mlx5_1", None, Some("no module is loaded"), false),
        ];
        (dir, root, report)
    }

    fn shown(from: &str, to: &str) -> (String, String) {
        let way = verdict(from, to, |_| {});
        (way.steps.join("\n"), way.held_back_by.join("\n"))
    }

    /// The way on a machine to which `change` was done.
    fn verdict(from: &str, to: &str, change: impl FnOnce(&Root)) -> Way {
        let (_dir, root, mut report) = machine();
        report.limits.memlock_bytes = crate::doctor::system::Limit(None);
        change(&root);
        let open = |nic: &str| match nic {
            "rxe0" => Err("rxe0 is not an mlx5 device".to_owned()),
            _ => Ok(()),
        };
        way(&root, &report, [from, to], open).unwrap()
    }

    /// All that the direct way needs.
    fn furnish(root: &Root) {
        let words = "RegistryDwords: \"PeerMappingOverride=1;\"\n";
        add(root, "proc/driver/nvidia/params", words);
        add(root, "proc/driver/nvidia/version", "NVIDIA UNIX Open Kernel Module for x86_64\n");
        for module in ["ib_uverbs", "mlx5_core", "mlx5_ib"] {
            add(root, &format!("sys/module/{module}/version"), "1\n");
        }
        let bar = "0x0 0xfff 0x0\n0x0000001000000000 0x0000001fffffffff 0x14220c\n";
        add(root, "sys/bus/pci/devices/0000:05:00.0/resource", bar);
        let above = "sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0";
        for bridge in ["0000:04:00.0", "0000:04:01.0"] {
            link(root, &format!("sys/bus/pci/devices/{bridge}"), &format!("{above}/{bridge}"));
            add(root, &format!("{above}/{bridge}/config"), &"\0".repeat(4096));
        }
    }

    #[test]
    fn the_direct_way_is_said_where_nothing_stands_in_it() {
        let way = verdict("cuda:0", "mlx5_0", furnish);
        let (steps, held_back) = (way.steps.join("\n"), way.held_back_by.join("\n"));
        assert_eq!(way.verdict, Some(Verdict::Direct), "{held_back}");
        assert!(steps.contains("dmabuf, through PCIe switches only"), "{steps}");
        assert!(steps.contains("mlx5_0 reads the queues itself"), "{steps}");
        assert_eq!(held_back, "");
        let back = verdict("mlx5_0", "cuda", furnish);
        assert_eq!((back.verdict, back.steps.join("\n")), (way.verdict, steps), "both directions");
    }

    #[test]
    fn the_proxy_comes_with_what_stands_in_the_direct_way() {
        let way = verdict("cuda:0", "mlx5_0", |root| {
            furnish(root);
            add(root, "proc/driver/nvidia/params", "RegistryDwords: \"\"\n");
        });
        assert_eq!(way.verdict, Some(Verdict::Proxy));
        assert!(way.steps.join("\n").contains("a CPU thread"), "{:?}", way.steps);
        let [why] = &way.held_back_by[..] else { panic!("{:?}", way.held_back_by) };
        assert!(why.contains("without PeerMappingOverride"), "{why}");
        // Kernels of the CPU need no register in a GPU.
        assert_eq!(verdict("simt", "mlx5_0", |_| {}).verdict, Some(Verdict::Direct));
        let soft = verdict("simt", "rxe0", |_| {});
        assert_eq!(soft.verdict, Some(Verdict::Proxy));
        assert!(soft.held_back_by.join("\n").contains("only mlx5 devices"), "{soft:?}");
        let copied = verdict("cuda:0", "mlx5_1", furnish);
        assert_eq!(copied.verdict, Some(Verdict::Bounce));
    }

    #[test]
    fn a_far_device_without_registration_is_told_with_the_nearer_one() {
        let (steps, held_back) = shown("cuda:0", "mlx5_1");
        assert!(!steps.contains("reads and writes"), "{steps}");
        assert!(held_back.contains("not registered: no module is loaded"), "{held_back}");
        assert!(held_back.contains("mlx5_0 is nearer to cuda:0"), "{held_back}");
    }

    #[test]
    fn two_devices_that_cannot_meet_are_told_so() {
        assert!(
            shown("mlx5_0", "mlx5_1")
                .1
                .contains("no way: mlx5_0 speaks Ethernet, mlx5_1 InfiniBand")
        );
        assert!(shown("soft", "mlx5_1").1.contains("no way: mlx5_1 speaks no Ethernet"));
        let (steps, held_back) = shown("mlx5_0", "rxe0");
        assert!(steps.contains("sends over Ethernet"), "{steps}");
        assert!(
            held_back.contains("rxe0 is software: the CPU moves every byte by eth0"),
            "{held_back}"
        );
    }

    #[test]
    fn an_unknown_name_comes_with_those_there_are() {
        let (_dir, root, report) = machine();
        let never = |_: &str| Ok(());
        let error = way(&root, &report, ["cuda:0", "mlx5_9"], never).unwrap_err().to_string();
        for name in ["mlx5_9", "cuda:0", "simt", "soft", "rxe0"] {
            assert!(error.contains(name), "{error}");
        }
    }
}
