//! Memory of this agent.

use crate::AgentError;
use crate::control::Revoked;
use crate::gone::Gone;
use crate::metadata::MemoryInfo;
use crate::plan::list::Extent;
use crate::{lock, try_lock};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use warpverbs_gpu::{Buffer, Gpu, GpuError, GpuKind};
use warpverbs_mem::{Kind, Region, VecBuf};
use warpverbs_peer::Exported;
use warpverbs_peer::descriptor::Secrets;
use warpverbs_tcp::RegisteredRegion as TcpKey;
use warpverbs_transport::MemoryRegion;

/// Memory that can be registered: owned, or shared with other owners.
///
/// | from | who owns it | other processes of this machine |
/// |---|---|---|
/// | `Vec<u8>` | the registration | copy it |
/// | [`Region`], [`Buffer`] | all that hold one | map it if it is of an arena or a GPU, else copy it |
pub struct Memory(pub(crate) Buffer);

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        VecBuf::region(bytes).into()
    }
}

impl From<Region> for Memory {
    fn from(region: Region) -> Self {
        Buffer::of_region(region).into()
    }
}

impl From<Buffer> for Memory {
    fn from(buffer: Buffer) -> Self {
        Self(buffer)
    }
}

impl From<&Buffer> for Memory {
    fn from(buffer: &Buffer) -> Self {
        buffer.clone().into()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:?})", self.0)
    }
}

/// Memory as kernels and copy engines of a device reach it. It is made at the first request, which
/// registers host memory with the driver.
#[derive(Default)]
pub(crate) struct KernelView(OnceLock<Buffer>);

impl KernelView {
    /// The view of `buffer`; every call must give the same buffer and device.
    pub(crate) fn get(&self, buffer: &Buffer, gpu: &dyn Gpu) -> Result<Buffer, GpuError> {
        if let Some(view) = self.0.get() {
            return Ok(view.clone());
        }
        let is_host = buffer.region().kind() == Kind::Host;
        let view = match is_host && gpu.info().kind != GpuKind::Simt {
            true => gpu.map(buffer.region())?,
            false => buffer.clone(),
        };
        Ok(self.0.get_or_init(|| view).clone())
    }
}

/// The bytes of registered memory, for those that access them: whoever holds it keeps the memory in place.
pub(crate) struct Held {
    /// For the GPU of this agent. Dropped first.
    pub(crate) view: KernelView,
    pub(crate) buffer: Buffer,
}

impl Held {
    pub(crate) fn region(&self) -> &Region {
        self.buffer.region()
    }
}

/// Where kernels copy, by posts of one transfer: it holds memory.
pub(crate) type Lists = Mutex<Vec<warpverbs_gpu::Blocks>>;

/// Memory of this agent, as transfers and peers know it. It holds the bytes until it is deregistered.
pub(crate) struct LocalMemory {
    pub(crate) extent: Extent,
    pub(crate) kind: Kind,
    addr: u64,
    held: RwLock<Option<Arc<Held>>>,
    live: AtomicBool,
    /// The means by which peers reach it, until it is deregistered.
    exported: Mutex<Option<Exported>>,
    /// Its registration with each NIC of this agent, until it is deregistered.
    keys: Mutex<Vec<Arc<MemoryRegion>>>,
    /// Its key for TCP connections, once a peer has asked for it.
    tcp: Mutex<Option<TcpKey>>,
    /// Lists of transfers, which end with the registration.
    lists: Mutex<Vec<Weak<Lists>>>,
    /// Whether nobody holds the bytes any more.
    pub(crate) gone: Arc<Gone>,
}

impl LocalMemory {
    /// `keys`: one for each NIC, of which `exported` has the first. `gone` is told by the buffer.
    pub(crate) fn new(
        extent: Extent,
        exported: Exported,
        keys: Vec<Arc<MemoryRegion>>,
        gone: Arc<Gone>,
    ) -> Self {
        let buffer = exported.buffer().clone();
        let (kind, addr) = (buffer.region().kind(), buffer.region().addr());
        let held = Arc::new(Held { view: KernelView::default(), buffer });
        Self {
            extent,
            kind,
            addr,
            held: RwLock::new(Some(held)),
            live: AtomicBool::new(true),
            exported: Mutex::new(Some(exported)),
            keys: Mutex::new(keys),
            tcp: Mutex::default(),
            lists: Mutex::default(),
            gone,
        }
    }

