//! Facts about CPU, limits and container, read from `/proc`, `/sys` and the C library.

use super::root::Root;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Cpu {
    /// Model name, if the system reports it.
    pub(crate) model: Option<String>,
    /// Cores this process may use.
    pub(crate) cores: usize,
    /// Frequency governor of the first core, if readable.
    pub(crate) governor: Option<String>,
}

/// A limit of this process in bytes; `null` in JSON is "unlimited".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Limit(pub(crate) Option<u64>);

#[derive(Debug, Serialize)]
pub(crate) struct Limits {
    pub(crate) memlock_bytes: Limit,
    pub(crate) memlock_hard_bytes: Limit,
    pub(crate) open_files: Limit,
    pub(crate) max_map_count: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    /// Memory that can be had without swapping.
    pub(crate) memory_available_bytes: Option<u64>,
    pub(crate) huge_pages: HugePages,
}

#[derive(Debug, Serialize)]
pub(crate) struct HugePages {
    /// Reserved by the administrator.
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) size_bytes: u64,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub(crate) transparent: Option<String>,
}

/// Whether this process runs in a container, and the limits of its control group.
#[derive(Debug, Serialize)]
pub(crate) struct Container {
    /// Signs of a container; empty outside of one.
    pub(crate) hints: Vec<String>,
    pub(crate) memory_limit_bytes: Limit,
    /// CPUs' worth of time the control group may use; `null` is all.
    pub(crate) cpu_limit: Option<f64>,
}

pub(crate) fn cpu(root: &Root) -> Cpu {
    let model = root.read("proc/cpuinfo").and_then(|text| field(&text, "model name"));
    Cpu {
        model,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        governor: root.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }
}

pub(crate) fn limits(root: &Root) -> Limits {
    let (soft, hard) = rlimit(Resource::RLIMIT_MEMLOCK);
    let meminfo = root.read("proc/meminfo").unwrap_or_default();
    let kib = |name| first_number(&field(&meminfo, name)?).map(|n| n * 1024);
    let pages = |name| field(&meminfo, name).as_deref().and_then(first_number).unwrap_or(0);
    Limits {
        memlock_bytes: soft,
        memlock_hard_bytes: hard,
        open_files: rlimit(Resource::RLIMIT_NOFILE).0,
        max_map_count: root.read("proc/sys/vm/max_map_count").as_deref().and_then(first_number),
        memory_bytes: kib("MemTotal"),
        memory_available_bytes: kib("MemAvailable"),
        huge_pages: HugePages {
            total: pages("HugePages_Total"),
            free: pages("HugePages_Free"),
            size_bytes: kib("Hugepagesize").unwrap_or(0),
            transparent: root
                .read("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| bracketed(&text)),
        },
    }
}

pub(crate) fn container(root: &Root) -> Container {
    let mut hints = Vec::new();
    for (path, hint) in [(".dockerenv", "/.dockerenv"), ("run/.containerenv", "/run/.containerenv")]
    {
        if root.exists(path) {
            hints.push(hint.to_owned());
        }
    }
    let groups = root.read("proc/1/cgroup").unwrap_or_default();
    for word in ["docker", "kubepods", "containerd", "libpod", "lxc"] {
        if groups.contains(word) {
            hints.push(format!("/proc/1/cgroup names {word}"));
        }
    }
    let quota = root.read("sys/fs/cgroup/cpu.max");
    Container {
        hints,
        memory_limit_bytes: Limit(
            root.read("sys/fs/cgroup/memory.max").as_deref().and_then(first_number),
        ),
        cpu_limit: quota.as_deref().and_then(cpu_share),
    }
}

pub(crate) fn kernel(root: &Root) -> String {
    let release = root.read("proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    format!("{} {release} {}", std::env::consts::OS, std::env::consts::ARCH)
}

fn rlimit(which: Resource) -> (Limit, Limit) {
    let limit = |n| Limit((n != RLIM_INFINITY).then_some(n));
    getrlimit(which)
        .map_or((Limit(Some(0)), Limit(Some(0))), |(soft, hard)| (limit(soft), limit(hard)))
}

/// Value of the first `name: value` line.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The chosen word of `always [madvise] never`.
fn bracketed(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// `quota period` of cgroup v2, `max` for no quota.
fn cpu_share(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::root::fake;

    #[test]
    fn limits_and_pages_are_read() {
        let (_dir, root) = fake(&[
            (
                "proc/meminfo",
                "MemTotal: 100 kB\nMemAvailable: 50 kB\nHugePages_Total: 8\nHugePages_Free: 3\nHugepagesize: 2048 kB\n",
            ),
            ("proc/sys/vm/max_map_count", "65530\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ]);
        let limits = limits(&root);
        assert_eq!(limits.memory_bytes, Some(102_400));
        assert_eq!(limits.memory_available_bytes, Some(51_200));
        assert_eq!(limits.max_map_count, Some(65530));
        let pages = limits.huge_pages;
        assert_eq!((pages.total, pages.free, pages.size_bytes), (8, 3, 2 << 20));
        assert_eq!(pages.transparent.as_deref(), Some("madvise"));
    }

    #[test]
    fn a_container_is_recognised_with_its_limits() {
        let (_dir, root) = fake(&[
            (".dockerenv", ""),
            ("proc/1/cgroup", "0::/kubepods/burstable/x\n"),
            ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ]);
        let container = container(&root);
        assert_eq!(container.hints.len(), 2);
        assert_eq!(container.cpu_limit, Some(1.5));
        assert_eq!(container.memory_limit_bytes, Limit(Some(1 << 30)));
    }

    #[test]
    fn a_machine_that_tells_nothing_is_described_all_the_same() {
        let (_dir, root) = fake(&[("sys/fs/cgroup/cpu.max", "max 100000\n")]);
        assert!(container(&root).hints.is_empty());
        assert_eq!(container(&root).cpu_limit, None);
        assert_eq!(cpu(&root).model, None);
        assert_eq!(limits(&root).huge_pages.total, 0);
        assert!(kernel(&root).contains("unknown"));
    }
}
