//! An agent: its memory, its peers, and the calls on both.

use crate::control::{self, Control, Notification};
use crate::inner::Inner;
use crate::list::BlockList;
use crate::memory::{Memory, Registration};
use crate::metadata::{Content, Generation};
use crate::path::Explanation;
use crate::peer::RemoteMemory;
use crate::prepared::{Plan, Prepared};
use crate::state::Op;
use crate::transfer::Transfer;
use crate::{AgentConfig, AgentError, PostOptions};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_mem::{HostBuf, Kind};

/// Bytes that `explain` reads to measure a path.
const PROBE: u64 = 1 << 20;

/// Registers memory, knows peers, moves blocks. Cloning shares it; all calls may be made by any
/// number of threads.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<Shared>,
}

/// Ends the agent with its last clone.
struct Shared {
    inner: Arc<Inner>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.inner.close();
    }
}

impl Agent {
    /// Makes an agent. Its name is what peers call it.
    ///
    /// # Errors
    /// The name or a setting is of no use, or the system does not give what an agent needs.
    pub fn new(name: &str, config: AgentConfig) -> Result<Self, AgentError> {
        let inner = Inner::new(name, config)?;
        // From here on, dropping stops the thread.
        let agent = Self { shared: Arc::new(Shared { inner }) };
        Control::start(agent.inner())?;
        Ok(agent)
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.shared.inner
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner().owner.name
    }

    /// Which start of an agent of this name it is.
    pub fn generation(&self) -> Generation {
        self.inner().owner.generation
    }

    /// Registers memory under a label, by which peers find it. Labels need not be unique: the newest
    /// of a label is found.
    ///
    /// # Errors
    /// There are no bytes, the label is too long, or the NIC refuses.
    pub fn register(
        &self,
        memory: impl Into<Memory>,
        label: &str,
    ) -> Result<Registration, AgentError> {
        let memory = self.inner().register(memory.into(), label)?;
        Ok(Registration::new(memory, Arc::downgrade(self.inner())))
    }

    /// Allocates `len` zeroed bytes that other processes of this machine can map, and registers
    /// them: host memory on the host SIMT device, the GPU's on a GPU.
    ///
    /// # Errors
    /// There is not as much memory; otherwise as [`Agent::register`].
    pub fn alloc(&self, len: u64, label: &str) -> Result<Registration, AgentError> {
        self.alloc_on(&self.inner().gpu, len, label)
    }

    /// As [`Agent::alloc`], always host memory.
    ///
    /// # Errors
    /// As for [`Agent::alloc`].
    pub fn alloc_host(&self, len: u64, label: &str) -> Result<Registration, AgentError> {
        self.alloc_on(&self.inner().host, len, label)
    }

    fn alloc_on(
        &self,
        gpu: &Arc<dyn Gpu>,
        len: u64,
        label: &str,
    ) -> Result<Registration, AgentError> {
        let arena = gpu.arena(len.max(1))?;
        let segment = arena.commit(0, arena.len())?;
        let exact = usize::try_from(len).unwrap_or(usize::MAX);
        self.register(segment.buffer().slice(0, exact)?, label)
    }

    /// What peers need to reach all registered memory: bytes that may travel by any means.
    ///
    /// # Errors
    /// They would be more than 4 GiB.
    pub fn metadata(&self) -> Result<Vec<u8>, AgentError> {
        Ok(self.inner().full_metadata()?.to_vec())
    }

    /// As [`Agent::metadata`], with some of the memory: it is added to what a peer knows. Without
    /// any it says how this agent is reached.
    ///
    /// # Errors
    /// As for [`Agent::metadata`].
    pub fn partial_metadata(&self, these: &[&Registration]) -> Result<Vec<u8>, AgentError> {
        let memories = these.iter().filter_map(|one| one.memory().info()).collect();
        self.inner().tell(Content::Partial, memories)
    }

    /// Bytes that make a peer forget this agent when it loads them.
    ///
    /// # Errors
    /// As for [`Agent::metadata`].
    pub fn invalidation(&self) -> Result<Vec<u8>, AgentError> {
        self.inner().tell(Content::Gone, Vec::new())
    }

