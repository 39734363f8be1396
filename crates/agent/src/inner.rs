//! What the calls and the control thread of an agent share.

use crate::control::Control;
use crate::control::link::ended;
use crate::control::services::Revoked;
use crate::list::{Extent, Owner};
use crate::lock;
use crate::memory::{Kept, LocalMemory, Memory};
use crate::metadata::{Contact, Content, Generation, Metadata, check_name};
use crate::path::network::Answering;
use crate::path::tcp::Serving;
use crate::path::{Pair, Route, until};
use crate::peer::{Peer, PeerMemory};
use crate::stream::Offered;
use crate::{AgentConfig, AgentError};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use warpverbs_devmem::transport::Receive;
use warpverbs_gpu::{Gpu, GpuChoice, GpuKind};
use warpverbs_peer::Exporter;
use warpverbs_transport::{Access, Device};

pub(crate) struct Inner {
    pub(crate) owner: Owner,
    pub(crate) config: AgentConfig,
    pub(crate) gpu: Arc<dyn Gpu>,
    /// The host SIMT device, which maps host memory of other processes. `gpu` itself if that is it.
    pub(crate) host: Arc<dyn Gpu>,
    pub(crate) contact: Contact,
    exporter: Exporter,
    memories: RwLock<FxHashMap<u32, Arc<LocalMemory>>>,
    /// Counts changes of `memories`, under its lock.
    changes: AtomicU64,
    /// Metadata of all memory, as it was after so many changes.
    told: Mutex<Option<(u64, Arc<[u8]>)>>,
    next: AtomicU32,
    peers: RwLock<HashMap<Arc<str>, Arc<Peer>>>,
    /// Metadata has been loaded.
    news: Condvar,
    news_lock: Mutex<()>,
    pub(crate) control: Control,
    pub(crate) answering: Answering,
    pub(crate) serving: Serving,
    /// Where connections over TCP receive, once one was asked for.
    pub(crate) tcp_receive: OnceLock<Receive>,
    pub(crate) streams: Arc<Offered>,
}

/// A name, and which start of that agent.
type Start = (Arc<str>, [u8; 16]);

/// The agents of this process.
static AGENTS: Mutex<BTreeMap<Start, Weak<Inner>>> = Mutex::new(BTreeMap::new());

fn agents() -> MutexGuard<'static, BTreeMap<Start, Weak<Inner>>> {
    lock(&AGENTS)
}

fn start(owner: &Owner) -> Start {
    (owner.name.clone(), owner.generation.to_bytes())
}

fn unknown(name: &str) -> AgentError {
    AgentError::UnknownPeer { name: name.to_owned() }
}

impl Inner {
    pub(crate) fn new(name: &str, config: AgentConfig) -> Result<Arc<Self>, AgentError> {
        let expected = "1 to 256 bytes";
        let value = format!("{name:?}");
        check_name("name", name).map_err(|_| AgentError::Config {
            field: "name",
            value,
            expected,
        })?;
        config.check()?;
        let (gpu, host) = match &config.gpu {
            Some(gpu) if gpu.info().kind == GpuKind::Simt => (gpu.clone(), gpu.clone()),
            Some(gpu) => (gpu.clone(), warpverbs_gpu::open(GpuChoice::Simt)?),
            None => {
                let host = warpverbs_gpu::open(GpuChoice::Simt)?;
                (host.clone(), host)
            }
        };
        let exporter = Exporter::start(&*gpu);
        let exporter = exporter.map_err(|error| AgentError::system("unix socket", error))?;
        let control = Control::new(&config)?;
        let addresses = match config.advertise.is_empty() {
            true => control.addresses(),
            false => config.advertise.clone(),
        };
        let contact = Contact {
            addresses,
            introduction: exporter.introduction().clone().without_secrets(),
            secret: control.secret().clone(),
        };
        let inner = Inner {
            owner: Owner { name: name.into(), generation: Generation::new()? },
            config,
            gpu,
            host,
            contact,
            exporter,
            memories: RwLock::default(),
            changes: AtomicU64::new(0),
            told: Mutex::default(),
            next: AtomicU32::new(0),
            peers: RwLock::default(),
            news: Condvar::new(),
            news_lock: Mutex::new(()),
            control,
            answering: Answering::default(),
            serving: Serving::default(),
            tcp_receive: OnceLock::new(),
            streams: Arc::default(),
        };
        let inner = Arc::new(inner);
        agents().insert(start(&inner.owner), Arc::downgrade(&inner));
        Ok(inner)
    }

