//! NVIDIA GPUs, through a driver and a compiler that are loaded at run time.
//!
//! Kernels run for long and wait for the NIC, whose copies this crate makes. So nothing here may
//! wait for a kernel, except where it says so:
//!
//! | call | driver calls that may wait for running kernels | what is done about it |
//! |---|---|---|
//! | [`Launch`] polls, copies between host and device, [`Gpu::read`], [`Gpu::write`] | none | streams of their own, never the default stream; DMA engines, and `cuMemset` only where it has room |
//! | copies inside a device or between two | all but those by way of host memory | [by room](CopyPolicy::ByRoom) |
//! | [`Gpu::launch`] | none | a kernel that leaves copies no room starts when those already under way have landed |
//! | dropping any buffer or segment | `cuMemFree`, `cuMemHostUnregister`, `cuIpcCloseMemHandle` (`cuMemUnmap` was not seen to) | put off until no launch runs |
//! | [`Gpu::alloc`], [`Gpu::map`], [`Gpu::enable_peer`], opening a device | `cuCtxEnablePeerAccess`; `cuMemAlloc`, `cuMemHostRegister` and all that [`Gpu::arena`] leads to were not seen to | small device memory is divided here; else call before launching |
//! | [`Gpu::load`] | `cuModuleLoadData`, `cuFuncLoad`, `cuCtxSetLimit` | call before launching |
//!
//! At most eight kernels that wait for one another or for copies should run at once on a device
//! unless `CUDA_DEVICE_MAX_CONNECTIONS` (1 to 32, default 8) says more: beyond it, streams share
//! hardware queues, and a kernel may stand behind one that waits for it.
//!
//! What was measured on which device is in `docs/gpu.md`.

// For `gpu_probe` alone: not part of the interface.
#[doc(hidden)]
pub mod api;
mod arena;
mod cache;
mod compile;
#[doc(hidden)]
pub mod context;
mod copy;
mod copy_policy;
mod counted_stream;
mod deferred_free;
mod dmabuf;
pub(crate) mod find;
mod foreign;
mod heap;
mod launch;
mod module;
mod nvrtc;
mod occupancy;
mod pinned;
mod suballocator;
mod transfer;

pub use cache::{CACHE_ENV, Cache};
pub use compile::{Origin, cubin, options};
pub use copy::{CopyCounts, CopyEngine};
pub use copy_policy::{COPY_ENV, CopyPath, CopyPolicy};
pub use foreign::owner;
pub use nvrtc::{CompileFailure, Compiled, NVRTC_ENV, Nvrtc, nvrtc};

use crate::arena::{Arena, ArenaError};
use crate::buffer::Keep;
use crate::launch::{Dim, Launch};
use crate::{Buffer, Gpu, GpuInfo, GpuKind, Mapping, Place};
use crate::{GpuError, Image, Kernel};
use context::Context;
use heap::Piece;
use launch::{CudaLaunch, Streams};
use module::Function;
use pinned::{Pinned, SharedMem};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use transfer::Transfer;
use warpverbs_mem::{
    Backing, Copier, Dmabuf, Kind, NotExported, Region, Share, ShareHandle, SharePiece,
};

/// The data stays consistent when a holder panics: nothing here panics half way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a device is to be opened.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Where compiled kernels are kept.
    pub cache: Cache,
    /// How bytes move inside the device; what [`COPY_ENV`] says if not given.
    pub copy: Option<CopyPolicy>,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self { cache: Cache::from_env(), copy: None }
    }
}

/// An NVIDIA GPU.
pub struct CudaDevice {
    info: GpuInfo,
    context: &'static Context,
    cache: Cache,
    copier: Arc<CopyEngine>,
    transfer: Arc<Transfer>,
    streams: Arc<Streams>,
}

impl CudaDevice {
    /// Opens device `ordinal`.
    pub fn open(ordinal: u32, options: CudaOptions) -> Result<Self, GpuError> {
        let context = Context::get(ordinal)?;
        let policy = options.copy.map_or_else(CopyPolicy::from_env, Ok)?;
        tracing::info!(device = context.label(), copy = %policy, cache = ?options.cache, "opened");
        Ok(Self {
            info: context::describe(ordinal)?,
            context,
            cache: options.cache,
            copier: Arc::new(CopyEngine::new(context, policy)?),
            transfer: Arc::new(Transfer::new(context)?),
            streams: Streams::new(context),
        })
    }

    /// How bytes move inside the device.
    pub fn copy_policy(&self) -> CopyPolicy {
        self.copier.policy()
    }

    /// How many copies inside the device, or to another, went which way.
    pub fn copy_counts(&self) -> CopyCounts {
        self.copier.counts()
    }

    /// Its primary context.
    pub fn context(&self) -> &'static Context {
        self.context
    }

    fn unsupported(&self, what: &'static str) -> GpuError {
        GpuError::Unsupported { device: self.context.label(), what }
    }

    fn is_mine(&self, region: &Region) -> Result<bool, GpuError> {
        match region.kind() {
            Kind::Host => Ok(false),
            Kind::Cuda(ordinal) if ordinal == self.info.ordinal => Ok(true),
            _ => Err(self.unsupported("reads and writes of another device's memory")),
        }
    }

    /// Lets this device's kernels use the memory of device `ordinal`.
    fn reach(&self, ordinal: u32) -> Result<(), GpuError> {
        if ordinal == self.info.ordinal {
            return Ok(());
        }
        let peer = Context::get(ordinal)?;
        let _entered = self.context.enter()?;
        // SAFETY: both contexts are live, and this device's is current.
        match unsafe { self.context.driver().cuCtxEnablePeerAccess(peer.raw(), 0) } {
            Ok(()) | Err(GpuError::Driver { code: api::PEER_ALREADY_ENABLED, .. }) => Ok(()),
            Err(GpuError::Driver { code: api::PEER_UNSUPPORTED, .. }) => {
                Err(self.unsupported("peer access to that device"))
            }
            Err(error) => Err(error),
        }
    }
}

