//! Registered memory as kernels see it, for `kernels/include/warpverbs/nixl.h`.

use crate::deadline::Deadline;
use crate::names::{Owner, PathKind};
use crate::path::network::Set;
use crate::{Agent, AgentError, KernelAccess, Reason, Registration, RemoteMemory};
use std::fmt;
use std::sync::Arc;
use warpverbs_gpu::views::{
    LocalPart, RemotePart, RemoteWay, ViewError, ViewWaits, WaitRecord, local_view, remote_view,
};
use warpverbs_gpu::{Gpu, KernelPtr, LocalView, Qp, RemoteView};
use warpverbs_transport::Endpoint;

/// Tables of this agent's memory and of its peers', for kernels of its device: entries in the order
/// in which they were given. The memory that they refer to lives as long as these, or a launch that
/// was given them.
pub struct Views {
    local: KernelPtr<LocalView>,
    remote: KernelPtr<RemoteView>,
    waits: ViewWaits,
    gpu: Arc<dyn Gpu>,
    peers: Vec<Reached>,
}

/// A peer of views: its number is its place among those.
struct Reached {
    owner: Owner,
    way: PathKind,
    /// Queue pairs, if it is reached through such.
    pairs: Option<Arc<Set>>,
}

/// A peer, and its entries with their index.
type Entries<'a> = (&'a Owner, Vec<(usize, &'a RemoteMemory)>);

impl Agent {
    /// Makes views of memory of this agent and of peers; `None` is a hole. Kernels of this agent's
    /// device reach a peer's memory by loads and stores if that is possible for all that is named of
    /// it, else through queue pairs, as many channels as `AgentConfig::queue_pairs` says. Peers are
    /// numbered in the order in which they first appear. See [`Agent::kernel_access`] for what may
    /// become of a peer's memory meanwhile.
    ///
    /// # Errors
    /// Memory is no longer registered, a peer is lost, or kernels cannot reach its memory: with every
    /// reason.
    pub fn views(
        &self,
        local: &[&Registration],
        remote: &[Option<&RemoteMemory>],
    ) -> Result<Views, AgentError> {
        let (gpu, deadline) = (&self.shared.router.gpu, self.deadline());
        let mut peers: Vec<Reached> = Vec::new();
        let mut parts: Vec<Option<RemotePart>> = remote.iter().map(|_| None).collect();
        for (owner, entries) in by_owner(remote) {
            let memories: Vec<_> = entries.iter().map(|(_, memory)| *memory).collect();
            let (reached, ways) = self.reach(owner, &memories)?;
            let peer = peers.len() as u32;
            for ((entry, _), way) in entries.iter().zip(ways) {
                parts[*entry] = Some(RemotePart { peer, way });
            }
            peers.push(reached);
        }
        let waits = ViewWaits::new(&**gpu, peers.len() as u32, deadline)?;
        let mut keys = Vec::new();
        let mut own = Vec::new();
        for registration in local {
            registration.memory().check()?;
            let key = registration.nic();
            let nic = key.as_ref().map(|key| key.local().into());
            own.push(LocalPart { memory: registration.buffer().clone(), nic });
            keys.extend(key);
        }
        let view = local_view(&**gpu, &own, &waits).map_err(refused)?;
        // The keys stay as long as a kernel may use them.
        let local = keys.into_iter().fold(view, |view, key| view.keeping(key));
        let remote = remote_view(&**gpu, &parts, deadline).map_err(refused)?;
        Ok(Views { local, remote, waits, gpu: gpu.clone(), peers })
    }

    /// All of `memories`, which are one peer's, in one way.
    fn reach(
        &self,
        owner: &Owner,
        memories: &[&RemoteMemory],
    ) -> Result<(Reached, Vec<RemoteWay>), AgentError> {
        let peer = self.shared.peers.peer_of(owner)?;
        let deadline = Deadline::after(self.deadline());
        let access = |memory: &&RemoteMemory| self.kernel_access(memory);
        let found = memories.iter().map(access).collect::<Result<Vec<_>, _>>()?;
        let owner = owner.clone();
        let direct = |access: &KernelAccess| matches!(access, KernelAccess::Direct(_));
        let way = match (found.iter().all(direct), &peer.here) {
            (true, Some(_)) => PathKind::SameProcess,
            (true, None) => PathKind::Mapped,
            (false, _) => PathKind::Network,
        };
        let pairs = match way {
            PathKind::Network => Some(peer.kernel_pairs.get(&peer.asked(), &deadline)?),
            _ => None,
        };
        let qps: Vec<KernelPtr<Qp>> =
            pairs.iter().flat_map(|pairs| pairs.iter().map(Endpoint::device_qp)).collect();
        let mut ways = Vec::new();
        for (access, memory) in found.into_iter().zip(memories) {
            let region = match access {
                KernelAccess::Rdma { region, .. } => region,
                KernelAccess::Direct(buffer) if way != PathKind::Network => {
                    ways.push(RemoteWay::Direct(buffer));
                    continue;
                }
                // Other memory of this peer is reached through queue pairs alone.
                KernelAccess::Direct(_) => {
                    let range = self.shared.router.range(&peer, &memory.0, &deadline)?;
                    range.region().ok_or_else(|| no_key(memory))?
                }
            };
            let bytes = memory.len();
            ways.push(RemoteWay::Rdma { place: region.into(), bytes, qps: qps.clone() });
        }
        Ok((Reached { owner, way, pairs }, ways))
    }
}

fn no_key(memory: &RemoteMemory) -> AgentError {
    let why = "the peer's other memory is reached by RDMA, and this one has no key";
    AgentError::NoPath {
        local: "kernels".to_owned(),
        remote: format!("{:?} of {}", memory.label(), memory.owner()),
        tried: vec![Reason::new(PathKind::Network.to_string(), why)],
    }
}

/// Peers in the order in which they first appear.
fn by_owner<'a>(remote: &[Option<&'a RemoteMemory>]) -> Vec<Entries<'a>> {
    let mut order: Vec<Entries<'a>> = Vec::new();
    for (entry, memory) in remote.iter().enumerate() {
        let Some(memory) = *memory else { continue };
        match order.iter_mut().find(|(owner, _)| *owner == memory.owner()) {
            Some((_, entries)) => entries.push((entry, memory)),
            None => order.push((memory.owner(), vec![(entry, memory)])),
        }
    }
    order
}

