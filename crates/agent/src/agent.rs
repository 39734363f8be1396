//! An agent: its memory, its peers, and the calls on both.

use crate::control::{self, Control, Notification};
use crate::list::{BlockList, Extent, Owner};
use crate::memory::{LocalMemory, Memory, Registration};
use crate::metadata::{Contact, Content, Generation, Metadata, check_name, random};
use crate::path::network::Answering;
use crate::path::{Explanation, Pair, Route};
use crate::peer::{Peer, PeerMemory, RemoteMemory};
use crate::prepared::{Plan, Prepared, Select};
use crate::transfer::{Op, Transfer};
use crate::{AgentConfig, AgentError, PostOptions};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use warpverbs_gpu::{Gpu, GpuChoice};
use warpverbs_mem::{Region, SmallBuf};
use warpverbs_peer::{DescriptorServer, Identity};
use warpverbs_transport::Access;

/// Bytes that `explain` reads to measure a path.
const PROBE: u64 = 1 << 20;

/// The agents of this process.
static AGENTS: Mutex<BTreeMap<String, Weak<Inner>>> = Mutex::new(BTreeMap::new());

fn agents() -> MutexGuard<'static, BTreeMap<String, Weak<Inner>>> {
    AGENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

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

pub(crate) struct Inner {
    pub(crate) owner: Owner,
    pub(crate) config: AgentConfig,
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) contact: Contact,
    /// What `contact.proof` is about.
    _proof: Region,
    descriptors: Mutex<Option<DescriptorServer>>,
    memories: RwLock<FxHashMap<u32, Arc<LocalMemory>>>,
    next: AtomicU32,
    peers: RwLock<HashMap<Arc<str>, Arc<Peer>>>,
    /// Metadata has been loaded.
    news: Condvar,
    news_lock: Mutex<()>,
    pub(crate) control: Control,
    pub(crate) answering: Answering,
}

impl Agent {
    /// Makes an agent. Its name is what peers call it.
    ///
    /// # Errors
    /// The name or a setting is of no use, or the system does not give what an agent needs.
    pub fn new(name: &str, config: AgentConfig) -> Result<Self, AgentError> {
        let expected = "1 to 256 bytes";
        let value = format!("{name:?}");
        check_name("name", name).map_err(|_| AgentError::Config {
            field: "name",
            value,
            expected,
        })?;
        config.check()?;
        let gpu = match &config.gpu {
            Some(gpu) => gpu.clone(),
            None => warpverbs_gpu::open(GpuChoice::Simt)?,
        };
        let proof = random()?;
        let region = SmallBuf::of(&proof);
        let descriptors =
            DescriptorServer::start().map_err(|error| AgentError::system("unix socket", error))?;
        let control = Control::new(&config)?;
        let addresses = match config.advertise.is_empty() {
            true => control.addresses(),
            false => config.advertise.clone(),
        };
        let contact = Contact {
            addresses,
            identity: Identity::of_this_process(&*gpu),
            proof_addr: region.addr(),
            proof,
            descriptors: Some(descriptors.address().clone()),
        };
        let inner = Inner {
            owner: Owner { name: name.into(), generation: Generation::new()? },
            config,
            gpu,
            contact,
            _proof: region,
            descriptors: Mutex::new(Some(descriptors)),
            memories: RwLock::default(),
            next: AtomicU32::new(0),
            peers: RwLock::default(),
            news: Condvar::new(),
            news_lock: Mutex::new(()),
            control,
            answering: Answering::default(),
        };
        let inner = Arc::new(inner);
        agents().insert(inner.owner.to_string(), Arc::downgrade(&inner));
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
        let memory = self.inner().describe(memory.into(), label)?;
        let mut memories = self.inner().memories.write().unwrap_or_else(PoisonError::into_inner);
        memories.insert(memory.extent.id, memory.clone());
        Ok(Registration::new(memory, Arc::downgrade(self.inner())))
    }

    /// Allocates `len` zeroed bytes that other processes of this machine can map, and registers
    /// them: host memory on the host SIMT device, the GPU's on a GPU.
    ///
    /// # Errors
    /// There is not as much memory; otherwise as [`Agent::register`].
    pub fn alloc(&self, len: u64, label: &str) -> Result<Registration, AgentError> {
        let gpu = &self.inner().gpu;
        let arena = gpu.arena(len.max(1))?;
        let segment = arena.commit(0, arena.len())?;
        let mut memory = Memory::from(segment);
        let exact = usize::try_from(len).unwrap_or(usize::MAX);
        memory.buffer = memory.buffer.slice(0, exact)?;
        self.register(memory, label)
    }

    /// What peers need to reach all registered memory: bytes that may travel by any means.
    ///
    /// # Errors
    /// They would be more than 4 GiB.
    pub fn metadata(&self) -> Result<Vec<u8>, AgentError> {
        self.inner().full_metadata()
    }

