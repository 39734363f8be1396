//! Other agents, as their metadata describes them.

use crate::control::{Asked, Control, Link, Remote, connect, ended};
use crate::deadline::Deadline;
use crate::made::Made;
use crate::memories::Memories;
use crate::metadata::{Contact, Content, MemoryInfo, Metadata, Secret};
use crate::names::{Owner, PathKind, Place};
use crate::numbers::Numbers;
use crate::path::Bounces;
use crate::path::network::{Nics, Pairs, Poster};
use crate::path::tcp::{Sockets, Tcp};
use crate::plan::list::Extent;
use crate::proof::Prover;
use crate::quota::{Quota, Share};
use crate::remote::PeerMemory;
use crate::route::Chosen;
use crate::tally;
use crate::{AgentError, lock};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use warpverbs_peer::Identity;

/// The parts of an agent by which it reaches its peers.
pub(crate) struct Ways {
    pub(crate) control: Weak<Control>,
    pub(crate) identity: Identity,
    pub(crate) nics: Arc<Nics>,
    pub(crate) tcp: Arc<Tcp>,
}

/// One generation of another agent.
pub(crate) struct Peer {
    pub(crate) name: Owner,
    pub(crate) contact: Contact,
    /// If it is in this process.
    pub(crate) here: Option<Weak<Memories>>,
    /// It is the agent itself: its memory is known by the agent's own table.
    pub(crate) is_itself: bool,
    known: RwLock<Known>,
    /// The reason why it can no longer be reached; set once.
    gone: OnceLock<AgentError>,
    control: Weak<Control>,
    slot: Made<Arc<Link>>,
    pub(crate) prover: Prover,
    /// The queue pairs to it that the host posts to.
    pub(crate) pairs: Arc<Pairs>,
    /// Those that kernels post to.
    pub(crate) kernel_pairs: Arc<Pairs>,
    pub(crate) sockets: Arc<Sockets>,
    pub(crate) bounces: Bounces,
    /// The paths to it that were told of.
    told: Mutex<Vec<(Place, Place, PathKind)>>,
    /// Of what is kept for others, if a connection has brought it.
    share: Option<Share>,
}

/// All that is known of a peer's memory.
struct Known {
    memories: FxHashMap<u32, Arc<Routed>>,
    /// Numbers of memory that was deregistered before its metadata came.
    dead: Numbers,
    /// Of this state: no other state of any peer has it.
    version: u64,
    /// Changes of the agent's own table that are in it.
    seen: u64,
}

impl Known {
    fn new() -> Self {
        let (memories, dead) = (FxHashMap::default(), Numbers::default());
        let mut known = Self { memories, dead, version: 0, seen: 0 };
        known.renew();
        known
    }

    fn renew(&mut self) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.version = NEXT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Memory of a peer with the ways to it.
pub(crate) struct Routed {
    pub(crate) memory: Arc<PeerMemory>,
    /// Its share of the quota, if its metadata came by a connection.
    _share: Option<Share>,
    /// How it is reached from memory of a kind.
    routes: Mutex<FxHashMap<Place, Arc<Made<Arc<Chosen>>>>>,
}

/// A share for this many bytes, if there is a bound.
fn shared(quota: Option<&Arc<Quota>>, bytes: usize) -> Result<Option<Share>, AgentError> {
    let Some(quota) = quota else { return Ok(None) };
    let full = || AgentError::Full { what: "metadata that peers have brought", bytes };
    quota.take(bytes).ok_or_else(full).map(Some)
}

impl Deref for Routed {
    type Target = PeerMemory;

    fn deref(&self) -> &PeerMemory {
        &self.memory
    }
}

impl Routed {
    /// Bytes that it takes here, about.
    fn weight(info: &MemoryInfo) -> usize {
        size_of::<Self>() + size_of::<PeerMemory>() + encoded(info)
    }

    fn new(owner: &Owner, info: MemoryInfo, share: Option<Share>) -> Arc<Self> {
        let (id, label, len) = (info.id, info.label.clone(), info.offer.len());
        let extent = Extent { owner: owner.clone(), id, label, len };
        let memory = Arc::new(PeerMemory::new(extent, info));
        Arc::new(Self { memory, _share: share, routes: Mutex::default() })
    }

    /// The way from memory of a kind, looked for or not.
    pub(crate) fn route_from(&self, place: Place) -> Arc<Made<Arc<Chosen>>> {
        lock(&self.routes).entry(place).or_default().clone()
    }
}

/// Bytes in memory of what travels, about: lists in it have entries of a few bytes.
fn encoded(what: &impl Serialize) -> usize {
    postcard::experimental::serialized_size(what).unwrap_or(0).saturating_mul(4)
}

impl Peer {
    /// Bytes that a peer without memory takes here, about.
    fn weight(metadata: &Metadata) -> usize {
        const WAYS: usize = 4096;
        size_of::<Self>() + WAYS + encoded(&(&metadata.name, &metadata.contact))
    }