    /// Takes a peer's metadata, and gives its name. That of another start of the agent replaces what was
    /// known, whose transfers fail from then on. If that other start is the older one by the clocks of
    /// their hosts, the one that is known is asked first, which takes up to [`Agent::deadline`]; if it
    /// answers it stays.
    ///
    /// # Errors
    /// The bytes are foreign, damaged, of another job, of this agent, or of an older start than one that
    /// runs.
    pub fn load_metadata(&self, bytes: &[u8]) -> Result<String, AgentError> {
        self.inner().load(bytes, None)
    }

    /// Where it serves metadata and takes notifications.
    pub fn address(&self) -> SocketAddr {
        self.inner().control.address()
    }

    /// Fetches the metadata of the agent that listens at `address`, and loads it; the peer's name. The
    /// address alone says nothing about an agent, so both need the token of one job
    /// ([`AgentConfig::token`]). Without one metadata travels by other means, such as an
    /// [`Exchange`](crate::Exchange).
    ///
    /// # Errors
    /// No token is set; nobody answers in time; the other end has another token; otherwise as
    /// [`Agent::load_metadata`].
    pub fn fetch_metadata(
        &self,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<String, AgentError> {
        self.load_metadata(&control::fetch(&**self.inner(), address, timeout)?)
    }

    /// Has the agent that listens at `address` load the metadata of this one. `metadata` is what one
    /// of this agent's calls gave.
    ///
    /// # Errors
    /// As for [`Agent::fetch_metadata`], at the peer.
    pub fn send_metadata(
        &self,
        address: SocketAddr,
        metadata: &[u8],
        timeout: Duration,
    ) -> Result<(), AgentError> {
        control::load(&**self.inner(), address, timeout, metadata)
    }

    /// Waits until metadata of an agent of this name is loaded.
    ///
    /// # Errors
    /// It is not in time.
    pub fn wait_peer(&self, peer: &str, timeout: Duration) -> Result<(), AgentError> {
        self.inner().wait_peer(peer, timeout)
    }

    /// Connects to a peer, which its first transfer or notification would do otherwise.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn connect(&self, peer: &str, timeout: Duration) -> Result<(), AgentError> {
        let peer = self.inner().peer(peer)?;
        self.inner().connect(&peer, timeout).map(drop)
    }