    /// Registers with the NIC, and offers to other processes, what can be.
    pub(crate) fn register(
        &self,
        memory: Memory,
        label: &str,
    ) -> Result<Arc<LocalMemory>, AgentError> {
        let buffer = memory.0;
        let wrong = |field, value: String, expected| AgentError::Config { field, value, expected };
        check_name("label", label)
            .map_err(|_| wrong("label", format!("{label:?}"), "1 to 256 bytes"))?;
        let len = buffer.len() as u64;
        if len == 0 {
            return Err(wrong("length", "0".into(), "at least 1 byte"));
        }
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let access = access | Access::REMOTE_ATOMIC;
        let register = |nic: &Device| nic.register(buffer.clone(), access).map(Arc::new);
        let keys = self.config.nics.iter().map(register).collect::<Result<Vec<_>, _>>()?;
        let exported = self.exporter.export(buffer, keys.first().cloned());
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let extent = Extent { owner: self.owner.clone(), id, label: label.into(), len };
        let memory = Arc::new(LocalMemory::new(extent, exported, keys));
        let mut memories = self.memories.write().unwrap_or_else(PoisonError::into_inner);
        memories.insert(id, memory.clone());
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(memory)
    }

    /// Takes memory out of the table, and has peers say when they do not touch it any more.
    pub(crate) fn forget(&self, memory: &Arc<LocalMemory>) {
        let mut memories = self.memories.write().unwrap_or_else(PoisonError::into_inner);
        let known = memories.remove(&memory.extent.id);
        self.changes.fetch_add(1, Ordering::Relaxed);
        drop(memories);
        if known.is_some() {
            let kept: Arc<dyn Revoked> = Kept::new(memory);
            self.control.revoke(&kept);
        }
    }

    pub(crate) fn memory(&self, id: u32) -> Result<Arc<LocalMemory>, AgentError> {
        let memories = self.memories.read().unwrap_or_else(PoisonError::into_inner);
        memories.get(&id).cloned().ok_or_else(|| AgentError::Deregistered {
            owner: self.owner.to_string(),
            label: format!("number {id}"),
        })
    }

    pub(crate) fn tell(
        &self,
        content: Content,
        memories: Vec<crate::metadata::MemoryInfo>,
    ) -> Result<Vec<u8>, AgentError> {
        let (name, generation) = (self.owner.name.clone(), self.owner.generation);
        let metadata =
            Metadata { name, generation, content, contact: self.contact.clone(), memories };
        Ok(metadata.to_bytes(&self.config.token)?)
    }

