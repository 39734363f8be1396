//! The registered memory of an agent, and the table of this process' agents.

use crate::codec::EncodingError;
use crate::control::{Control, Remote, Revoked};
use crate::deadline::Deadline;
use crate::gone::Gone;
use crate::memory::{Kept, LocalMemory, Memory};
use crate::metadata::{Contact, Content, MemoryInfo, Metadata, NAMES, check_name};
use crate::names::Owner;
use crate::plan::list::{BlockList, Extent};
use crate::{AgentError, lock};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;
use warpverbs_gpu::{Buffer, GpuKind};
use warpverbs_peer::Exporter;
use warpverbs_transport::{Access, Device, MemoryRegion};

/// A name, and which start of that agent.
type Start = (Arc<str>, [u8; 16]);

/// The agents of this process.
static AGENTS: Mutex<BTreeMap<Start, Weak<Memories>>> = Mutex::new(BTreeMap::new());

fn start(owner: &Owner) -> Start {
    (owner.name.clone(), owner.generation.to_bytes())
}

/// The memory of an agent of this process.
pub(crate) fn of_this_process(owner: &Owner) -> Option<Weak<Memories>> {
    lock(&AGENTS).get(&start(owner)).cloned()
}

pub(crate) struct Memories {
    pub(crate) owner: Owner,
    /// The kind of device that kernels of this agent run on.
    pub(crate) device: GpuKind,
    token: Vec<u8>,
    pub(crate) contact: Contact,
    nics: Vec<Device>,
    exporter: Exporter,
    control: Arc<Control>,
    table: RwLock<Table>,
    /// Metadata of all memory, with the number of changes that it includes.
    told: Mutex<Option<(u64, Arc<[u8]>)>>,
    next: AtomicU32,
    /// The agent as its own peer.
    itself: OnceLock<Weak<dyn Remote>>,
}

#[derive(Default)]
struct Table {
    all: FxHashMap<u32, Arc<LocalMemory>>,
    changes: u64,
    /// Of all of them.
    bytes: u64,
}

impl Memories {
    /// Makes the table of an agent, which other agents of this process find from now on.
    pub(crate) fn new(
        control: Arc<Control>,
        exporter: Exporter,
        device: GpuKind,
        (nics, advertise): (Vec<Device>, &[std::net::SocketAddr]),
    ) -> Arc<Self> {
        let own = &control.own;
        let addresses = match advertise.is_empty() {
            true => control.addresses(),
            false => advertise.to_vec(),
        };
        let introduction = exporter.introduction().clone().without_secrets();
        let contact = Contact { addresses, introduction, secret: own.secret.clone() };
        let memories = Arc::new(Self {
            owner: own.owner.clone(),
            device,
            token: own.token.clone(),
            contact,
            nics,
            exporter,
            control: control.clone(),
            table: RwLock::default(),
            told: Mutex::default(),
            next: AtomicU32::new(0),
            itself: OnceLock::new(),
        });
        lock(&AGENTS).insert(start(&memories.owner), Arc::downgrade(&memories));
        memories
    }

    /// Removes it from the agents of this process.
    pub(crate) fn leave(&self) {
        lock(&AGENTS).remove(&start(&self.owner));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.changes += 1;
        change(&mut table)
    }

