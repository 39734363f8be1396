//! Registering a GPU's memory: which ways there are, and which one it became.

use super::{Mr, Pd, Registration, VerbsError};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use thiserror::Error;
use warpverbs_mem::{HostBuf, Kind, Region};

/// How a device reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HowRegistered {
    /// Host memory, by its address.
    Host,
    /// A GPU's memory, as a dmabuf: the NIC reads and writes it across PCIe.
    Dmabuf,
    /// A GPU's memory by its address, which a kernel module of the GPU's vendor knows.
    PeerMemory,
    /// Pinned host memory instead of the GPU's: somebody copies between the two.
    Bounce,
}

impl fmt::Display for HowRegistered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host memory",
            Self::Dmabuf => "dmabuf",
            Self::PeerMemory => "peer memory module",
            Self::Bounce => "bounce through host memory",
        })
    }
}

/// A way that was not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTaken {
    /// The way.
    pub how: HowRegistered,
    /// The reason.
    pub why: String,
}

/// A GPU's memory could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{region} cannot be registered with {device}: {}", list(.tried))]
pub struct NotRegistered {
    /// The memory.
    pub region: String,
    /// The RDMA device.
    pub device: String,
    /// What was tried.
    pub tried: Vec<NotTaken>,
}

fn list(tried: &[NotTaken]) -> String {
    let lines: Vec<_> = tried.iter().map(|way| format!("{}: {}", way.how, way.why)).collect();
    lines.join("; ")
}

/// What may be tried for memory that the CPU does not reach.
pub struct GpuWays<'a> {
    /// Exports the region as a dmabuf: its descriptor and the region's offset in it, or why not.
    pub export: &'a dyn Fn() -> Result<(OwnedFd, u64), String>,
    /// The kernel module that lets NICs reach the GPU's memory, if it is loaded.
    pub peer_module: Option<&'static str>,
    /// Whether pinned host memory will do; whoever says so copies the bytes.
    pub bounce: bool,
}

/// Registered memory, and how it was registered.
#[derive(Debug)]
pub struct Registered {
    /// The registration. With [`HowRegistered::Bounce`] it is of other memory than was asked for.
    pub mr: Mr,
    /// The way.
    pub how: HowRegistered,
    /// Better ways that were not taken.
    pub not_taken: Vec<NotTaken>,
}

impl Registered {
    /// Registers `region` in the best way there is: host memory by its address; a GPU's as a dmabuf,
    /// else by a peer memory module, else, if that was asked for, host memory in its place.
    pub fn new(
        pd: &Pd,
        region: &Region,
        registration: Registration,
        ways: &GpuWays<'_>,
    ) -> Result<Self, VerbsError> {
        if region.kind() == Kind::Host {
            let mr = Mr::register(pd, region, registration)?;
            return Ok(Self { mr, how: HowRegistered::Host, not_taken: Vec::new() });
        }
        let mut tried = Vec::new();
        for (how, attempt) in WAYS {
            match attempt(pd, region, registration, ways) {
                Ok(mr) => return Ok(Self { mr, how, not_taken: tried }),
                Err(why) => tried.push(NotTaken { how, why }),
            }
        }
        let device = pd.context().device().name().to_owned();
        Err(NotRegistered { region: format!("{region:?}"), device, tried }.into())
    }

    /// One line: which way, and why none of the better ones.
    pub fn why(&self) -> String {
        match self.not_taken.len() {
            0 => self.how.to_string(),
            _ => format!("{} ({})", self.how, list(&self.not_taken)),
        }
    }
}

type Way = fn(&Pd, &Region, Registration, &GpuWays<'_>) -> Result<Mr, String>;

/// Best first.
const WAYS: [(HowRegistered, Way); 3] = [
    (HowRegistered::Dmabuf, dmabuf),
    (HowRegistered::PeerMemory, peer_memory),
    (HowRegistered::Bounce, bounce),
];

fn dmabuf(
    pd: &Pd,
    region: &Region,
    registration: Registration,
    ways: &GpuWays<'_>,
) -> Result<Mr, String> {
    let (fd, offset) = (ways.export)()?;
    Mr::register_dmabuf(pd, region, fd.as_fd(), offset, registration).map_err(|e| e.to_string())
}

fn peer_memory(
    pd: &Pd,
    region: &Region,
    registration: Registration,
    ways: &GpuWays<'_>,
) -> Result<Mr, String> {
    if ways.peer_module.is_none() {
        return Err(format!("no module of {} is loaded", PEER_MODULES.map(|m| m.0).join(", ")));
    }
    Mr::register(pd, region, registration).map_err(|e| e.to_string())
}

fn bounce(
    pd: &Pd,
    region: &Region,
    registration: Registration,
    ways: &GpuWays<'_>,
) -> Result<Mr, String> {
    if !ways.bounce {
        return Err("not asked for".to_owned());
    }
    let host = HostBuf::region(region.len()).map_err(|e| e.to_string())?;
    let host = host.slice(0, region.len()).map_err(|e| e.to_string())?;
    Mr::register(pd, &host, registration).map_err(|e| e.to_string())
}

/// Modules that give NICs a GPU's memory, and where sysfs shows them: `nvidia_peermem` with the
/// driver, `nv_peer_mem` before it, and AMD's part of the vendor's own RDMA stack.
const PEER_MODULES: [(&str, &str); 3] = [
    ("nvidia_peermem", "sys/module/nvidia_peermem"),
    ("nv_peer_mem", "sys/module/nv_peer_mem"),
    ("amdkfd", "sys/kernel/mm/memory_peers/amdkfd"),
];

/// The peer memory module for memory of this kind that is loaded, as sysfs below `root` tells.
pub fn peer_module(root: &Path, kind: Kind) -> Option<&'static str> {
    let of_kind = |name: &str| match kind {
        Kind::Cuda(_) => name.starts_with("nv"),
        Kind::Hip(_) => name.starts_with("amd"),
        _ => false,
    };
    let found = PEER_MODULES.iter().find(|(name, path)| of_kind(name) && root.join(path).exists());
    found.map(|(name, _)| *name)
}

/// Bytes of a page of this machine.
pub(super) fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    size.ok().flatten().and_then(|size| u64::try_from(size).ok()).unwrap_or(4096)
}

impl From<NotRegistered> for VerbsError {
    fn from(error: NotRegistered) -> Self {
        Self::NotRegistered(Box::new(error))
    }
}