    /// As [`Agent::metadata`], with some of the memory: it is added to what a peer knows. Without
    /// any it says how this agent is reached.
    ///
    /// # Errors
    /// As for [`Agent::metadata`].
    pub fn partial_metadata(&self, these: &[&Registration]) -> Result<Vec<u8>, AgentError> {
        let memories = these.iter().map(|registration| registration.memory().info()).collect();
        self.inner().tell(Content::Partial, memories)
    }

    /// Bytes that make a peer forget this agent when it loads them.
    ///
    /// # Errors
    /// As for [`Agent::metadata`].
    pub fn invalidation(&self) -> Result<Vec<u8>, AgentError> {
        self.inner().tell(Content::Gone, Vec::new())
    }

    /// Takes a peer's metadata, and gives its name. That of a newer start of an agent replaces the
    /// older one, whose transfers fail from then on.
    ///
    /// # Errors
    /// The bytes are foreign, damaged, of another job, of this agent, or of a start that has been
    /// replaced.
    pub fn load_metadata(&self, bytes: &[u8]) -> Result<String, AgentError> {
        self.inner().load(bytes, None)
    }

    /// Where it serves metadata and takes notifications.
    pub fn address(&self) -> SocketAddr {
        self.inner().control.address()
    }

    /// Fetches the metadata of the agent that listens at `address`, and loads it; the peer's name.
    ///
    /// # Errors
    /// Nobody answers in time, or who does has not the same token; otherwise as
    /// [`Agent::load_metadata`].
    pub fn fetch_metadata(
        &self,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<String, AgentError> {
        self.load_metadata(&control::fetch(self.inner(), address, timeout)?)
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
        control::load(self.inner(), address, timeout, metadata)
    }

    /// Waits until metadata of an agent of this name is loaded.
    ///
    /// # Errors
    /// It is not in time.
    pub fn wait_peer(&self, peer: &str, timeout: Duration) -> Result<(), AgentError> {
        let start = Instant::now();
        let inner = self.inner();
        let mut guard = inner.news_lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.knows(peer) {
            let left = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
            let what = || format!("metadata of {peer}");
            let late = || AgentError::Timeout { what: what(), after: timeout };
            let left = left.ok_or_else(late)?;
            let waited = inner.news.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
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
        self.inner().peer(peer).is_ok_and(|peer| peer.check().is_ok())
    }

    /// Forgets a peer. Its transfers fail.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn remove_peer(&self, peer: &str) -> Result<(), AgentError> {
        let mut peers = self.inner().peers.write().unwrap_or_else(PoisonError::into_inner);
        let known = peers.remove(peer).ok_or_else(|| unknown(peer))?;
        drop(peers);
        let (peer, why) = (known.owner.to_string(), "it was removed here".to_owned());
        known.lose(AgentError::PeerLost { peer, why });
        Ok(())
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
        let local = (local, Select::These(local_index));
        let remote = (remote, Select::These(remote_index));
        let plan = Plan::new(self.inner(), local, remote)?;
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
        let (local, remote) = (self.prepare(local)?, self.prepare(remote)?);
        let plan = Plan::new(self.inner(), (&local, Select::All), (&remote, Select::All))?;
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
            let scratch = local.buffer().region().copier();
            let exact = len as usize;
            let region = match scratch {
                Some(copier) => copier.host_memory(exact)?,
                None => warpverbs_mem::HostBuf::region(exact)?,
            };
            let into = self.register(region, "scratch of a probe")?;
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

fn unknown(name: &str) -> AgentError {
    AgentError::UnknownPeer { name: name.to_owned() }
}

impl Inner {
    /// Registers with the NIC, and offers to other processes, what can be.
    fn describe(&self, memory: Memory, label: &str) -> Result<Arc<LocalMemory>, AgentError> {
        let expected = "1 to 256 bytes";
        let value = format!("{label:?}");
        check_name("label", label).map_err(|_| AgentError::Config {
            field: "label",
            value,
            expected,
        })?;
        let len = memory.buffer.len() as u64;
        if len == 0 {
            let (field, expected) = ("length", "at least 1 byte");
            return Err(AgentError::Config { field, value: "0".into(), expected });
        }
        let mut descriptors = self.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = match (&memory.segment, &mut *descriptors) {
            (Some(segment), Some(server)) => {
                let offered = server.offer(segment.export()?, segment.len());
                Some(offered.map_err(|error| AgentError::system("fstat", error))?)
            }
            _ => None,
        };
        drop(descriptors);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let access = access | Access::REMOTE_ATOMIC;
        let register =
            |nic: &warpverbs_transport::Device| nic.register(memory.buffer.clone(), access);
        let key = self.config.nic.as_ref().map(register).transpose()?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let extent = Extent { owner: self.owner.clone(), id, label: label.into(), len };
        Ok(Arc::new(LocalMemory::new(extent, memory, ticket, key)))
    }

    /// Takes memory out of the table.
    pub(crate) fn forget(&self, memory: &Arc<LocalMemory>) {
        let mut memories = self.memories.write().unwrap_or_else(PoisonError::into_inner);
        memories.remove(&memory.extent.id);
        drop(memories);
        self.control.revoke(memory);
        let mut server = self.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(ticket), Some(server)) = (&memory.ticket, &mut *server) {
            server.withdraw(ticket);
        }
    }

    pub(crate) fn memory(&self, id: u32) -> Result<Arc<LocalMemory>, AgentError> {
        let memories = self.memories.read().unwrap_or_else(PoisonError::into_inner);
        memories.get(&id).cloned().ok_or_else(|| AgentError::Deregistered {
            owner: self.owner.to_string(),
            label: format!("number {id}"),
        })
    }

    fn tell(
        &self,
        content: Content,
        memories: Vec<crate::metadata::MemoryInfo>,
    ) -> Result<Vec<u8>, AgentError> {
        let (name, generation) = (self.owner.name.clone(), self.owner.generation);
        let metadata =
            Metadata { name, generation, content, contact: self.contact.clone(), memories };
        Ok(metadata.to_bytes(&self.config.token)?)
    }

    fn learn(&self, metadata: Metadata, owner: Owner) -> Result<(), AgentError> {
        if owner.name == self.owner.name {
            return Err(AgentError::Foreign {
                what: "the metadata",
                owner: owner.to_string(),
                expected: "an agent of another name".into(),
            });
        }
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let known = peers.get(&owner.name).cloned();
        if let Some(known) = &known
            && known.owner != owner
        {
            let (peer, current) = (owner.name.to_string(), known.owner.generation);
            let found = owner.generation;
            if found.is_before(&current) {
                return Err(AgentError::Stale { peer, current, found });
            }
            known.lose(AgentError::Stale { peer, current: found, found: current });
            peers.remove(&owner.name);
        }
        if metadata.content == Content::Gone {
            if let Some(known) = peers.remove(&owner.name) {
                let (peer, why) = (owner.to_string(), "it has told so".to_owned());
                known.lose(AgentError::PeerLost { peer, why });
            }
            return Ok(());
        }
        // One that was lost begins anew.
        if let Some(known) = peers.get(&owner.name)
            && known.check().is_ok()
        {
            known.learn(metadata);
            return Ok(());
        }
        let here = agents().get(&owner.to_string()).cloned();
        let peer = Peer::new(&metadata, here);
        peer.learn(metadata);
        peers.insert(owner.name, Arc::new(peer));
        Ok(())
    }

    pub(crate) fn peer(&self, name: &str) -> Result<Arc<Peer>, AgentError> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(name).cloned().ok_or_else(|| unknown(name))
    }

    /// The peer, if it is the start that is known.
    pub(crate) fn peer_of(&self, owner: &Owner) -> Result<Arc<Peer>, AgentError> {
        let peer = self.peer(&owner.name)?;
        match peer.owner == *owner {
            true => Ok(peer),
            false => Err(AgentError::Stale {
                peer: owner.name.to_string(),
                current: peer.owner.generation,
                found: owner.generation,
            }),
        }
    }

    pub(crate) fn route(
        self: &Arc<Self>,
        local: &Arc<LocalMemory>,
        peer: &Arc<Peer>,
        remote: &Arc<PeerMemory>,
    ) -> Result<Arc<Route>, AgentError> {
        Pair { agent: self, local, peer, remote }.route()
    }

    pub(crate) fn full_metadata(&self) -> Result<Vec<u8>, AgentError> {
        let memories = self.memories.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = memories.values().map(|memory| memory.info()).collect();
        drop(memories);
        all.sort_by_key(|memory| memory.id);
        self.tell(Content::Full, all)
    }

    /// Takes metadata, if it is of `from`.
    pub(crate) fn load(&self, bytes: &[u8], from: Option<&Owner>) -> Result<String, AgentError> {
        let metadata = Metadata::from_bytes(bytes, &self.config.token)?;
        let owner = Owner { name: metadata.name.clone(), generation: metadata.generation };
        if let Some(from) = from.filter(|from| **from != owner) {
            let (owner, expected) = (owner.to_string(), from.to_string());
            return Err(AgentError::Foreign { what: "the metadata", owner, expected });
        }
        self.learn(metadata, owner.clone())?;
        self.news.notify_all();
        Ok(owner.name.to_string())
    }

    /// Numbers of all registered memory.
    pub(crate) fn live(&self) -> Vec<u32> {
        let memories = self.memories.read().unwrap_or_else(PoisonError::into_inner);
        memories.keys().copied().collect()
    }

    /// Ends all registrations.
    pub(crate) fn take_memories(&self) -> Vec<Arc<LocalMemory>> {
        let mut memories = self.memories.write().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = memories.drain().map(|(_, memory)| memory).collect();
        drop(memories);
        all.iter().for_each(|memory| memory.retire());
        all
    }

    fn close(&self) {
        agents().remove(&self.owner.to_string());
        self.control.stop();
        // Where there was no thread.
        self.take_memories();
        let peers =
            std::mem::take(&mut *self.peers.write().unwrap_or_else(PoisonError::into_inner));
        for peer in peers.values() {
            let (owner, why) = (self.owner.to_string(), "this agent has ended".to_owned());
            peer.lose(AgentError::PeerLost { peer: owner, why });
        }
    }
}
