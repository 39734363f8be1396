//! Other agents, as their metadata describes them.

use crate::AgentError;
use crate::control::slot::Slot;
use crate::inner::Inner;
use crate::list::{BlockList, Extent, Owner};
use crate::made::Made;
use crate::metadata::{Contact, Content, MemoryInfo, Metadata, Place};
use crate::numbers::Numbers;
use crate::path::network::{Pairs, Poster};
use crate::path::tcp::Sockets;
use crate::path::{EXCLUDED, PathKind, Route};
use crate::proof::Proven;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use std::time::Instant;
use warpverbs_devmem::transport::RemoteMemory as TcpKey;
use warpverbs_mem::Process;
use warpverbs_peer::descriptor::Trust;
use warpverbs_peer::{Reason, RemoteRange, reach};

/// One generation of another agent.
pub(crate) struct Peer {
    pub(crate) owner: Owner,
    pub(crate) contact: Contact,
    /// If it is in this process.
    pub(crate) here: Option<Weak<Inner>>,
    known: RwLock<Known>,
    /// Why nothing reaches it any more; set once.
    gone: OnceLock<AgentError>,
    /// The connection to it.
    pub(crate) slot: Slot,
    /// Its process, once that is proven.
    pub(crate) process: Mutex<Option<Arc<Process>>>,
    /// The queue pairs to it that the host posts to.
    pub(crate) pairs: Pairs,
    /// Those that kernels post to.
    pub(crate) kernel_pairs: Pairs,
    /// The TCP sockets to it.
    pub(crate) sockets: Sockets,
}

/// What is known of a peer's memory.
#[derive(Default)]
struct Known {
    memories: FxHashMap<u32, Arc<PeerMemory>>,
    /// Numbers of memory that was deregistered before its metadata came.
    dead: Numbers,
}

impl Peer {
    pub(crate) fn new(metadata: &Metadata, here: Option<Weak<Inner>>) -> Self {
        Self {
            owner: Owner { name: metadata.name.clone(), generation: metadata.generation },
            contact: metadata.contact.clone(),
            here,
            known: RwLock::default(),
            gone: OnceLock::new(),
            slot: Slot::default(),
            process: Mutex::default(),
            pairs: Pairs::new(Poster::Host),
            kernel_pairs: Pairs::new(Poster::Kernels),
            sockets: Sockets::default(),
        }
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is said of its memory. Of full metadata, what is missing is no longer registered.
    pub(crate) fn learn(&self, metadata: Metadata) {
        if metadata.content == Content::Full {
            let live: Vec<u32> = metadata.memories.iter().map(|memory| memory.id).collect();
            self.only(&live);
        }
        let mut known = self.known_mut();
        for info in metadata.memories {
            if known.dead.contains(info.id) {
                continue;
            }
            // A number never changes its meaning, so what is known stays, with its paths.
            known.memories.entry(info.id).or_insert_with(|| {
                let (id, label, len) = (info.id, info.label.clone(), info.offer.len());
                let extent = Extent { owner: self.owner.clone(), id, label, len };
                Arc::new(PeerMemory::new(extent, info))
            });
        }
    }

    /// No other memory than this is registered now.
    pub(crate) fn only(&self, live: &[u32]) {
        let live: FxHashSet<_> = live.iter().collect();
        self.known_mut().memories.retain(|id, memory| {
            let keep = live.contains(id);
            if !keep {
                memory.revoke();
            }
            keep || !memory.is_idle()
        });
    }

    /// The peer has deregistered memory.
    pub(crate) fn revoke(&self, id: u32) {
        let mut known = self.known_mut();
        if let Some(memory) = known.memories.get(&id) {
            memory.revoke();
        }
        known.dead.insert(id);
    }

    /// Whether this process copies nothing to or from deregistered memory; it is then forgotten.
    pub(crate) fn is_idle_at(&self, id: u32) -> bool {
        let mut known = self.known_mut();
        let idle = known.memories.get(&id).is_none_or(|memory| memory.is_idle());
        if idle {
            known.memories.remove(&id);
        }
        idle
    }

    /// Whether this process copies nothing to or from its memory.
    pub(crate) fn is_idle(&self) -> bool {
        self.known().memories.values().all(|memory| memory.is_idle())
    }

    pub(crate) fn memory(&self, id: u32) -> Result<Arc<PeerMemory>, AgentError> {
        self.check()?;
        let found = self.known().memories.get(&id).cloned();
        found.ok_or_else(|| self.unknown(format!("number {id}")))
    }

    pub(crate) fn memory_called(&self, label: &str) -> Result<Arc<PeerMemory>, AgentError> {
        self.check()?;
        let known = self.known();
        // Of several, the one that was registered last.
        let found = known.memories.values().filter(|memory| &*memory.extent.label == label);
        let found = found.max_by_key(|memory| memory.extent.id).cloned();
        found.ok_or_else(|| self.unknown(format!("{label:?}")))
    }

    fn unknown(&self, memory: String) -> AgentError {
        AgentError::UnknownMemory { peer: self.owner.to_string(), memory }
    }

    /// Whether it can be reached at all.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        self.gone.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    /// Ends its use. The first reason stays.
    pub(crate) fn lose(&self, why: AgentError) {
        let _ = self.gone.set(why.clone());
        self.sockets.close();
        for memory in self.known().memories.values() {
            memory.revoke();
        }
        // A thread that is connecting sees that the peer is gone.
        if let Some(link) = self.slot.link() {
            link.lose(why);
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({}, gone {:?})", self.owner, self.gone.get())
    }
}

/// Memory of a peer, as transfers hold it.
pub(crate) struct PeerMemory {
    pub(crate) extent: Extent,
    pub(crate) info: MemoryInfo,
    revoked: AtomicBool,
    /// Copies by the kernel that this process has under way.
    leases: AtomicU32,
    /// How it is reached from memory of a kind.
    pub(crate) routes: Mutex<FxHashMap<Place, Arc<Made<Arc<Route>>>>>,
    /// What its owner has proven.
    proven: Made<Arc<Proven>>,
    /// The memory mapped here, or its key; found out once.
    range: OnceLock<RemoteRange>,
    /// Its key for TCP connections, once it was asked for.
    pub(crate) tcp_key: OnceLock<TcpKey>,
}

impl PeerMemory {
    fn new(extent: Extent, info: MemoryInfo) -> Self {
        let (revoked, leases) = (AtomicBool::new(false), AtomicU32::new(0));
        let (routes, proven) = (Mutex::default(), Made::default());
        let (range, tcp_key) = (OnceLock::new(), OnceLock::new());
        Self { extent, info, revoked, leases, routes, proven, range, tcp_key }
    }

    /// The owner no longer has it registered: no copy begins after this.
    pub(crate) fn revoke(&self) {
        // Sequentially consistent, as is all of `lease`: either a lease sees this, or whoever looks
        // at `leases` after this sees the lease.
        self.revoked.store(true, Ordering::SeqCst);
    }

    pub(crate) fn made_proof(&self) -> &Made<Arc<Proven>> {
        &self.proven
    }

    /// The memory mapped here, or its key, or why there is neither.
    pub(crate) fn range(
        &self,
        agent: &Arc<Inner>,
        peer: &Arc<Peer>,
        until: Instant,
    ) -> Result<&RemoteRange, AgentError> {
        if let Some(range) = self.range.get() {
            return Ok(range);
        }
        let (own, theirs) = (&agent.contact.introduction.identity, &peer.contact.introduction);
        let nothing = Trust::Proven { secrets: [0; 32].into(), process: Err("nothing is proven") };
        let possible = self.info.offer.is_mappable() && own.may_share(&theirs.identity).is_ok();
        let proven;
        let direct = match agent.config.allows(PathKind::Mapped) {
            false => Err(Reason::new(PathKind::Mapped.to_string(), EXCLUDED)),
            // The reasons are found before anything is asked for.
            true if !possible => Ok(nothing),
            true => {
                proven = self.proven(agent, peer, until)?;
                Ok(proven.trust())
            }
        };
        let device = if self.info.place == Place::Host { &agent.host } else { &agent.gpu };
        let range = reach(&**device, own, theirs, &self.info.offer, direct, until);
        Ok(self.range.get_or_init(|| range))
    }

    fn is_idle(&self) -> bool {
        self.leases.load(Ordering::SeqCst) == 0
    }

    /// The owner keeps the memory in place as long as the lease lives.
    pub(crate) fn lease(self: &Arc<Self>, peer: &Peer) -> Result<Lease, AgentError> {
        self.leases.fetch_add(1, Ordering::SeqCst);
        let lease = Lease(self.clone());
        peer.check()?;
        self.check()?;
        Ok(lease)
    }

    /// Whether the owner still has it registered, as far as is known.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        match self.revoked.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(self.extent.deregistered()),
        }
    }
}