    /// How much is registered: how many memories, and their bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.look(|table| (table.all.len() as u64, table.bytes))
    }

    fn look<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers with the NICs, and offers to other processes, what can be.
    pub(crate) fn register(
        self: &Arc<Self>,
        memory: Memory,
        label: &str,
    ) -> Result<Registration, AgentError> {
        let buffer = memory.0;
        let wrong = |field, value: String, expected| AgentError::Config { field, value, expected };
        check_name("label", label).map_err(|_| wrong("label", format!("{label:?}"), NAMES))?;
        let len = buffer.len() as u64;
        if len == 0 {
            return Err(wrong("length", "0".into(), "at least 1 byte"));
        }
        let (gone, presence) = Gone::new();
        let buffer = buffer.kept_with(presence);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let access = access | Access::REMOTE_ATOMIC;
        let register = |nic: &Device| nic.register(buffer.clone(), access).map(Arc::new);
        let keys = self.nics.iter().map(register).collect::<Result<Vec<_>, _>>()?;
        let exported = self.exporter.export(buffer.clone(), keys.first().cloned());
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let extent = Extent { owner: self.owner.clone(), id, label: label.into(), len };
        let memory = Arc::new(LocalMemory::new(extent, exported, keys, gone));
        self.change(|table| {
            table.bytes += len;
            table.all.insert(id, memory.clone())
        });
        Ok(Registration { memory, buffer, of: Arc::downgrade(self) })
    }

    /// Takes memory out of the table, and has peers say when they do not touch it any more.
    fn forget(&self, memory: &Arc<LocalMemory>) {
        let id = memory.extent.id;
        let taken = self.change(|table| {
            table.all.remove(&id).inspect(|memory| table.bytes -= memory.extent.len)
        });
        if taken.is_some() {
            if let Some(itself) = self.itself.get().and_then(Weak::upgrade) {
                itself.revoke(id);
                itself.is_idle_at(id);
            }
            let kept: Arc<dyn Revoked> = Kept::new(memory);
            self.control.revoke(&kept);
        }
    }

    pub(crate) fn memory(&self, id: u32) -> Result<Arc<LocalMemory>, AgentError> {
        self.look(|table| table.all.get(&id).cloned()).ok_or_else(|| AgentError::Deregistered {
            owner: self.owner.to_string(),
            label: format!("number {id}"),
        })
    }

    /// The agent as its own peer, which is told of memory that is deregistered.
    pub(crate) fn tell_of_ends(&self, itself: &Arc<dyn Remote>) {
        let _ = self.itself.set(Arc::downgrade(itself));
    }

    /// All memory, with the number of changes of the table, unless that is known.
    pub(crate) fn changed_since(&self, known: u64) -> Option<(u64, Vec<MemoryInfo>)> {
        self.look(|table| {
            let all = || table.all.values().filter_map(|one| one.info()).collect();
            (table.changes != known).then(|| (table.changes, all()))
        })
    }

    /// Numbers of all registered memory.
    pub(crate) fn registered(&self) -> Vec<u32> {
        self.look(|table| table.all.keys().copied().collect())
    }

    /// Ends all registrations.
    pub(crate) fn end_all(&self) -> Vec<Arc<dyn Revoked>> {
        let all = self.change(|table| {
            table.bytes = 0;
            std::mem::take(&mut table.all)
        });
        let end = |memory: &Arc<LocalMemory>| {
            memory.retire();
            Kept::new(memory) as Arc<dyn Revoked>
        };
        all.values().map(end).collect()
    }

    /// Metadata with some of the memory, or none.
    pub(crate) fn tell(
        &self,
        content: Content,
        memories: Vec<MemoryInfo>,
    ) -> Result<Vec<u8>, EncodingError> {
        let (name, generation) = (self.owner.name.clone(), self.owner.generation);
        let contact = self.contact.clone();
        Metadata { name, generation, content, contact, memories }.to_bytes(&self.token)
    }

    /// Metadata of all memory, which is kept until that changes.
    pub(crate) fn tell_all(&self) -> Result<Arc<[u8]>, EncodingError> {
        let mut told = lock(&self.told);
        let known = told.as_ref().map(|(then, _)| *then);
        let (changes, all) = self.look(|table| {
            let fresh = known == Some(table.changes);
            let all = (!fresh).then(|| table.all.values().filter_map(|one| one.info()).collect());
            (table.changes, all)
        });
        let mut all: Vec<MemoryInfo> = match (all, &*told) {
            (Some(all), _) => all,
            (None, Some((_, bytes))) => return Ok(bytes.clone()),
            (None, None) => Vec::new(),
        };
        all.sort_by_key(|memory| memory.id);
        let bytes: Arc<[u8]> = self.tell(Content::Full, all)?.into();
        *told = Some((changes, bytes.clone()));
        Ok(bytes)
    }
}

