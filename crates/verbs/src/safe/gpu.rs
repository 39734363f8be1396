//! Registering a GPU's memory: which ways there are, and which one it became.

use super::{Mr, NotRegistered, Pd, Registration, VerbsError};
use std::os::fd::AsFd;
use std::path::Path;
use warpverbs_mem::{Access, Dmabuf, Kind, Region, RegistrationPath};
use warpverbs_rdma::{Decision, Reason};

/// Ways besides a dmabuf that may be tried for memory that the CPU does not reach.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuWays {
    /// The kernel module that lets NICs reach the GPU's memory, if it is loaded.
    pub peer_module: Option<&'static str>,
    /// Whether pinned host memory may be used instead; the caller then copies the bytes.
    pub bounce: bool,
}

/// Registered memory, and how it was registered.
#[derive(Debug)]
pub struct Registered {
    /// The registration. With [`RegistrationPath::Bounce`] it is of other memory than was asked for,
    /// as long as that.
    pub mr: Mr,
    /// The way, and the better ones that were not taken.
    pub how: Decision<RegistrationPath>,
}

/// Accesses of peers that the owner of memory is not told of.
const UNSEEN: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

impl Registered {
    /// Registers `region` in the best way there is: host memory by its address; a GPU's as a dmabuf,
    /// else by a peer memory module, else, if that was asked for, host memory in its place.
    pub fn new(
        pd: &Pd,
        region: &Region,
        registration: Registration,
        ways: &GpuWays,
    ) -> Result<Self, VerbsError> {
        if region.kind() == Kind::Host {
            let mr = Mr::register(pd, region, registration)?;
            return Ok(Self { mr, how: Decision::best(RegistrationPath::Host) });
        }
        let mut tried = Vec::new();
        for (route, attempt) in WAYS {
            match attempt(pd, region, registration, ways) {
                Ok(mr) => {
                    let how = Decision { not_better: tried, ..Decision::best(route) };
                    return Ok(Self { mr, how });
                }
                Err(why) => tried.push(Reason::new(route.to_string(), why)),
            }
        }
        let rights = registration.access() & UNSEEN;
        if ways.bounce && !rights.is_empty() {
            tried.pop();
            return Err(VerbsError::BouncedRights { rights, tried: Reason::list(&tried) });
        }
        let device = pd.context().device().name().to_owned();
        Err(NotRegistered { region: format!("{region:?}"), device, tried }.into())
    }
}

type Way = fn(&Pd, &Region, Registration, &GpuWays) -> Result<Mr, String>;

/// Best first.
const WAYS: [(RegistrationPath, Way); 3] = [
    (RegistrationPath::Dmabuf, dmabuf),
    (RegistrationPath::PeerMemory, peer_memory),
    (RegistrationPath::Bounce, bounce),
];

fn dmabuf(pd: &Pd, region: &Region, registration: Registration, _: &GpuWays) -> Result<Mr, String> {
    let Dmabuf { fd, offset } = region.export_dmabuf().map_err(|e| e.to_string())?;
    Mr::register_dmabuf(pd, region, fd.as_fd(), offset, registration).map_err(|e| e.to_string())
}

fn peer_memory(
    pd: &Pd,
    region: &Region,
    registration: Registration,
    ways: &GpuWays,
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
    ways: &GpuWays,
) -> Result<Mr, String> {
    if !ways.bounce {
        return Err("not asked for".to_owned());
    }
    if registration.access().intersects(UNSEEN) {
        return Err("peers may not reach memory that is copied".to_owned());
    }
    let host = region.engine().and_then(|engine| engine.host_memory(region.len()));
    let host = host.map_err(|e| e.to_string())?;
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