fn refused(error: ViewError) -> AgentError {
    match error {
        ViewError::Gpu(error) => error.into(),
        other => AgentError::system("views for kernels", std::io::Error::other(other)),
    }
}

impl Views {
    /// `const wv::LocalView*` for a launch.
    pub fn local(&self) -> KernelPtr<LocalView> {
        self.local.clone()
    }

    /// `const wv::RemoteView*` for a launch.
    pub fn remote(&self) -> KernelPtr<RemoteView> {
        self.remote.clone()
    }

    /// A peer's number, for waits in kernels; `None` if no entry is its.
    pub fn number(&self, peer: &str) -> Option<u32> {
        self.peers.iter().position(|one| *one.owner.name == *peer).map(|at| at as u32)
    }

    /// How kernels reach a peer.
    pub fn path(&self, peer: &str) -> Option<PathKind> {
        self.number(peer).map(|at| self.peers[at as usize].way)
    }

    /// Ends all waits and all posting of kernels on these views with `aborted`, now and from now on.
    ///
    /// # Errors
    /// The device refused the write.
    pub fn abort(&self) -> Result<(), AgentError> {
        let all = self.peers.iter().filter_map(|peer| peer.pairs.as_ref());
        all.flat_map(|pairs| pairs.iter()).try_for_each(Endpoint::abort)?;
        Ok(self.waits.abort(&*self.gpu)?)
    }

    /// Ends waits for one peer with `peer_lost`. Peers without an entry are ignored.
    ///
    /// # Errors
    /// The device refused the write.
    pub fn give_up(&self, peer: &str) -> Result<(), AgentError> {
        let Some(number) = self.number(peer) else { return Ok(()) };
        Ok(self.waits.give_up(&*self.gpu, number)?)
    }

    /// The first wait of a kernel on these views that failed.
    ///
    /// # Errors
    /// The device refused the read.
    pub fn failed_wait(&self) -> Result<Option<WaitRecord>, AgentError> {
        Ok(self.waits.record(&*self.gpu)?)
    }
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers = self.peers.iter().map(|peer| (peer.owner.to_string(), peer.way));
        f.debug_map().entries(peers).finish()
    }
}