    /// Bytes that metadata takes here, about.
    pub(crate) fn weight_of(metadata: &Metadata) -> usize {
        let memories = metadata.memories.iter().map(Routed::weight);
        memories.fold(Self::weight(metadata), usize::saturating_add)
    }

    /// Within `quota`, unless the program has loaded it.
    pub(crate) fn new(
        metadata: &Metadata,
        here: Option<Weak<Memories>>,
        ways: &Ways,
        quota: Option<&Arc<Quota>>,
    ) -> Result<Self, AgentError> {
        let share = shared(quota, Self::weight(metadata))?;
        Ok(Self {
            name: Owner { name: metadata.name.clone(), generation: metadata.generation },
            contact: metadata.contact.clone(),
            here,
            is_itself: false,
            known: RwLock::new(Known::new()),
            gone: OnceLock::new(),
            control: ways.control.clone(),
            slot: Made::default(),
            prover: Prover::new(&ways.identity, &metadata.contact.introduction.identity),
            pairs: Pairs::new(&ways.nics, Poster::Host),
            kernel_pairs: Pairs::new(&ways.nics, Poster::Kernels),
            sockets: Sockets::new(&ways.tcp),
            bounces: Bounces::default(),
            told: Mutex::default(),
            share,
        })
    }

    /// The agent as a peer of its own. Its memory becomes known when it is asked for.
    pub(crate) fn itself(memories: &Arc<Memories>, ways: &Ways) -> Result<Arc<Self>, AgentError> {
        let Owner { name, generation } = memories.owner.clone();
        let (content, contact) = (Content::Partial, memories.contact.clone());
        let metadata = Metadata { name, generation, content, contact, memories: Vec::new() };
        let here = Some(Arc::downgrade(memories));
        let itself = Arc::new(Self { is_itself: true, ..Self::new(&metadata, here, ways, None)? });
        let known: Arc<dyn Remote> = itself.clone();
        memories.tell_of_ends(&known);
        Ok(itself)
    }

    /// The agent's own table, if it is the agent itself.
    fn own(&self) -> Result<Option<Arc<Memories>>, AgentError> {
        let Some(here) = self.here.as_ref().filter(|_| self.is_itself) else { return Ok(None) };
        here.upgrade().map(Some).ok_or_else(|| ended(&self.name))
    }

    /// Takes what is new in the agent's own table.
    fn look_at_own(&self) -> Result<(), AgentError> {
        let Some(own) = self.own()? else { return Ok(()) };
        if let Some((changes, all)) = own.changed_since(self.look(|known| known.seen)) {
            self.add(all, None)?;
            self.change(|known| {
                known.seen = known.seen.max(changes);
                known.memories.retain(|_, memory| memory.check().is_ok() || !memory.is_idle());
            });
        }
        Ok(())
    }

    /// Whether a connection brought it, and it has been lost since.
    pub(crate) fn is_left_over(&self) -> bool {
        self.share.is_some() && self.gone.get().is_some()
    }

    fn look<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds memory from its metadata, within `quota`. Memory missing from full metadata is deregistered.
    pub(crate) fn learn(
        &self,
        metadata: Metadata,
        quota: Option<&Arc<Quota>>,
    ) -> Result<(), AgentError> {
        if metadata.content == Content::Full {
            let live: Vec<u32> = metadata.memories.iter().map(|memory| memory.id).collect();
            self.only(&live);
        }
        self.add(metadata.memories, quota)
    }

    fn add(&self, mut new: Vec<MemoryInfo>, quota: Option<&Arc<Quota>>) -> Result<(), AgentError> {
        self.change(|known| {
            // A number never changes its meaning, so what is known stays, with its paths.
            new.retain(|info| {
                !known.dead.contains(info.id) && !known.memories.contains_key(&info.id)
            });
            let bytes = new.iter().map(Routed::weight).fold(0, usize::saturating_add);
            let mut share = shared(quota, bytes)?;
            if !new.is_empty() {
                known.renew();
            }
            for info in new {
                let its = share.as_mut().map(|share| share.split(Routed::weight(&info)));
                let memory = known.memories.entry(info.id);
                memory.or_insert_with(|| Routed::new(&self.name, info, its));
            }
            Ok(())
        })
    }

    pub(crate) fn memory(&self, id: u32) -> Result<Arc<Routed>, AgentError> {
        self.check()?;
        let look = || self.look(|known| known.memories.get(&id).cloned());
        let mut found = look();
        if found.is_none()
            && let Some(own) = self.own()?
        {
            let memory = own.memory(id)?;
            let info = memory.info().ok_or_else(|| memory.extent.deregistered())?;
            self.add(vec![info], None)?;
            // Or it was deregistered meanwhile.
            found = Some(look().ok_or_else(|| memory.extent.deregistered())?);
        }
        found.ok_or_else(|| self.unknown(format!("number {id}")))
    }