/// A copy under way, to or from memory of a peer.
pub(crate) struct Lease(Arc<PeerMemory>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.leases.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Memory of a peer, from which lists of blocks are made.
#[derive(Clone)]
pub struct RemoteMemory(pub(crate) Arc<PeerMemory>);

impl RemoteMemory {
    /// The owner's number of it.
    pub fn id(&self) -> u32 {
        self.0.extent.id
    }

    /// The owner's name for it.
    pub fn label(&self) -> &str {
        &self.0.extent.label
    }

    /// Whose it is.
    pub fn owner(&self) -> &Owner {
        &self.0.extent.owner
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.0.extent.len
    }

    /// Whether there are no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `count` blocks of `len` bytes, one after the other from `offset` on.
    ///
    /// # Errors
    /// There are none, or they are not inside the memory.
    pub fn blocks(&self, offset: u64, len: u64, count: usize) -> Result<BlockList, AgentError> {
        self.0.extent.run(offset, len, len, count)
    }

    /// `count` blocks of `len` bytes, each `stride` bytes after the one before it.
    ///
    /// # Errors
    /// There are none, or they are not inside the memory.
    pub fn strided(
        &self,
        offset: u64,
        len: u64,
        stride: u64,
        count: usize,
    ) -> Result<BlockList, AgentError> {
        self.0.extent.run(offset, len, stride, count)
    }

    /// Blocks of `len` bytes at each of `offsets`.
    ///
    /// # Errors
    /// There are none, or they are not inside the memory.
    pub fn blocks_at(&self, offsets: &[u64], len: u64) -> Result<BlockList, AgentError> {
        self.0.extent.at(offsets, len)
    }
}

impl fmt::Debug for RemoteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (label, owner, len) = (self.label(), self.owner(), self.len());
        write!(f, "RemoteMemory({label:?} of {owner}, {len} bytes)")
    }
}
