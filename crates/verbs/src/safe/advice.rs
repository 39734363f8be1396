//! Advice about a failure: one line, from facts of this machine.
//!
//! The kernel's error numbers are few, and in containers the cause lies outside of the program: a
//! device node that was not passed in, a limit, a capability. Nothing here is asked for unless a
//! call has failed.

use crate::CallError;
use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::fs;
use std::path::{Path, PathBuf};

/// Where libibverbs' drivers are looked for by the distributions.
const DRIVERS: [&str; 4] = [
    "usr/lib/x86_64-linux-gnu/libibverbs",
    "usr/lib/aarch64-linux-gnu/libibverbs",
    "usr/lib64/libibverbs",
    "usr/lib/libibverbs",
];

/// The rights and limits of this process, and the files that the kernel shows it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    root: PathBuf,
    /// Bytes this process may lock; absent if there is no limit.
    locked: Option<u64>,
    /// `CAP_IPC_LOCK`, which lifts that limit.
    may_lock: bool,
    /// In a user namespace of its own, where the capability does not count.
    own_users: bool,
}

impl Facts {
    pub(super) fn of_this_process() -> Self {
        let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(RLIM_INFINITY, |(soft, _)| soft);
        Self::below(Path::new("/"), (limit != RLIM_INFINITY).then_some(limit))
    }

