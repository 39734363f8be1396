//! `warpverbs doctor tcp`: what kernel and NICs lack for device-memory TCP, and the commands that set
//! them up.

use super::root::Root;
use serde::Serialize;
use warpverbs_devmem::kernel::{Ethtool, Interface, Netdev, Operation, Rings};

#[derive(Debug, Serialize)]
pub(super) struct Tcp {
    schema: u32,
    pub(super) kernel: Kernel,
    pub(super) interfaces: Vec<Nic>,
    /// The way that payload takes now.
    pub(super) verdict: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Kernel {
    pub(super) release: String,
    /// Whether a dmabuf can be bound for receiving, and for sending, given a NIC that can do it.
    pub(super) receive: bool,
    pub(super) send: bool,
    /// Whether io_uring receives without copies, by the kernel's release. Not used yet.
    pub(super) zero_copy: bool,
    /// Missing features; one line each, with advice.
    pub(super) lacks: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Nic {
    pub(super) name: String,
    pub(super) driver: Option<String>,
    pub(super) receive_queues: usize,
    pub(super) ring: Option<u32>,
    pub(super) ring_max: Option<u32>,
    pub(super) header_split: Option<bool>,
    pub(super) split_threshold: Option<u32>,
    pub(super) lacks: Vec<String>,
    /// In the order in which to run them.
    pub(super) commands: Vec<String>,
}

/// Drivers that receive into device memory, and since which release of Linux; by the dates of the
/// changes, for hardware that splits headers.
const DRIVERS: [(&str, (u32, u32)); 4] =
    [("bnxt_en", (6, 16)), ("mlx5_core", (6, 17)), ("gve", (6, 18)), ("fbnic", (6, 18))];
/// The core of receiving and of sending.
const RECEIVE_SINCE: &str = "6.12";
const SEND_SINCE: &str = "6.16";
const ZERO_COPY_SINCE: (u32, u32) = (6, 15);
/// Memory for the completions of sends and for control messages, per socket.
const OPTMEM: u64 = 128 << 10;

pub(super) fn tcp(root: &Root, schema: u32) -> Tcp {
    let kernel = kernel(root);
    let mut ethtool = Ethtool::open().ok();
    let names = root.list("sys/class/net");
    let interfaces = names.iter().filter_map(|name| {
        let index = root.read(format!("sys/class/net/{name}/ifindex"))?.parse().ok()?;
        let interface = Interface { index, name: name.clone() };
        let rings = ethtool.as_mut().and_then(|ethtool| ethtool.rings(&interface).ok());
        Some(nic(root, &kernel.release, name, rings.unwrap_or_default()))
    });
    let interfaces: Vec<_> = interfaces.collect();
    let ready = interfaces.iter().find(|nic| nic.lacks.is_empty() && kernel.lacks.is_empty());
    let verdict = match ready {
        Some(nic) => format!("{} can receive into device memory", nic.name),
        None => "no interface receives into device memory: payload goes through pinned host memory"
            .to_owned(),
    };
    Tcp { schema, kernel, interfaces, verdict }
}

fn kernel(root: &Root) -> Kernel {
    let release = root.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut lacks = Vec::new();
    let netdev = Netdev::open().map_err(|error| lacks.push(error.to_string())).ok();
    let has = |operation| netdev.as_ref().is_some_and(|netdev| netdev.has(operation));
    let (receive, send) = (has(Operation::Receive), has(Operation::Send));
    if !receive {
        lacks.push(format!(
            "{release} cannot bind memory for receiving: install Linux {RECEIVE_SINCE} or newer"
        ));
    }
    if !send {
        lacks.push(format!(
            "{release} cannot send from device memory: install Linux {SEND_SINCE} or newer"
        ));
    }
    let optmem = root.read("proc/sys/net/core/optmem_max").and_then(|text| text.parse().ok());
    if let Some(bytes) = optmem.filter(|bytes: &u64| *bytes < OPTMEM) {
        lacks.push(format!(
            "net.core.optmem_max is {bytes}, few sends fit: `sysctl -w net.core.optmem_max={OPTMEM}`"
        ));
    }
    let disabled = root.read("proc/sys/kernel/io_uring_disabled").is_some_and(|text| text == "2");
    let zero_copy = !disabled && version(&release).is_some_and(|found| found >= ZERO_COPY_SINCE);
    Kernel { release, receive, send, zero_copy, lacks }
}

/// `6.12` of `6.12.107+deb12-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn nic(root: &Root, release: &str, name: &str, rings: Rings) -> Nic {
    let folder = root.join(format!("sys/class/net/{name}/device/driver"));
    let driver = std::fs::read_link(folder).ok();
    let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let queues = root.list(format!("sys/class/net/{name}/queues"));
    let receive_queues = queues.iter().filter(|queue| queue.starts_with("rx-")).count();
    let Rings { receive, receive_max, header_split, split_threshold } = rings;
    let (mut lacks, mut commands) = (Vec::new(), Vec::new());
    let known = driver.as_ref().and_then(|name| DRIVERS.iter().find(|(known, _)| known == name));
    match (&driver, known) {
        (None, _) => lacks.push("no hardware is behind it, so no NIC writes to memory".to_owned()),
        (Some(driver), None) => {
            lacks.push(format!("its driver {driver} does not receive into device memory"))
        }
        (Some(driver), Some((_, since)))
            if version(release).is_some_and(|found| found < *since) =>
        {
            lacks.push(format!(
                "its driver {driver} can do it from Linux {}.{} on",
                since.0, since.1
            ));
        }
        (Some(_), Some(_)) => commands = setup(name, receive_queues, rings, &mut lacks),
    }
    let (ring, ring_max) = (receive, receive_max);
    let name = name.to_owned();
    Nic {
        name,
        driver,
        receive_queues,
        ring,
        ring_max,
        header_split,
        split_threshold,
        lacks,
        commands,
    }
}

/// Commands for an interface whose driver can do it; what is missing so far goes to `lacks`.
fn setup(name: &str, queues: usize, rings: Rings, lacks: &mut Vec<String>) -> Vec<String> {
    let mut commands = Vec::new();
    if rings.header_split != Some(true) {
        lacks.push("header split is off".to_owned());
        commands.push(format!("ethtool -G {name} tcp-data-split on"));
    }
    if rings.split_threshold.is_some_and(|bytes| bytes != 0) {
        lacks.push("small packets are not split".to_owned());
        commands.push(format!("ethtool -G {name} hds-thresh 0"));
    }
    if let (Some(now), Some(most)) = (rings.receive, rings.receive_max)
        && now < most
    {
        commands.push(format!("ethtool -G {name} rx {most}"));
    }
    if queues < 2 {
        lacks.push("it has one receive queue; device memory needs one of its own".to_owned());
        commands.push(format!("ethtool -L {name} combined 2"));
    }
    let last = queues.max(2) - 1;
    commands.push(format!("ethtool -X {name} equal {last}"));
    commands.push(format!("ethtool -K {name} ntuple on"));
    commands.push(format!("ethtool -N {name} flow-type tcp4 dst-port PORT action {last}"));
    commands
}

pub(super) fn text(tcp: &Tcp) -> String {
    let kernel = &tcp.kernel;
    let word = |holds| if holds { "yes" } else { "no" };
    let mut out = format!(
        "{}\n\nLinux {}: binds memory for receiving: {}, for sending: {}\nio_uring receives without \
         copies: {} (not used)\n",
        tcp.verdict,
        kernel.release,
        word(kernel.receive),
        word(kernel.send),
        word(kernel.zero_copy)
    );
    for line in &kernel.lacks {
        out += &format!("  - {line}\n");
    }
    for nic in &tcp.interfaces {
        let driver = nic.driver.as_deref().unwrap_or("none");
        out += &format!("\n{}: driver {driver}, {} receive queues\n", nic.name, nic.receive_queues);
        for line in &nic.lacks {
            out += &format!("  - {line}\n");
        }
        if !nic.commands.is_empty() {
            out += "  as root, PORT being the listener's:\n";
        }
        for line in &nic.commands {
            out += &format!("    {line}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::root;
    use super::*;

    fn machine(driver: &str, queues: usize) -> (tempfile::TempDir, Root) {
        let (dir, root) = root::fake(&[("sys/class/net/eth0/ifindex", "2\n")]);
        for queue in 0..queues {
            root::add(&root, &format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus"), "0\n");
        }
        root::add(&root, &format!("sys/bus/pci/drivers/{driver}/bind"), "");
        root::link(
            &root,
            "sys/class/net/eth0/device/driver",
            &format!("sys/bus/pci/drivers/{driver}"),
        );
        (dir, root)
    }

    #[test]
    fn a_nic_that_can_do_it_gets_its_commands() {
        let (_dir, root) = machine("mlx5_core", 8);
        let rings = Rings {
            receive: Some(1024),
            receive_max: Some(8192),
            header_split: Some(false),
            split_threshold: None,
        };
        let found = nic(&root, "6.18.1-cloud", "eth0", rings);
        assert_eq!(found.lacks, ["header split is off"]);
        let expected = [
            "ethtool -G eth0 tcp-data-split on",
            "ethtool -G eth0 rx 8192",
            "ethtool -X eth0 equal 7",
            "ethtool -K eth0 ntuple on",
            "ethtool -N eth0 flow-type tcp4 dst-port PORT action 7",
        ];
        assert_eq!(found.commands, expected);
        let ready = Rings { receive: Some(8192), header_split: Some(true), ..rings };
        assert!(nic(&root, "6.18.1", "eth0", ready).lacks.is_empty());
    }

    #[test]
    fn what_a_driver_or_kernel_lacks_is_one_line() {
        let lacks = |driver, release| {
            let (_dir, root) = machine(driver, 1);
            let found = nic(&root, release, "eth0", Rings::default());
            assert!(found.commands.is_empty());
            found.lacks.join("\n")
        };
        assert_eq!(
            lacks("virtio_net", "6.18.0"),
            "its driver virtio_net does not receive into device memory"
        );
        assert_eq!(
            lacks("gve", "6.12.107+deb12-amd64"),
            "its driver gve can do it from Linux 6.18 on"
        );
        let (_dir, root) = root::fake(&[("sys/class/net/lo/ifindex", "1\n")]);
        assert!(nic(&root, "6.18.0", "lo", Rings::default()).lacks[0].contains("no hardware"));
    }
}