    fn exported(&self) -> MutexGuard<'_, Option<Exported>> {
        lock(&self.exported)
    }

    /// The bytes, unless it has been deregistered.
    pub(crate) fn hold(&self) -> Result<Arc<Held>, AgentError> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let held = held.as_ref().filter(|_| self.live.load(Ordering::Acquire));
        held.cloned().ok_or_else(|| self.extent.deregistered())
    }

    /// Whether it is registered.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        // Acquire, pairs with `retire`.
        match self.live.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(self.extent.deregistered()),
        }
    }

    /// Deregisters it. Its key becomes invalid now, unless a transfer of this agent still needs it.
    pub(crate) fn retire(&self) {
        self.live.store(false, Ordering::Release);
        // Dropped after the locks are released.
        let exported = self.exported().take();
        let keys = std::mem::take(&mut *lock(&self.keys));
        drop((exported, keys));
        self.end_lists();
    }

    /// Has its end be the end of these lists, to which a post adds.
    pub(crate) fn ends(&self, lists: &Arc<Lists>) {
        let mut all = lock(&self.lists);
        if all.len() == all.capacity() {
            all.retain(|one| one.strong_count() > 0);
        }
        all.push(Arc::downgrade(lists));
    }

    /// A post has left its lists, which end if the registration has ended meanwhile.
    pub(crate) fn left(&self) {
        if self.check().is_err() {
            self.end_lists();
        }
    }

    /// Empties the lists that no post is at.
    pub(crate) fn end_lists(&self) {
        let all = std::mem::take(&mut *lock(&self.lists));
        for lists in all.iter().filter_map(Weak::upgrade) {
            // Memory is given up after the lock is released.
            let taken = try_lock(&lists).map(|mut lists| std::mem::take(&mut *lists));
            if taken.is_none() {
                lock(&self.lists).push(Arc::downgrade(&lists));
            }
        }
    }

    /// Its registrations in order of the NICs; none if it was deregistered.
    pub(crate) fn keys(&self) -> Vec<Arc<MemoryRegion>> {
        lock(&self.keys).clone()
    }

    /// The key by which peers read and write it over TCP, as it travels.
    pub(crate) fn tcp_key(
        &self,
        register: impl FnOnce(&Region) -> Result<TcpKey, String>,
    ) -> Result<Vec<u8>, String> {
        let mut key = lock(&self.tcp);
        // Under the lock: `Kept::new` finds the key, or this call finds the end of the registration.
        self.check().map_err(|error| error.to_string())?;
        if key.is_none() {
            let held = self.hold().map_err(|error| error.to_string())?;
            *key = Some(register(held.region())?);
        }
        Ok(key.as_ref().map_or_else(Vec::new, |key| key.remote().to_bytes().to_vec()))
    }

    /// Hands its descriptors to a peer that shows these secrets.
    pub(crate) fn grant(&self, secrets: Secrets) {
        if let Some(exported) = &*self.exported() {
            exported.grant(secrets);
        }
    }

    /// For peers, unless it has been deregistered.
    pub(crate) fn info(&self) -> Option<MemoryInfo> {
        Some(MemoryInfo {
            id: self.extent.id,
            label: self.extent.label.clone(),
            addr: self.addr,
            place: self.kind.into(),
            offer: self.exported().as_ref()?.offer().clone(),
            rails: self.keys().iter().skip(1).map(|key| key.remote().to_bytes()).collect(),
        })
    }
}

/// Deregistered memory. The connection of each peer that could access it holds it until the peer confirms
/// that it no longer does.
pub(crate) struct Kept {
    memory: Arc<LocalMemory>,
    /// With the last of them it ends. Before the bytes.
    _tcp: Option<TcpKey>,
    _held: Option<Arc<Held>>,
}

impl Kept {
    /// Takes the bytes of memory that is retired.
    pub(crate) fn new(memory: &Arc<LocalMemory>) -> Arc<Self> {
        let tcp = lock(&memory.tcp).take();
        let held = memory.held.write().unwrap_or_else(PoisonError::into_inner).take();
        Arc::new(Self { memory: memory.clone(), _tcp: tcp, _held: held })
    }
}

impl Revoked for Kept {
    fn id(&self) -> u32 {
        self.memory.extent.id
    }

    fn label(&self) -> &str {
        &self.memory.extent.label
    }
}