    fn below(root: &Path, locked: Option<u64>) -> Self {
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
        let status = read("proc/self/status");
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let bits = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        let map = read("proc/self/uid_map");
        let whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
        Self {
            root: root.to_owned(),
            locked,
            may_lock: bits.unwrap_or(0) & CAP_IPC_LOCK != 0,
            own_users: !map.is_empty() && !whole,
        }
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

/// `1 << CAP_IPC_LOCK` of `linux/capability.h`.
const CAP_IPC_LOCK: u64 = 1 << 14;

/// Advice about `error`, if there is any.
pub(super) fn on_call(error: &CallError, facts: &Facts) -> Option<String> {
    match (error.call, error.errno) {
        ("ibv_get_device_list", _) => Some(on_no_devices(facts)),
        ("ibv_reg_mr" | "ibv_create_cq" | "ibv_create_qp" | "ibv_create_srq", Errno::ENOMEM) => {
            Some(on_locked_memory(facts))
        }
        (call, Errno::EAGAIN) if !call.starts_with("ibv_get") => Some(
            "the control group has reached its limit of RDMA objects: see rdma.max and rdma.current \
             in its folder"
                .to_owned(),
        ),
        ("ibv_reg_mr", Errno::EFAULT) => Some(
            "these addresses are not mapped here, or are memory of a GPU that no kernel module \
             offers to NICs (nvidia_peermem); a dmabuf may do"
                .to_owned(),
        ),
        ("ibv_reg_dmabuf_mr", Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EPROTONOSUPPORT) => Some(
            "dmabufs need rdma-core 34, Linux 5.12 and a driver that takes them (mlx5, irdma, \
             bnxt_re, efa)"
                .to_owned(),
        ),
        _ => None,
    }
}

fn on_locked_memory(facts: &Facts) -> String {
    let Some(limit) = facts.locked.filter(|_| !facts.may_lock || facts.own_users) else {
        return "locked memory is not limited here, so the host or the device has no more: see \
                `rdma resource show`"
            .to_owned();
    };
    let capability = match (facts.may_lock, facts.own_users) {
        (true, _) => "CAP_IPC_LOCK does not count inside a user namespace",
        (false, true) => "inside a user namespace CAP_IPC_LOCK would not help",
        (false, false) => "there is no CAP_IPC_LOCK",
    };
    format!(
        "this process may lock {limit} bytes and {capability}: raise it with `ulimit -l unlimited`, \
         in a systemd unit LimitMEMLOCK=infinity, for a container --ulimit memlock=-1"
    )
}

/// Why there is no device at all.
pub(super) fn on_no_devices(facts: &Facts) -> String {
    let devices = facts.names("sys/class/infiniband");
    if devices.is_empty() {
        return "the kernel has none in /sys/class/infiniband: is the NIC's RDMA driver loaded on \
                the host (mlx5_ib, bnxt_re, irdma, efa; rdma_rxe for soft-RoCE)?"
            .to_owned();
    }
    let devices = devices.join(", ");
    let nodes = facts.names("sys/class/infiniband_verbs");
    let nodes: Vec<_> = nodes.iter().filter(|name| name.starts_with("uverbs")).collect();
    if nodes.is_empty() && facts.exists("sys/class/infiniband_verbs") {
        return format!(
            "the kernel is removing {devices}, which takes until no program has it open"
        );
    }
    if nodes.is_empty() {
        return format!(
            "the kernel has {devices}, but not the module ib_uverbs: load it on the host"
        );
    }
    if !nodes.iter().any(|name| facts.exists(&format!("dev/infiniband/{name}"))) {
        return format!(
            "the kernel has {devices}, but there is no /dev/infiniband/{}: start the container with \
             --device=/dev/infiniband, or ask the RDMA device plugin of the cluster for one",
            nodes[0]
        );
    }
    let drivers: Vec<_> = DRIVERS.iter().filter(|folder| facts.exists(folder)).collect();
    match drivers.first() {
        None => format!(
            "the kernel has {devices}, but there are no drivers of libibverbs here: install \
             ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL), also in a container"
        ),
        Some(folder) => format!(
            "the kernel has {devices}, but none of the drivers in /{folder} knows them: rdma-core is \
             older than the device, or the vendor has a driver of its own"
        ),
    }
}

/// Why a device that is listed does not open.
pub(super) fn on_open(error: &CallError, node: &str, facts: &Facts) -> Option<String> {
    let path = format!("dev/infiniband/{node}");
    if !facts.exists(&path) {
        return Some(format!(
            "there is no /{path}: start the container with --device=/dev/infiniband"
        ));
    }
    match error.errno {
        Errno::EACCES => Some(format!(
            "this user may not read and write /{path}: be root, or of the group that owns it"
        )),
        Errno::EPERM => Some(format!(
            "the container's device rules forbid /{path}: start it with --device=/dev/infiniband"
        )),
        Errno::ENODEV | Errno::ENXIO | Errno::EIO => {
            Some(format!("/{path} has no device behind it any more: was the driver reloaded?"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[&str]) -> (tempfile::TempDir, Facts) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let facts = Facts::below(dir.path(), Some(65536));
        (dir, facts)
    }

    #[test]
    fn each_reason_for_no_device_has_its_line() {
        let mut files = Vec::new();
        let mut step = |file, words: &str| {
            let line = on_no_devices(&machine(&files).1);
            assert!(line.contains(words), "{words:?} is not in {line:?}");
            files.push(file);
        };
        step("sys/class/infiniband/mlx5_0/x", "driver loaded on the host");
        step("sys/class/infiniband_verbs/abi_version", "mlx5_0, but not the module ib_uverbs");
        step("sys/class/infiniband_verbs/uverbs0/dev", "is removing mlx5_0");
        step("dev/infiniband/uverbs0", "no /dev/infiniband/uverbs0: start the container");
        step("usr/lib64/libibverbs/libmlx4.so", "install ibverbs-providers");
        step("", "none of the drivers in /usr/lib64/libibverbs knows them");
    }

    #[test]
    fn a_device_that_does_not_open_has_its_line() {
        let error = |errno| CallError { call: "ibv_open_device", errno };
        let (_dir, without) = machine(&[]);
        let (_dir, with) = machine(&["dev/infiniband/uverbs3"]);
        let line = |errno, facts| on_open(&error(errno), "uverbs3", facts).unwrap_or_default();
        assert!(line(Errno::ENOENT, &without).contains("--device=/dev/infiniband"));
        assert!(
            line(Errno::EACCES, &with).contains("may not read and write /dev/infiniband/uverbs3")
        );
        assert!(line(Errno::EPERM, &with).contains("device rules"));
        assert!(line(Errno::ENODEV, &with).contains("was the driver reloaded"));
        assert_eq!(line(Errno::ENOMEM, &with), "");
    }

    #[test]
    fn locked_memory_is_blamed_only_where_it_is_limited() {
        let error = CallError { call: "ibv_reg_mr", errno: Errno::ENOMEM };
        let line = |status: &str, map: &str, locked| {
            let (dir, _) = machine(&["proc/self/status"]);
            fs::write(dir.path().join("proc/self/status"), status).unwrap();
            fs::write(dir.path().join("proc/self/uid_map"), map).unwrap();
            on_call(&error, &Facts::below(dir.path(), locked)).unwrap()
        };
        let (none, all) = ("Name:\tx\nCapEff:\t0000000000000000\n", "CapEff:\t000001ffffffffff\n");
        let (host, inside) = ("         0          0 4294967295\n", "0 100000 65536\n");
        let limited = line(none, host, Some(65536));
        assert!(limited.contains("65536 bytes") && limited.contains("ulimit -l"), "{limited}");
        assert!(limited.contains("no CAP_IPC_LOCK"), "{limited}");
        assert!(line(all, host, Some(65536)).contains("rdma resource show"));
        assert!(line(none, host, None).contains("rdma resource show"));
        assert!(line(all, inside, Some(65536)).contains("does not count inside a user namespace"));
        assert!(line(none, inside, Some(65536)).contains("would not help"));
    }

    #[test]
    fn failures_of_registration_are_told_apart() {
        let (_dir, facts) = machine(&[]);
        let line = |call, errno| on_call(&CallError { call, errno }, &facts);
        assert!(line("ibv_reg_mr", Errno::EFAULT).unwrap().contains("nvidia_peermem"));
        assert!(line("ibv_reg_dmabuf_mr", Errno::EOPNOTSUPP).unwrap().contains("Linux 5.12"));
        assert!(line("ibv_create_qp", Errno::EAGAIN).unwrap().contains("rdma.max"));
        assert_eq!(line("ibv_get_cq_event", Errno::EAGAIN), None);
        assert_eq!(line("ibv_reg_mr", Errno::EINVAL), None);
        assert_eq!(line("ibv_alloc_pd", Errno::ENOMEM), None);
    }
}
