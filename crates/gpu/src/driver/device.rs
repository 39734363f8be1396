//! A device behind a vendor's driver, as the rest of the world sees it.

use super::arena::reserve;
use super::cache::Cache;
use super::calls::Function;
use super::context::Context;
use super::copy::{CopyCounts, CopyEngine};
use super::copy_policy::{CopyPath, CopyPolicy};
use super::graph::DriverGraph;
use super::launch::{Started, Streams};
use super::memory::Home;
use super::options::OpenOptions;
use super::owned::release;
use super::pinned::{Pinned, SharedMem};
use super::transfer::Transfer;
use crate::arena::{Arena, ArenaError, shared_bytes};
use crate::buffer::Keep;
use crate::launch::{Dim, Launch};
use crate::{
    Buffer, Gpu, GpuError, GpuInfo, Graph, Image, Kernel, KernelArgs, Mapping, Place, Step, Stops,
};
use std::iter;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::{Kind, Region, Share, ShareHandle, SharePiece};

/// A GPU behind its vendor's driver, which [`open_with`](crate::open_with) gives.
pub struct DriverGpu {
    context: &'static Context,
    /// Makes the context of another device of this driver.
    peer: fn(u32) -> Result<&'static Context, GpuError>,
    cache: Cache,
    home: Home,
    streams: Arc<Streams>,
    stops: Arc<Stops>,
}

impl DriverGpu {
    /// The device that `context` gives for `ordinal`.
    pub(crate) fn open(
        context: fn(u32) -> Result<&'static Context, GpuError>,
        ordinal: u32,
        options: OpenOptions,
    ) -> Result<Self, GpuError> {
        let (policy, cache) = (options.policy()?, options.cache);
        let (peer, context) = (context, context(ordinal)?);
        tracing::info!(device = context.driver().label(), copy = %policy, ?cache, "opened");
        let copier = Arc::new(CopyEngine::new(context, policy)?);
        let home = Home { context, copier, transfer: Arc::new(Transfer::new(context)?) };
        // An engine of their own: a copy of others may be large, or wait for a kernel.
        let records = Home { copier: Arc::new(CopyEngine::new(context, policy)?), ..home.clone() };
        let stops = Stops::new(release, move |len| records.alloc(len));
        Ok(Self { context, peer, cache, home, streams: Streams::new(context), stops })
    }

    /// How bytes move inside the device.
    pub fn copy_policy(&self) -> CopyPolicy {
        self.home.copier.policy()
    }

    /// How many copies inside the device, or to another, went which way.
    pub fn copy_counts(&self) -> CopyCounts {
        self.home.copier.counts()
    }

    /// Whether the driver has this way for copies inside the device.
    pub fn has_copy_path(&self, path: CopyPath) -> bool {
        self.context.driver().has_path(path)
    }

    /// An engine for copies by a policy of its own, on its own stream.
    pub fn copy_engine(&self, policy: CopyPolicy) -> Result<CopyEngine, GpuError> {
        CopyEngine::new(self.context, policy)
    }

    fn unsupported(&self, what: &'static str) -> GpuError {
        self.context.driver().unsupported(what)
    }

    fn is_mine(&self, region: &Region) -> Result<bool, GpuError> {
        match region.kind() {
            Kind::Host => Ok(false),
            kind if kind == self.home.kind() => Ok(true),
            _ => Err(self.unsupported("reads and writes of another device's memory")),
        }
    }

    /// Lets this device's kernels use the memory of device `ordinal`.
    fn reach(&self, ordinal: u32) -> Result<(), GpuError> {
        let driver = self.context.driver();
        if ordinal == driver.info().ordinal {
            return Ok(());
        }
        let peer = (self.peer)(ordinal)?;
        let _entered = driver.entered()?;
        driver.enable_peer(peer.driver())
    }

    /// The loaded function of a kernel with these arguments.
    fn function(&self, kernel: &dyn Kernel, args: &KernelArgs) -> Result<Function, GpuError> {
        let (image, entry) = args.compiled(kernel)?;
        let functions = self.context.functions(image, &self.cache)?;
        let name = entry.name;
        let function = functions.get(name).ok_or(GpuError::BadEntry {
            kernel: name,
            what: "functions of this name in its image",
            declared: 1,
            compiled: 0,
        })?;
        Ok(*function)
    }
}

/// A registration, which keeps the pages by itself.
struct HostMapping {
    _pinned: Arc<Pinned>,
}

impl Mapping for HostMapping {}

impl Gpu for DriverGpu {
    fn info(&self) -> &GpuInfo {
        self.context.driver().info()
    }