    /// `brought`: by a connection, of which nothing is known but that its end is of the job. `over`: the
    /// start of the peer that has ended.
    fn learn(
        &self,
        metadata: Metadata,
        owner: Owner,
        brought: bool,
        over: Option<&Owner>,
    ) -> Result<(), AgentError> {
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
            // Hosts' clocks differ. A start that runs is not replaced by whoever can reach this agent,
            // whatever time it gives.
            let stays = match brought {
                true => self.is_alive(known),
                false => found.is_before(&current) && over != Some(&known.owner),
            };
            if stays && known.check().is_ok() {
                return Err(AgentError::Stale { peer, current, found });
            }
            known.lose(AgentError::Stale { peer, current: found, found: current });
            peers.remove(&owner.name);
        }
        if metadata.content == Content::Gone {
            if let Some(known) = peers.remove(&owner.name) {
                let (peer, why) = (
                    owner.to_string(),
                    "the agent has said that it is no longer to be used".to_owned(),
                );
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
        let here = agents().get(&start(&owner)).cloned();
        let peer = Peer::new(&metadata, here);
        peer.learn(metadata);
        peers.insert(owner.name, Arc::new(peer));
        Ok(())
    }

    pub(crate) fn remove_peer(&self, name: &str) -> Result<(), AgentError> {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let known = peers.remove(name).ok_or_else(|| unknown(name))?;
        drop(peers);
        let (peer, why) = (known.owner.to_string(), "it was removed here".to_owned());
        known.lose(AgentError::PeerLost { peer, why });
        Ok(())
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.peer(name).is_ok_and(|peer| peer.check().is_ok())
    }

    pub(crate) fn wait_peer(&self, name: &str, timeout: Duration) -> Result<(), AgentError> {
        let start = Instant::now();
        let mut guard = lock(&self.news_lock);
        while !self.knows(name) {
            let left = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
            let what = || format!("metadata of {name}");
            let late = || AgentError::Timeout { what: what(), after: timeout };
            let left = left.ok_or_else(late)?;
            let waited = self.news.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
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
        let until = until(Instant::now(), self.config.deadline);
        Pair { agent: self, local, peer, remote, until }.route()
    }

    /// Metadata of all memory, which is kept until that changes.
    pub(crate) fn full_metadata(&self) -> Result<Arc<[u8]>, AgentError> {
        let mut told = lock(&self.told);
        let memories = self.memories.read().unwrap_or_else(PoisonError::into_inner);
        let changes = self.changes.load(Ordering::Relaxed);
        if let Some((_, bytes)) = told.as_ref().filter(|(then, _)| *then == changes) {
            return Ok(bytes.clone());
        }
        let mut all: Vec<_> = memories.values().filter_map(|memory| memory.info()).collect();
        drop(memories);
        all.sort_by_key(|memory| memory.id);
        let bytes: Arc<[u8]> = self.tell(Content::Full, all)?.into();
        *told = Some((changes, bytes.clone()));
        Ok(bytes)
    }

    /// Takes metadata, if it is of `from`. That of a start which is older by its host's clock is taken if
    /// the start that is known does not answer.
    pub(crate) fn load(&self, bytes: &[u8], from: Option<&Owner>) -> Result<String, AgentError> {
        match self.take(bytes, from, (false, None)) {
            Err(AgentError::Stale { peer, current, found }) => {
                let known = self.peer(&peer)?;
                if known.owner.generation == current && self.answers(&known) {
                    return Err(AgentError::Stale { peer, current, found });
                }
                self.take(bytes, from, (false, Some(&known.owner)))
            }
            taken => taken,
        }
    }

    /// Takes metadata that `from` has brought by a connection. Waits for nobody.
    pub(crate) fn load_brought(&self, bytes: &[u8], from: &Owner) -> Result<String, AgentError> {
        self.take(bytes, Some(from), (true, None))
    }

    fn take(
        &self,
        bytes: &[u8],
        from: Option<&Owner>,
        (brought, over): (bool, Option<&Owner>),
    ) -> Result<String, AgentError> {
        let metadata = Metadata::from_bytes(bytes, &self.config.token)?;
        let owner = Owner { name: metadata.name.clone(), generation: metadata.generation };
        if let Some(from) = from.filter(|from| **from != owner) {
            let (owner, expected) = (owner.to_string(), from.to_string());
            return Err(AgentError::Foreign { what: "the metadata", owner, expected });
        }
        self.learn(metadata, owner.clone(), brought, over)?;
        // Under the lock, so that no waiter has looked and does not wait yet.
        drop(lock(&self.news_lock));
        self.news.notify_all();
        Ok(owner.name.to_string())
    }

    /// Numbers of all registered memory.
    pub(crate) fn registered(&self) -> Vec<u32> {
        let memories = self.memories.read().unwrap_or_else(PoisonError::into_inner);
        memories.keys().copied().collect()
    }

    /// Ends all registrations.
    pub(crate) fn end_registrations(&self) -> Vec<Arc<LocalMemory>> {
        let mut memories = self.memories.write().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = memories.drain().map(|(_, memory)| memory).collect();
        self.changes.fetch_add(1, Ordering::Relaxed);
        drop(memories);
        all.iter().for_each(|memory| memory.retire());
        all
    }

    pub(crate) fn close(&self) {
        agents().remove(&start(&self.owner));
        self.control.stop();
        self.serving.close();
        // Where there was no thread.
        self.end_registrations();
        self.streams.close(&ended(&self.owner));
        let peers =
            std::mem::take(&mut *self.peers.write().unwrap_or_else(PoisonError::into_inner));
        for peer in peers.values() {
            peer.lose(ended(&self.owner));
        }
    }
}
