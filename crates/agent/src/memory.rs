//! Memory of this agent.

use crate::AgentError;
use crate::control::Revoked;
use crate::lock;
use crate::metadata::MemoryInfo;
use crate::plan::list::Extent;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
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

/// Memory of this agent, as transfers and peers hold it.
pub(crate) struct LocalMemory {
    pub(crate) extent: Extent,
    pub(crate) buffer: Buffer,
    /// For the GPU of this agent.
    pub(crate) view: KernelView,
    live: AtomicBool,
    /// The means by which peers reach it, until it is deregistered.
    exported: Mutex<Option<Exported>>,
    /// Its registration with each NIC of this agent, until it is deregistered.
    keys: Mutex<Vec<Arc<MemoryRegion>>>,
    /// Its key for TCP connections, once a peer has asked for it.
    tcp: Mutex<Option<TcpKey>>,
}

impl LocalMemory {
    /// `keys`: one for each NIC, of which `exported` has the first.
    pub(crate) fn new(extent: Extent, exported: Exported, keys: Vec<Arc<MemoryRegion>>) -> Self {
        let buffer = exported.buffer().clone();
        let (exported, keys) = (Mutex::new(Some(exported)), Mutex::new(keys));
        let (view, live) = (KernelView::default(), AtomicBool::new(true));
        Self { extent, buffer, view, live, exported, keys, tcp: Mutex::default() }
    }

    fn exported(&self) -> MutexGuard<'_, Option<Exported>> {
        lock(&self.exported)
    }

    pub(crate) fn region(&self) -> &Region {
        self.buffer.region()
    }

    /// Whether it is registered. Memory that is not stays in place as long as this value lives.
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
            *key = Some(register(self.region())?);
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
        let region = self.region();
        Some(MemoryInfo {
            id: self.extent.id,
            label: self.extent.label.clone(),
            addr: region.addr(),
            place: region.kind().into(),
            offer: self.exported().as_ref()?.offer().clone(),
            rails: self.keys().iter().skip(1).map(|key| key.remote().to_bytes()).collect(),
        })
    }
}

/// Deregistered memory. The connection of each peer that could access it holds it until the peer confirms
/// that it no longer does.
pub(crate) struct Kept {
    memory: Arc<LocalMemory>,
    /// With the last of them it ends, though transfers of this agent may hold the memory.
    _tcp: Option<TcpKey>,
}

impl Kept {
    /// Keeps memory that is retired.
    pub(crate) fn new(memory: &Arc<LocalMemory>) -> Arc<Self> {
        let tcp = lock(&memory.tcp).take();
        Arc::new(Self { memory: memory.clone(), _tcp: tcp })
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