struct DeviceMem {
    piece: Piece,
    len: usize,
    context: &'static Context,
    copier: Arc<CopyEngine>,
}

// SAFETY: `piece` is an allocation of at least `len` bytes that lives as long as `self` and is
// aligned to 256 bytes.
unsafe impl Backing for DeviceMem {
    fn addr(&self) -> u64 {
        self.piece.addr()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn kind(&self) -> Kind {
        Kind::Cuda(self.context.ordinal())
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        Some(self.copier.clone())
    }

    fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        let exported = dmabuf::export(self.context, self.addr(), self.len() as u64);
        exported.map_err(|error| NotExported(error.to_string()))
    }

    fn share(&self, offset: u64, len: u64) -> Result<Share, NotExported> {
        foreign::share(self.context, self.addr() + offset, len)
    }
}

/// A registration, which keeps the pages by itself.
struct HostMapping {
    _pinned: Arc<Pinned>,
}

impl Mapping for HostMapping {}

impl CudaDevice {
    /// The loaded function of a kernel.
    fn function(&self, kernel: &dyn Kernel) -> Result<Function, GpuError> {
        let functions = self.context.modules().get(self.context, kernel.image(), &self.cache)?;
        let name = kernel.entry().name;
        let function = functions.get(name).ok_or(GpuError::BadEntry {
            kernel: name,
            what: "functions of this name in its image",
            declared: 1,
            compiled: 0,
        })?;
        Ok(*function)
    }
}

impl Gpu for CudaDevice {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn alloc(&self, len: usize, place: Place) -> Result<Buffer, GpuError> {
        match place {
            Place::Shared => {
                let (region, kernel_addr) = SharedMem::region(self.context, len)?;
                // SAFETY: pinned memory, with the address that the driver gave for it.
                Ok(unsafe { Buffer::new(region, kernel_addr, None) })
            }
            Place::Device => {
                let piece = Piece::new(self.context, len as u64)?;
                let (context, copier) = (self.context, self.copier.clone());
                let region = Region::new(DeviceMem { piece, len, context, copier });
                self.transfer.zero(&region)?;
                Ok(Buffer::of_region(region))
            }
        }
    }

    fn map(&self, region: &Region) -> Result<Buffer, GpuError> {
        if let Kind::Cuda(owner) = region.kind() {
            // Device memory has one address in all devices that may reach it.
            self.reach(owner)?;
            return Ok(Buffer::of_region(region.clone()));
        }
        if region.kind() != Kind::Host {
            return Err(self.unsupported("memory of a device of another kind"));
        }
        let pinned = Pinned::new(self.context, region)?;
        let kernel_addr = Pinned::kernel_addr(self.context, region.addr())?;
        let mapping = Arc::new(HostMapping { _pinned: pinned });
        // SAFETY: the address that the driver gave for pages which `mapping` keeps registered.
        Ok(unsafe { Buffer::new(region.clone(), kernel_addr, Some(mapping)) })
    }

    fn read(&self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<(), GpuError> {
        let region = buffer.region();
        if self.is_mine(region)? {
            return self.transfer.read(region, offset, out);
        }
        Ok(region.read(offset, out)?)
    }

    fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), GpuError> {
        let region = buffer.region();
        if self.is_mine(region)? {
            return self.transfer.write(region, offset, data);
        }
        Ok(region.write(offset, data)?)
    }

    fn zero(&self, buffer: &Buffer) -> Result<(), GpuError> {
        let region = buffer.region();
        if self.is_mine(region)? {
            return self.transfer.zero(region);
        }
        Ok(region.fill(0, region.len(), 0)?)
    }

    fn load(&self, image: &'static Image) -> Result<(), GpuError> {
        self.context.modules().get(self.context, image, &self.cache).map(drop)
    }

    fn resident_blocks(&self, kernel: &dyn Kernel, dim: Dim) -> Result<u32, GpuError> {
        let function = self.function(kernel)?;
        let _entered = self.context.enter()?;
        let each = launch::fitting(self.context, function, kernel.entry().name, dim)?;
        Ok(each.saturating_mul(self.context.multiprocessors()))
    }

    unsafe fn launch_unchecked(
        &self,
        kernel: &dyn Kernel,
        dim: Dim,
        deadline: Duration,
    ) -> Result<Launch, GpuError> {
        let function = self.function(kernel)?;
        // SAFETY: handed on to the caller.
        let launch = unsafe { CudaLaunch::start(&self.streams, function, kernel, dim) }?;
        Ok(Launch::new(Box::new(launch), deadline))
    }

    fn arena(&self, len: u64) -> Result<Arena, ArenaError> {
        arena::reserve(self, len)
    }

    fn import(&self, share: Share, len: u64) -> Result<Buffer, ArenaError> {
        match &*share.pieces {
            &[SharePiece { handle: ShareHandle::CudaIpc(handle), len: size }] => {
                foreign::open(self, (handle, size), (share.offset, len))
            }
            pieces => {
                let all = pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.len));
                self.arena(all.unwrap_or(u64::MAX))?.import(share, len)
            }
        }
    }

    unsafe fn adopt(&self, addr: u64, len: usize, keep: Keep) -> Result<Buffer, GpuError> {
        foreign::adopt(self, addr, len, keep)
    }

    fn enable_peer(&self, other: &dyn Gpu) -> Result<(), GpuError> {
        match other.info().kind {
            GpuKind::Cuda => self.reach(other.info().ordinal),
            _ => Err(self.unsupported("access to memory of a device of another kind")),
        }
    }
}
