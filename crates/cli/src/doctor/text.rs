//! The report for people: sections of aligned label and value.

use super::path::Path;
use super::{Report, gpu, rdma, shared, system};
use warpverbs::gpu::{GpuInfo, GpuKind};
use warpverbs_bench::units;

/// Lines below one heading.
struct Section {
    title: &'static str,
    rows: Vec<(String, String)>,
}

impl Section {
    fn new(title: &'static str) -> Self {
        Self { title, rows: Vec::new() }
    }

    fn row(&mut self, label: impl Into<String>, value: impl Into<String>) {
        self.rows.push((label.into(), value.into()));
    }
}

pub(super) fn render(report: &Report) -> String {
    let sections = [
        auto(report),
        gpus(report),
        cuda(report),
        hip(report),
        compiled(report),
        rdma(&report.rdma),
        shared_memory(report),
        machine(report),
        limits(&report.limits),
    ];
    let width =
        sections.iter().flat_map(|s| &s.rows).map(|(l, _)| l.chars().count()).max().unwrap_or(0);
    let mut out = format!("warpverbs {} on {}\n", report.version, report.kernel);
    for section in sections {
        out += &format!("\n{}\n", section.title);
        for (label, value) in section.rows {
            let indent = format!("\n  {:width$}  ", "");
            out += &format!("  {label:width$}  {}\n", value.trim_end().replace('\n', &indent));
        }
    }
    out
}

fn auto(report: &Report) -> Section {
    let mut section = Section::new("Choices of auto");
    for (flag, choice) in [("--gpu auto", &report.auto.gpu), ("--nic auto", &report.auto.nic)] {
        let mut text = format!("{}: {}", choice.choice.as_deref().unwrap_or("nothing"), choice.why);
        text.extend(choice.not_better.iter().map(|reason| format!("\nnot {reason}")));
        section.row(flag, text);
    }
    section
}

fn gpus(report: &Report) -> Section {
    let mut section = Section::new("Where kernels can run");
    for device in &report.gpus {
        let text = match (&device.info, &device.unusable) {
            (None, why) => format!("no: {}", why.as_deref().unwrap_or("no reason known")),
            (Some(info), why) => {
                let verdict = why.as_ref().map_or("yes".to_owned(), |why| format!("no: {why};"));
                format!(
                    "{verdict}: {}, {}, {} multiprocessors, warps of {}, {}",
                    info.name,
                    info.arch,
                    info.sm_count,
                    info.warp_size,
                    units::bytes(info.memory_bytes)
                )
            }
        };
        section.row(&device.name, text);
    }
    section
}

fn cuda(report: &Report) -> Section {
    let mut section = Section::new("CUDA");
    section.row("driver", library(&report.cuda.driver));
    section.row("NVRTC", library(&report.cuda.nvrtc));
    section
}

fn hip(report: &Report) -> Section {
    let mut section = Section::new("HIP");
    let gpu::Hip { runtime, hiprtc, kernel_driver } = &report.hip;
    section.row("run time", library(runtime));
    section.row("HIPRTC", library(hiprtc));
    let driver = kernel_driver.why_not.as_ref().map(|why| format!("no: {why}"));
    section.row("kernel driver", driver.unwrap_or_else(|| "/dev/kfd".to_owned()));
    let found = report.gpus.iter().filter(|gpu| gpu.kind == GpuKind::Hip);
    for info in found.filter_map(|gpu| gpu.info.as_ref()) {
        section.row(format!("memory of hip:{}", info.ordinal), hip_memory(info));
    }
    section
}

/// How the library allocates on a device, how that is reached, and whether the device is an emulator.
fn hip_memory(info: &GpuInfo) -> String {
    let arenas = match info.shareable {
        true => "arenas (symmetric heaps): uncached, shared by descriptors",
        false => "no arenas, so no symmetric heaps: uncached mappings need HIP 7.1",
    };
    let dmabuf = match info.dmabuf {
        true => "dmabufs for NICs",
        false => "no dmabufs for NICs: they need ROCm 5.5 (HSA) or HIP 7.0",
    };
    let what = format!("uncached, shared by IPC handles\n{arenas}\n{dmabuf}");
    match info.is_emulated() {
        true => format!(
            "{what}\nan emulator, which runs its machine code on the CPU: no AMD GPU is used"
        ),
        false => what,
    }
}

