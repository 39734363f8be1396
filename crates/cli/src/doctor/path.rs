//! `warpverbs doctor path A B`: the way bytes take between two devices of this machine, and what
//! keeps a faster one from being taken.

use super::Report;
use super::check::Check;
use super::direct;
use super::memory::{Pairing, distance};
use super::rdma::{Device, Port};
use super::root::Root;
use anyhow::bail;
use serde::Serialize;
use warpverbs::gpu::{self, Found, GpuChoice, GpuKind};
use warpverbs::raw::transport::pci::{Distance, Slot};
use warpverbs::raw::transport::{Decision, DeviceSurvey, NicChoice, Reader};

#[derive(Debug, Serialize)]
pub(crate) struct Path {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Of a GPU and an RDMA device: who reads the queues of kernels, at best.
    pub(crate) verdict: Option<Decision<Reader>>,
    pub(crate) checks: Vec<Check>,
    pub(crate) steps: Vec<String>,
    pub(crate) held_back_by: Vec<String>,
}

enum End<'a> {
    Gpu(&'a Found),
    Nic(&'a Device),
    Soft,
}

pub(crate) fn way(root: &Root, report: &Report, [from, to]: [&str; 2]) -> anyhow::Result<Path> {
    let mut way = Path {
        from: from.to_owned(),
        to: to.to_owned(),
        verdict: None,
        checks: Vec::new(),
        steps: Vec::new(),
        held_back_by: Vec::new(),
    };
    match (find(report, from)?, find(report, to)?) {
        (End::Gpu(gpu), End::Nic(nic)) | (End::Nic(nic), End::Gpu(gpu)) => {
            way.gpu_and_nic(root, report, gpu, nic);
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
    if NicChoice::from(name).soft().is_some() {
        return Ok(End::Soft);
    }
    let full = name.parse().map_or(name.to_owned(), |gpu: GpuChoice| gpu.to_string());
    if let Some(gpu) = report.gpus.iter().find(|gpu| gpu.name == full && gpu.info.is_some()) {
        return Ok(End::Gpu(gpu));
    }
    if let Some(nic) = report.rdma.devices.iter().find(|nic| nic.name == name) {
        return Ok(End::Nic(nic));
    }
    let gpus = report.gpus.iter().filter(|gpu| gpu.info.is_some()).map(|gpu| &*gpu.name);
    let nics = report.rdma.devices.iter().map(|nic| &*nic.name);
    let names: Vec<_> = gpus.chain(["soft", "soft-bnxt", "soft-ionic"]).chain(nics).collect();
    bail!("no device is called {name}, expected one of: {}", names.join(", "))
}

impl Path {
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

    fn gpu_and_nic(&mut self, root: &Root, report: &Report, gpu: &Found, nic: &Device) {
        let found = distance(root, gpu, Some(nic));
        let pairing =
            report.rdma.gpu_memory.iter().find(|p| p.gpu == gpu.name && p.nic == nic.name);
        let survey = match pairing {
            Some(pairing) => &pairing.survey,
            None => &DeviceSurvey::refused(&no_driver(report, nic)),
        };
        self.checks = direct::checks(root, report, gpu, nic, survey);
        match survey.reader() {
            Err(why) => {
                self.held_back(format!("kernels cannot post to {}: {}", nic.name, why.why));
            }
            Ok(reader) => {
                self.kernel_posts(gpu);
                self.step(match reader.route {
                    Reader::Direct => format!(
                        "they ring {0}'s register, and {0} reads the queues itself (--way direct; \
                         auto takes a CPU thread, until hardware was tried)",
                        nic.name
                    ),
                    Reader::Proxy | Reader::Bounce => format!(
                        "a CPU thread of the software NIC reads them there, and posts to {} for them",
                        nic.name
                    ),
                });
                self.verdict = Some(reader);
            }
        }
        match &survey.memory {
            Ok(taken) => {
                let (how, place) = (taken.route, place(gpu, found));
                let step =
                    format!("{} reads and writes {}'s memory: {how}{place}", nic.name, gpu.name);
                self.step(step);
                if pairing.is_some_and(Pairing::is_indirect) {
                    self.held_back(format!("memory is registered by way of {}", taken.explain()));
                }
            }
            Err(why) => {
                self.held_back(format!("{}'s memory is not registered: {}", gpu.name, why.why));
                if survey.bounce == Some(true) {
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
        match nic.active() {
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
            (None, _) => self.held_back(format!("no GID of {}:{} in sysfs", nic.name, port.number)),
            _ => {}
        }
    }

    fn two_gpus(&mut self, root: &Root, one: &Found, other: &Found) {
        if one.name == other.name {
            return self.gpu_and_soft(one);
        }
        if one.kind != other.kind {
            self.step("the software NIC copies through pinned host memory");
            return self.held_back("devices of two kinds do not map each other's memory");
        }
        let slot = |gpu: &Found| {
            gpu.info.as_ref().and_then(|info| Slot::at(root.path(), info.pci.as_deref()?))
        };
        let far = slot(one).zip(slot(other)).map_or(Distance::Unknown, |(a, b)| a.distance(&b));
        match peers(one, other) {
            Ok(()) => self.step(format!(
                "{}'s copy engine writes into {}: by NVLink or xGMI if there is one, else {}",
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
        if let (Some(a), Some(b)) = (one.active(), other.active()) {
            match a.address.zip(b.address).map(|(own, peer)| own.check(&one.name, &peer)) {
                Some(Err(error)) => self.held_back(error.to_string()),
                _ => self.step(format!(
                    "{} sends over {} ({}) to {} ({})",
                    one.name, a.link_layer, a.rate, other.name, b.rate
                )),
            }
            if a.rate != b.rate {
                self.held_back("the slower of the two rates, and what lies between them");
            }
        }
        self.nic_is_less(one);
        self.nic_is_less(other);
    }

    fn nic_and_soft(&mut self, nic: &Device) {
        match nic.active().and_then(|port| port.address) {
            Some(address) if address.udp().is_some() => {
                self.step(format!("{} and the software NIC speak RoCEv2 over UDP", nic.name));
            }
            Some(address) => {
                let name = &nic.name;
                self.held_back(format!("no way: {name} speaks no RoCEv2, it is {address}"));
            }
            // Said below.
            None => {}
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
    use warpverbs::transport::{Reason, RegistrationPath};

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
            add(&root, &format!("{base}/ports/1/lid"), "0x7\n");
            add(&root, &format!("{base}/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
            let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001\n";
            add(&root, &format!("{base}/ports/1/gids/0"), gid);
            add(&root, &format!("{base}/ports/1/gid_attrs/types/0"), "RoCE v2\n");
            add(&root, &format!("sys/class/infiniband_verbs/u{name}/ibdev"), name);
            add(&root, &format!("dev/infiniband/u{name}"), "");
        }
        let mut report = crate::doctor::report(&root);
        // In place of those of the machine that runs the test.
        report.gpus.retain(|gpu| gpu.kind != GpuKind::Cuda);
        report.gpus.push(cuda(0, "0000:05:00.0"));
        let row = |gpu: &str, nic: &str, survey| Pairing::new(gpu, nic, Distance::Unknown, survey);
        let queues = Err(Reason::new("queues", "rxe0 is not an mlx5 device"));
        report.rdma.gpu_memory = vec![
            row("cuda:0", "mlx5_0", survey(RegistrationPath::Dmabuf)),
            row("simt", "mlx5_0", survey(RegistrationPath::Host)),
            row(
                "simt",
                "rxe0",
                DeviceSurvey { queues, register: None, ..survey(RegistrationPath::Host) },
            ),
            row(
                "cuda:0",
                "mlx5_1",
                DeviceSurvey {
                    memory: Err(Reason::new("memory", "no module is loaded")),
                    bounce: Some(true),
                    ..survey(RegistrationPath::Host)
                },
            ),
        ];
        (dir, root, report)
    }

    /// Everything works.
    fn survey(by: RegistrationPath) -> DeviceSurvey {
        let register = Some(Ok(()));
        let memory = Ok(Decision::best(by));
        DeviceSurvey { kernels: Ok(()), queues: Ok(()), register, memory, bounce: None }
    }

    fn shown(from: &str, to: &str) -> (String, String) {
        let way = verdict(from, to, |_, _| {});
        (way.steps.join("\n"), way.held_back_by.join("\n"))
    }

    fn reader(path: &Path) -> Option<Reader> {
        path.verdict.as_ref().map(|verdict| verdict.route)
    }

    /// The way on a machine to which `change` was done.
    fn verdict(from: &str, to: &str, change: impl FnOnce(&Root, &mut Report)) -> Path {
        let (_dir, root, mut report) = machine();
        report.limits.memlock_bytes = crate::doctor::system::Limit(None);
        change(&root, &mut report);
        way(&root, &report, [from, to]).unwrap()
    }

    /// All that the direct way needs.
    fn furnish(root: &Root, _: &mut Report) {
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
        assert_eq!(reader(&way), Some(Reader::Direct), "{held_back}");
        assert!(steps.contains("dmabuf, through PCIe switches only"), "{steps}");
        assert!(steps.contains("mlx5_0 reads the queues itself"), "{steps}");
        assert_eq!(held_back, "");
        let back = verdict("mlx5_0", "cuda", furnish);
        assert_eq!((back.verdict, back.steps.join("\n")), (way.verdict, steps), "both directions");
    }

    #[test]
    fn the_proxy_comes_with_what_stands_in_the_direct_way() {
        let why = "no such address";
        let way = verdict("cuda:0", "mlx5_0", |root, report| {
            furnish(root, report);
            add(root, "proc/driver/nvidia/params", "RegistryDwords: \"\"\n");
            report.rdma.gpu_memory[0].survey.register = Some(Err(Reason::new("the register", why)));
        });
        assert_eq!(reader(&way), Some(Reader::Proxy));
        assert!(way.steps.join("\n").contains("a CPU thread"), "{:?}", way.steps);
        let [held_back] = &way.held_back_by[..] else { panic!("{:?}", way.held_back_by) };
        for part in ["without PeerMappingOverride", why] {
            assert!(held_back.contains(part), "{held_back}");
        }
        // Kernels of the CPU need no register in a GPU.
        assert_eq!(reader(&verdict("simt", "mlx5_0", |_, _| {})), Some(Reader::Direct));
        let soft = verdict("simt", "rxe0", |_, _| {});
        assert_eq!(reader(&soft), Some(Reader::Proxy));
        assert!(soft.held_back_by.join("\n").contains("only mlx5 devices"), "{soft:?}");
        let copied = verdict("cuda:0", "mlx5_1", furnish);
        assert_eq!(reader(&copied), Some(Reader::Bounce));
    }

    #[test]
    fn a_device_to_which_kernels_cannot_post_has_no_verdict() {
        let way = verdict("cuda:0", "mlx5_0", |root, report| {
            furnish(root, report);
            report.rdma.gpu_memory[0].survey.kernels = Err(Reason::new("kernels", "no order"));
        });
        let (steps, held_back) = (way.steps.join("\n"), way.held_back_by.join("\n"));
        assert_eq!(way.verdict, None);
        assert!(!steps.contains("queues") && steps.contains("reads and writes"), "{steps}");
        assert!(held_back.contains("kernels cannot post to mlx5_0: no order"), "{held_back}");
        // libibverbs drives no such device.
        let way = verdict("simt", "mlx5_1", |_, _| {});
        assert!(way.verdict.is_none() && way.steps.is_empty(), "{way:?}");
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
        let (steps, held_back) = shown("mlx5_0", "mlx5_1");
        assert!(held_back.contains("no way from mlx5_0 (RoCEv2 at GID"), "{held_back}");
        assert!(held_back.contains("InfiniBand at LID 7") && steps.is_empty(), "{held_back}");
        let held_back = shown("soft-bnxt", "mlx5_1").1;
        assert!(held_back.contains("no way: mlx5_1 speaks no RoCEv2"), "{held_back}");
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
        let error = way(&root, &report, ["cuda:0", "mlx5_9"]).unwrap_err().to_string();
        for name in ["mlx5_9", "cuda:0", "simt", "soft, soft-bnxt, soft-ionic", "rxe0"] {
            assert!(error.contains(name), "{error}");
        }
    }
}