    pub(crate) fn memory_called(&self, label: &str) -> Result<Arc<Routed>, AgentError> {
        self.check()?;
        self.look_at_own()?;
        // Of several with this label, the one registered last.
        let found = self.look(|known| {
            let found = known.memories.values().filter(|memory| &*memory.extent.label == label);
            let found = found.filter(|memory| !self.is_itself || memory.check().is_ok());
            found.max_by_key(|memory| memory.extent.id).cloned()
        });
        found.ok_or_else(|| self.unknown(format!("{label:?}")))
    }

    /// All that is registered, as far as is known, in order of its numbers.
    pub(crate) fn memories(&self) -> Result<Vec<Arc<Routed>>, AgentError> {
        self.check()?;
        self.look_at_own()?;
        let mut all: Vec<_> = self.look(|known| {
            let live = known.memories.values().filter(|memory| memory.check().is_ok());
            live.cloned().collect()
        });
        all.sort_unstable_by_key(|memory| memory.extent.id);
        Ok(all)
    }

    /// Of what is known of its memory.
    pub(crate) fn version(&self) -> Result<u64, AgentError> {
        self.check()?;
        self.look_at_own()?;
        Ok(self.look(|known| known.version))
    }

    fn unknown(&self, memory: String) -> AgentError {
        AgentError::UnknownMemory { peer: self.name.to_string(), memory }
    }

    /// Whether this path, from memory of a kind to such, was not told of yet. From now on it was.
    pub(crate) fn is_news(&self, path: (Place, Place, PathKind)) -> bool {
        let mut told = lock(&self.told);
        let news = !told.contains(&path);
        if news {
            told.push(path);
        }
        news
    }

    /// It is used no more; whether it was until now. Not counted as a loss: the program wishes it so.
    pub(crate) fn give_up(&self, why: AgentError) -> bool {
        let first = self.gone.set(why.clone()).is_ok();
        self.sockets.close();
        self.look(|known| known.memories.values().for_each(|memory| memory.revoke()));
        // A thread that is connecting sees that the peer is gone.
        if let Some(link) = self.slot.get() {
            link.lose(why);
        }
        first
    }

    /// It as paths see it.
    pub(crate) fn asked(self: &Arc<Self>) -> Arc<dyn Asked> {
        self.clone()
    }
}

impl Asked for Peer {
    fn owner(&self) -> &Owner {
        &self.name
    }

    fn check(&self) -> Result<(), AgentError> {
        self.gone.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    fn lose(&self, why: AgentError) {
        if self.give_up(why)
            && let Some(control) = self.control.upgrade()
            && control.check().is_ok()
        {
            tally::count(&control.tally.peers_lost);
        }
    }

    fn is_connected(&self) -> bool {
        self.is_itself || self.slot.get().is_some()
    }

    fn link(self: Arc<Self>, deadline: &Deadline) -> Result<Arc<Link>, AgentError> {
        let control = self.control.upgrade().ok_or_else(|| ended(&self.name))?;
        if self.is_itself {
            let why = "an agent has no connection to itself".to_owned();
            return Err(AgentError::Refused { peer: self.name.to_string(), why });
        }
        let remote: Arc<dyn Remote> = self;
        connect(&control, &remote, deadline)
    }
}

impl Remote for Peer {
    fn addresses(&self) -> &[SocketAddr] {
        &self.contact.addresses
    }

    fn secret(&self) -> &Secret {
        &self.contact.secret
    }

    fn slot(&self) -> &Made<Arc<Link>> {
        &self.slot
    }

    fn only(&self, live: &[u32]) {
        let live: FxHashSet<_> = live.iter().collect();
        self.change(|known| {
            let mut changed = false;
            known.memories.retain(|id, memory| {
                let keep = live.contains(id);
                if !keep {
                    memory.revoke();
                    changed = true;
                }
                keep || !memory.is_idle()
            });
            if changed {
                known.renew();
            }
        });
    }

    fn revoke(&self, id: u32) {
        self.change(|known| {
            if let Some(memory) = known.memories.get(&id) {
                memory.revoke();
                known.renew();
            }
            known.dead.insert(id);
        });
    }

    /// It is then forgotten.
    fn is_idle_at(&self, id: u32) -> bool {
        self.change(|known| {
            let idle = known.memories.get(&id).is_none_or(|memory| memory.is_idle());
            if idle {
                known.memories.remove(&id);
            }
            idle
        })
    }

    fn is_idle(&self) -> bool {
        self.look(|known| known.memories.values().all(|memory| memory.is_idle()))
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({}, gone {:?})", self.name, self.gone.get())
    }
}