    /// Sends a notification that belongs to no transfer, and waits until the peer has it.
    ///
    /// # Errors
    /// It is too long, the peer has no room for it in time, or is lost; then it may have arrived.
    pub fn notify(&self, peer: &str, bytes: &[u8], timeout: Duration) -> Result<(), AgentError> {
        let start = Instant::now();
        let peer = self.inner().peer(peer)?;
        let link = self.inner().connect(&peer, timeout)?;
        let receipt = link.notify(bytes, self.inner().config.window as usize)?;
        while !receipt.poll(&link)? {
            if start.elapsed() > timeout {
                receipt.withdraw();
                let what = format!("notification to {}", peer.owner);
                return Err(AgentError::Timeout { what, after: timeout });
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }

    /// Whether a notification of these bytes has come from a peer; if so, it is taken.
    pub fn check_remote_done(&self, peer: &str, tag: &[u8]) -> bool {
        self.inner().control.inbox.take_first(|one| one.is(peer, tag)).is_some()
    }

    /// As [`Agent::check_remote_done`], and waits for it.
    ///
    /// # Errors
    /// None came in time.
    pub fn wait_remote_done(
        &self,
        peer: &str,
        tag: &[u8],
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let found = self.inner().control.inbox.wait_first(timeout, |one| one.is(peer, tag));
        let what = || format!("notification {:?} of {peer}", String::from_utf8_lossy(tag));
        found.map(drop).ok_or_else(|| AgentError::Timeout { what: what(), after: timeout })
    }

    /// The oldest notification of any peer, if there is one.
    pub fn next_notification(&self) -> Option<Notification> {
        self.inner().control.inbox.take_first(|_| true)
    }

    /// As [`Agent::next_notification`], and waits for it.
    ///
    /// # Errors
    /// None came in time.
    pub fn wait_notification(&self, timeout: Duration) -> Result<Notification, AgentError> {
        let what = || "notification".to_owned();
        let late = || AgentError::Timeout { what: what(), after: timeout };
        self.inner().control.inbox.wait_first(timeout, |_| true).ok_or_else(late)
    }

    /// Whether metadata of an agent of this name is loaded, and it is not known to be lost.
    pub fn knows(&self, peer: &str) -> bool {
        self.inner().knows(peer)
    }

    /// Forgets a peer. Its transfers fail.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn remove_peer(&self, peer: &str) -> Result<(), AgentError> {
        self.inner().remove_peer(peer)
    }

    /// The newest memory that a peer registered under a label, as far as it is known here.
    ///
    /// # Errors
    /// No such peer, or no such memory.
    pub fn remote(&self, peer: &str, label: &str) -> Result<RemoteMemory, AgentError> {
        Ok(RemoteMemory(self.inner().peer(peer)?.memory_called(label)?))
    }

    /// Checks a list, of this agent's memory or of a peer's, so that transfers can be made of it.
    ///
    /// # Errors
    /// It names memory that is not registered, or ranges that are not inside it.
    pub fn prepare(&self, list: &BlockList) -> Result<Prepared, AgentError> {
        Prepared::new(self.inner(), list)
    }

    /// A transfer between blocks of prepared lists: the block `local_index[i]` here, and
    /// `remote_index[i]` at the peer. It can be posted any number of times.
    ///
    /// # Errors
    /// Indices or lengths do not fit, or no path leads there.
    pub fn make(
        &self,
        op: Op,
        local: &Prepared,
        local_index: &[u32],
        remote: &Prepared,
        remote_index: &[u32],
    ) -> Result<Transfer, AgentError> {
        let plan = Plan::of_indices(self.inner(), (local, local_index), (remote, remote_index))?;
        Ok(Transfer::new(self.inner(), op, plan))
    }

    /// A transfer between all blocks of two lists, in order.
    ///
    /// # Errors
    /// As for [`Agent::prepare`] and [`Agent::make`].
    pub fn initialize(
        &self,
        op: Op,
        local: &BlockList,
        remote: &BlockList,
    ) -> Result<Transfer, AgentError> {
        let plan = Plan::of_lists(self.inner(), local, remote)?;
        Ok(Transfer::new(self.inner(), op, plan))
    }

    /// Which path leads from memory of this agent to that of a peer, why no better one, and its
    /// rate. If that has not been measured, up to 1 MiB of the peer's memory is read for it.
    ///
    /// # Errors
    /// There is no path, or it failed.
    pub fn explain(
        &self,
        local: &Registration,
        remote: &RemoteMemory,
    ) -> Result<Explanation, AgentError> {
        let inner = self.inner();
        let peer = inner.peer_of(&remote.0.extent.owner)?;
        let route = inner.route(local.memory(), &peer, &remote.0)?;
        let len = local.len().min(remote.len()).min(PROBE);
        if route.rate.get().is_none() && len >= 1 << 18 {
            // Of the same kind as the local memory, so that the path is the same.
            let scratch = match local.buffer().region().kind() {
                Kind::Host => Buffer::of_region(HostBuf::region(len as usize)?),
                _ => inner.gpu.alloc(len as usize, Place::Device)?,
            };
            let into = self.register(scratch, "scratch of a probe")?;
            let (list, from) = (into.blocks(0, len, 1)?, remote.blocks(0, len, 1)?);
            let probe = self.initialize(Op::Read, &list, &from)?;
            for _ in 0..2 {
                probe.post(PostOptions::new())?;
                probe.wait(inner.config.deadline)?;
            }
        }
        Ok(route.explain())
    }

    /// How long everything that waits for a peer may take unless it is given its own time.
    pub fn deadline(&self) -> Duration {
        self.inner().config.deadline
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({})", self.inner().owner)
    }
}