fn library(library: &gpu::Library) -> String {
    match (&library.version, &library.path, &library.why_not) {
        (Some(version), Some(path), _) => format!("{version}, {path}"),
        (Some(version), None, _) => version.clone(),
        (None, _, Some(why)) => format!("no: {why}"),
        (None, ..) => "no".to_owned(),
    }
}

fn compiled(report: &Report) -> Section {
    let mut section = Section::new("Compiled kernels");
    let cache = &report.compile_cache;
    section.row(
        "cache",
        match &cache.path {
            None => cache.state.to_owned(),
            Some(path) if cache.entries == 0 => format!("{path}, {}", cache.state),
            Some(path) => format!(
                "{path}, {}, {} kernel images, {}",
                cache.state,
                cache.entries,
                units::bytes(cache.bytes)
            ),
        },
    );
    section
}

fn rdma(rdma: &rdma::Rdma) -> Section {
    let mut section = Section::new("RDMA devices");
    if rdma.devices.is_empty() {
        section.row("none", "nothing in /sys/class/infiniband; the software NIC needs nothing");
    }
    for device in &rdma.devices {
        section.row(&device.name, rdma_device(device));
    }
    let library = &rdma.library;
    section.row(
        "libibverbs",
        match (&library.file, &library.why_not, &library.no_device) {
            (Some(file), _, Some(why)) => format!("{file} finds no device: {why}"),
            (Some(file), _, None) => format!("{file} drives {}", library.devices.join(", ")),
            (None, why, _) => why.clone().unwrap_or_else(|| "no".to_owned()),
        },
    );
    if rdma.devices.is_empty() {
        return section;
    }
    section.row("provider", rdma.provider);
    section.row("nvidia_peermem", if rdma.peer_memory { "loaded" } else { "not loaded" });
    for reach in &rdma.gpu_memory {
        let way = match (&reach.how, &reach.why) {
            (_, Some(why)) if reach.how.is_none() => {
                let copied = "; if asked to bounce, by copies through host memory";
                format!("no: {why}{}", if reach.bounce == Some(true) { copied } else { "" })
            }
            (_, Some(why)) => why.clone(),
            (how, None) => how.clone().unwrap_or_default(),
        };
        let text = format!("{way}; {}", reach.distance.words());
        section.row(format!("{} in {}", reach.gpu, reach.nic), text);
    }
    section
}

fn rdma_device(device: &rdma::Device) -> String {
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    let mut text = match &device.parent {
        Some(parent) => format!("software, on {parent}"),
        None => format!(
            "{}, firmware {}, driver {}",
            word(&device.hca_type),
            word(&device.firmware),
            word(&device.driver)
        ),
    };
    if let Some(slot) = &device.pci {
        let node = slot.numa_node.map_or(String::new(), |node| format!(", NUMA node {node}"));
        text += &format!("\nPCI {}{node}, {}", slot.address, word(&slot.link));
        if let Some(could) = &slot.link_could {
            text += &format!(" (could be {could})");
        }
    }
    for port in &device.ports {
        text +=
            &format!("\nport {}: {}, {}, {}", port.number, port.state, port.link_layer, port.rate);
        for gid in &port.gids {
            let interface =
                gid.interface.as_ref().map_or(String::new(), |name| format!(", {name}"));
            let taken = port.gid_choice.as_ref().is_some_and(|choice| choice.index == gid.index);
            let mark = if taken { " (taken)" } else { "" };
            text +=
                &format!("\n  GID {}: {}, {}{interface}{mark}", gid.index, gid.address, gid.kind);
        }
    }
    if let Some(why) = &device.not_usable {
        text += &format!("\ncannot be opened: {why}");
    }
    text
}