    fn alloc(&self, len: usize, place: Place) -> Result<Buffer, GpuError> {
        match place {
            Place::Shared => {
                let (region, kernel_addr) = SharedMem::region(self.context.driver(), len)?;
                // SAFETY: pinned memory, with the address that the driver gave for it.
                Ok(unsafe { Buffer::new(region, kernel_addr, None) })
            }
            Place::Device => self.home.alloc(len),
        }
    }

    fn map(&self, region: &Region) -> Result<Buffer, GpuError> {
        let driver = self.context.driver();
        match (region.kind(), driver.kind()) {
            (Kind::Host, _) => {}
            // Device memory has one address in all devices that may reach it.
            (Kind::Cuda(owner), Kind::Cuda(_)) | (Kind::Hip(owner), Kind::Hip(_)) => {
                self.reach(owner)?;
                return Ok(Buffer::of_region(region.clone()));
            }
            _ => return Err(self.unsupported("memory of a device of another kind")),
        }
        let pinned = Pinned::new(driver, region)?;
        let kernel_addr = Pinned::kernel_addr(driver, region.addr())?;
        let mapping = Arc::new(HostMapping { _pinned: pinned });
        // SAFETY: the address that the driver gave for pages which `mapping` keeps registered.
        Ok(unsafe { Buffer::new(region.clone(), kernel_addr, Some(mapping)) })
    }

    fn read(&self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<(), GpuError> {
        let region = buffer.region();
        if self.is_mine(region)? {
            return self.home.transfer.read(region, offset, out);
        }
        Ok(region.read(offset, out)?)
    }

    fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), GpuError> {
        let region = buffer.region();
        if self.is_mine(region)? {
            return self.home.transfer.write(region, offset, data);
        }
        Ok(region.write(offset, data)?)
    }

    fn zero(&self, buffer: &Buffer) -> Result<(), GpuError> {
        let region = buffer.region();
        if self.is_mine(region)? {
            return self.home.transfer.zero(region);
        }
        Ok(region.fill(0, region.len(), 0)?)
    }

    fn load(&self, image: &'static Image) -> Result<(), GpuError> {
        self.context.functions(image, &self.cache).map(drop)
    }

    fn resident_blocks(&self, kernel: &dyn Kernel, dim: Dim) -> Result<u32, GpuError> {
        let function = self.function(kernel, &kernel.args())?;
        let driver = self.context.driver();
        let _entered = driver.entered()?;
        let each = driver.fitting(function, kernel.entry().name, dim)?;
        Ok(each.saturating_mul(driver.info().sm_count))
    }

    unsafe fn launch_unchecked(
        &self,
        kernel: &dyn Kernel,
        dim: Dim,
        deadline: Duration,
    ) -> Result<Launch, GpuError> {
        let args = kernel.args();
        let function = self.function(kernel, &args)?;
        let launched = (kernel.entry(), args);
        // SAFETY: handed on to the caller.
        let started = unsafe { Started::start(&self.streams, function, launched, dim, deadline) }?;
        Ok(Launch::new(Box::new(started), deadline))
    }

    fn prepare(&self, first: Step, more: Vec<Step>) -> Result<Graph, GpuError> {
        let named = (first.kernel.entry().name, first.dim);
        let with = |step: Step| {
            let function = self.function(&*step.kernel, &step.kernel.args())?;
            Ok((step, function))
        };
        let steps: Result<Vec<_>, GpuError> = iter::once(first).chain(more).map(with).collect();
        Ok(Graph::of(DriverGraph::new(&self.streams, named, &steps?)?))
    }

    fn stops(&self) -> &Arc<Stops> {
        &self.stops
    }

    fn arena(&self, len: u64) -> Result<Arena, ArenaError> {
        reserve(self.home.clone(), len)
    }

    fn import(&self, share: Share, len: u64) -> Result<Buffer, ArenaError> {
        match &*share.pieces {
            [SharePiece { handle, len: size }] if !matches!(handle, ShareHandle::Descriptor(_)) => {
                self.home.open(handle, *size, (share.offset, len))
            }
            _ => self.arena(shared_bytes(&share))?.import(share, len),
        }
    }

    unsafe fn adopt(&self, addr: u64, len: usize, keep: Keep) -> Result<Buffer, GpuError> {
        self.home.adopt(addr, len, keep)
    }

    fn enable_peer(&self, other: &dyn Gpu) -> Result<(), GpuError> {
        if other.info().kind == self.info().kind {
            return self.reach(other.info().ordinal);
        }
        Err(self.unsupported("access to memory of a device of another kind"))
    }
}
