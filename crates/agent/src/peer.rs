//! Other agents, as their metadata describes them.

use crate::AgentError;
use crate::agent::Inner;
use crate::list::{BlockList, Extent, Owner};
use crate::metadata::{Contact, Content, MemoryInfo, Metadata, Place};
use crate::path::Route;
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// One generation of another agent.
pub(crate) struct Peer {
    pub(crate) owner: Owner,
    pub(crate) contact: Contact,
    /// If it is in this process.
    pub(crate) here: Option<Weak<Inner>>,
    memories: RwLock<FxHashMap<u32, Arc<PeerMemory>>>,
    /// Why nothing reaches it any more; set once.
    gone: OnceLock<AgentError>,
}

impl Peer {
    pub(crate) fn new(metadata: &Metadata, here: Option<Weak<Inner>>) -> Self {
        Self {
            owner: Owner { name: metadata.name.clone(), generation: metadata.generation },
            contact: metadata.contact.clone(),
            here,
            memories: RwLock::default(),
            gone: OnceLock::new(),
        }
    }

    /// Takes what is said of its memory. Of full metadata, what is missing is no longer registered.
    pub(crate) fn learn(&self, metadata: Metadata) {
        let mut memories = self.memories.write().unwrap_or_else(PoisonError::into_inner);
        if metadata.content == Content::Full {
            let named: Vec<u32> = metadata.memories.iter().map(|memory| memory.id).collect();
            memories.retain(|id, memory| {
                let keep = named.contains(id);
                if !keep {
                    memory.revoke();
                }
                keep
            });
        }
        for info in metadata.memories {
            // A number never changes its meaning, so what is known stays, with its paths.
            memories.entry(info.id).or_insert_with(|| {
                let (id, label, len) = (info.id, info.label.clone(), info.len);
                let extent = Extent { owner: self.owner.clone(), id, label, len };
                Arc::new(PeerMemory::new(extent, info))
            });
        }
    }

    pub(crate) fn memory(&self, id: u32) -> Result<Arc<PeerMemory>, AgentError> {
        self.check()?;
        let memories = self.memories.read().unwrap_or_else(PoisonError::into_inner);
        memories.get(&id).cloned().ok_or_else(|| self.unknown(format!("number {id}")))
    }

    pub(crate) fn memory_called(&self, label: &str) -> Result<Arc<PeerMemory>, AgentError> {
        self.check()?;
        let memories = self.memories.read().unwrap_or_else(PoisonError::into_inner);
        // Of several, the one that was registered last.
        let found = memories.values().filter(|memory| &*memory.extent.label == label);
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
        let _ = self.gone.set(why);
        for memory in self.memories.read().unwrap_or_else(PoisonError::into_inner).values() {
            memory.revoke();
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
    /// How it is reached from memory of a kind.
    pub(crate) routes: Mutex<FxHashMap<Place, Arc<Route>>>,
}

impl PeerMemory {
    fn new(extent: Extent, info: MemoryInfo) -> Self {
        Self { extent, info, revoked: AtomicBool::new(false), routes: Mutex::default() }
    }

    /// The owner no longer has it registered: no copy begins after this.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::SeqCst);
    }

    /// Whether the owner still has it registered, as far as is known.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        match self.revoked.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(self.deregistered()),
        }
    }

    pub(crate) fn deregistered(&self) -> AgentError {
        let (owner, label) = (self.extent.owner.to_string(), self.extent.label.to_string());
        AgentError::Deregistered { owner, label }
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