/// The way between two devices.
pub(super) fn way(way: &Path) -> String {
    let reader = way.verdict.as_ref().map(|verdict| format!(": {}", verdict.route));
    let verdict = reader.unwrap_or_default();
    let mut out = format!("from {} to {}{verdict}\n", way.from, way.to);
    for (number, step) in way.steps.iter().enumerate() {
        out += &format!("  {}. {step}\n", number + 1);
    }
    if !way.checks.is_empty() {
        out += "\nthe direct way\n";
    }
    for check in &way.checks {
        let mark = match (&check.remedy, check.stops) {
            (_, true) => "STOPS",
            (Some(_), _) => "less ",
            (None, _) => "ok   ",
        };
        out += &format!("  {mark} {}: {}\n", check.what, check.found);
    }
    out += match way.held_back_by.is_empty() {
        true => "\nno known obstacle to a faster way\n",
        false => "\nheld back by\n",
    };
    for why in &way.held_back_by {
        out += &format!("  - {why}\n");
    }
    out
}

fn machine(report: &Report) -> Section {
    let mut section = Section::new("Machine");
    let cpu = &report.cpu;
    section.row(
        "CPU",
        format!("{}, {} cores for us", cpu.model.as_deref().unwrap_or("unknown model"), cpu.cores),
    );
    section.row("governor", cpu.governor.as_deref().unwrap_or("not readable"));
    let container = &report.container;
    if container.hints.is_empty() {
        section.row("container", "no sign of one");
    } else {
        section.row("container", container.hints.join(", "));
    }
    if let Some(cpus) = container.cpu_limit {
        section.row("CPU quota", format!("{cpus:.2} CPUs"));
    }
    if container.memory_limit_bytes.0.is_some() {
        section.row("memory limit", limit_bytes(container.memory_limit_bytes));
    }
    section
}

fn shared_memory(report: &Report) -> Section {
    let mut section = Section::new("Memory shared between processes (shmem)");
    let shared::Shared { survey, why_not, ptrace_scope } = &report.shared_memory;
    let works = |why: &Option<String>| why.clone().map_or("yes".to_owned(), |w| format!("no: {w}"));
    let Some(survey) = survey else {
        section.row("stores by kernels", works(why_not));
        return section;
    };
    section.row("stores by kernels", works(&survey.why_not));
    for tried in &survey.ways {
        let mut text = works(&tried.why_not);
        if let (true, Some(scope)) = (tried.way.starts_with("pidfd"), ptrace_scope) {
            text += &format!(" (of itself; kernel.yama.ptrace_scope is {scope})");
        }
        section.row(tried.way.clone(), text);
    }
    for gpu in &report.gpus {
        if let Some(info) = gpu.info.as_ref().filter(|_| gpu.unusable.is_none()) {
            let shares =
                if info.shareable { "yes" } else { "no: the driver exports no descriptors" };
            section.row(format!("memory of {}", gpu.name), shares);
        }
    }
    let identity = &survey.identity;
    let spaces = format!("{}, {}", identity.net_namespace, identity.pid_namespace);
    section.row("namespaces", spaces);
    section.row("boot id", identity.boot_id.clone());
    section
}

fn limits(limits: &system::Limits) -> Section {
    let mut section = Section::new("Limits");
    section.row(
        "locked memory",
        format!(
            "{} (hard {})",
            limit_bytes(limits.memlock_bytes),
            limit_bytes(limits.memlock_hard_bytes)
        ),
    );
    let number = |n: Option<u64>| n.map_or("not readable".to_owned(), |n| n.to_string());
    section
        .row("open files", limits.open_files.0.map_or("unlimited".to_owned(), |n| n.to_string()));
    section.row("memory maps", number(limits.max_map_count));
    let size = |n: Option<u64>| n.map_or("not readable".to_owned(), units::bytes);
    section.row(
        "memory",
        format!("{}, {} available", size(limits.memory_bytes), size(limits.memory_available_bytes)),
    );
    let pages = &limits.huge_pages;
    section.row(
        "huge pages",
        format!(
            "{} of {} free, {} each; transparent: {}",
            pages.free,
            pages.total,
            units::bytes(pages.size_bytes),
            pages.transparent.as_deref().unwrap_or("not readable")
        ),
    );
    section
}

fn limit_bytes(limit: system::Limit) -> String {
    limit.0.map_or("unlimited".to_owned(), units::bytes)
}