/// Registered memory. Dropping it deregisters: new transfers are refused, here and at peers that are
/// connected; the memory itself is freed once no transfer can access it, which
/// [`Registration::deregister`] waits for.
pub struct Registration {
    memory: Arc<LocalMemory>,
    buffer: Buffer,
    of: Weak<Memories>,
}

impl Registration {
    pub(crate) fn memory(&self) -> &Arc<LocalMemory> {
        &self.memory
    }

    /// Its number, unique among those of this agent.
    pub fn id(&self) -> u32 {
        self.memory.extent.id
    }

    /// The name it was registered under.
    pub fn label(&self) -> &str {
        &self.memory.extent.label
    }

    /// The bytes, for kernels and for copies by the host.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Its registration with the agent's first NIC, if that was given one.
    pub fn nic(&self) -> Option<Arc<MemoryRegion>> {
        self.memory.keys().into_iter().next()
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.memory.extent.len
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
        self.memory.extent.run(offset, len, len, count)
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
        self.memory.extent.run(offset, len, stride, count)
    }

    /// Blocks of `len` bytes at each of `offsets`.
    ///
    /// # Errors
    /// There are none, or they are not inside the memory.
    pub fn blocks_at(&self, offsets: &[u64], len: u64) -> Result<BlockList, AgentError> {
        self.memory.extent.at(offsets, len)
    }

    /// Copies bytes in; waits for the GPU's copy engine if it is its memory.
    ///
    /// # Errors
    /// The range is not inside the memory, or the copy engine failed.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), AgentError> {
        Ok(self.buffer.region().write_through(offset, data)?)
    }

    /// Copies bytes out; waits for the GPU's copy engine if it is its memory.
    ///
    /// # Errors
    /// The range is not inside the memory, or the copy engine failed.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), AgentError> {
        Ok(self.buffer.region().read_through(offset, out)?)
    }

    /// A copy of all bytes, as [`Self::read`] makes it.
    ///
    /// # Errors
    /// The copy engine failed.
    pub fn to_vec(&self) -> Result<Vec<u8>, AgentError> {
        let mut bytes = vec![0; self.len() as usize];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }
}

impl Registration {
    /// Deregisters, and waits until nothing can access the memory any more: no transfer, here or at a peer,
    /// no key, no mapping that the library has made. After that its owner may free it. Transfers and prepared
    /// lists that name it may stay; to post one of them is refused with [`AgentError::Deregistered`].
    ///
    /// Not from a waker, which the agent's thread may call.
    ///
    /// # Errors
    /// [`AgentError::InUse`] names who has not ended after `timeout`. The memory is deregistered, but is
    /// kept, with its owner, until they have.
    pub fn deregister(self, timeout: Duration) -> Result<(), AgentError> {
        let (memory, of, deadline) =
            (self.memory.clone(), self.of.clone(), Deadline::after(timeout));
        drop(self);
        // A post that was at its lists has perhaps left them.
        const LOOK: Duration = Duration::from_millis(2);
        while !memory.gone.wait(&deadline, LOOK) {
            memory.end_lists();
            if deadline.0.passed() && !memory.gone.wait(&deadline, Duration::ZERO) {
                let id = memory.extent.id;
                let by = of.upgrade().map(|of| of.control.holders(id)).unwrap_or_default();
                return Err(AgentError::InUse {
                    label: memory.extent.label.to_string(),
                    owner: memory.extent.owner.to_string(),
                    by,
                    after: timeout,
                });
            }
        }
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.memory.retire();
        if let Some(memories) = self.of.upgrade() {
            memories.forget(&self.memory);
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registration({:?}, {:?})", self.label(), self.buffer.region())
    }
}
