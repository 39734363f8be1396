//! The copy engine: asynchronous copies on one stream, with tickets that the host polls by a load.
//!
//! A copy must never wait for a kernel to end, since kernels wait for copies. Copies between host
//! and device are done by a DMA engine and go on beside anything. One inside a device is done by a
//! kernel of the driver, whichever call asks for it, and waits while the device is full; so may one
//! between two devices. [`CopyPolicy::ByRoom`] lets the driver do such a copy while the launches
//! of this crate leave [room](super::occupancy) for it, else it goes by way of pinned host memory. Copies
//! of both ways are on one stream, so they land in the order in which they were started.
//!
//! Host memory should be registered ([`Gpu::map`](crate::Gpu::map)): the driver stages copies of
//! other host memory itself, and then a copy may have landed before `start` returns.

use super::context::Context;
use super::copy_policy::{CopyPath, CopyPolicy};
use super::counted_stream::CountedStream;
use super::lock;
use super::occupancy::Landing;
use super::pinned::SharedMem;
use crate::GpuError;
use cudarc::driver::sys;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use warpverbs_mem::{Copier, CopyTicket, MemError, Region};

/// Bytes of a copy by way of host memory that are there at a time.
const BOUNCE: usize = 1 << 20;

/// How many copies inside a device, or between two, went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// By the driver's own means.
    pub direct: u64,
    /// By way of pinned host memory.
    pub bounced: u64,
}

/// Copies on one stream of one device. Other devices' memory is reached too.
pub struct CopyEngine {
    line: Arc<CountedStream>,
    // The same, for the account of room.
    landing: Arc<dyn Landing>,
    policy: CopyPolicy,
    // The number of the last copy enqueued. Held while enqueueing, so that numbers reach the
    // stream in order.
    last: Mutex<u64>,
    bounce: Region,
    direct: AtomicU64,
    bounced: AtomicU64,
}

/// The devices that the two ends of a copy lie on.
type Ends = (&'static Context, &'static Context);

impl CopyEngine {
    /// An engine on its own stream.
    pub fn new(context: &'static Context, policy: CopyPolicy) -> Result<Self, GpuError> {
        let line = Arc::new(CountedStream::new(context)?);
        Ok(Self {
            landing: line.clone(),
            line,
            policy,
            last: Mutex::new(0),
            bounce: SharedMem::region(context, BOUNCE)?.0,
            direct: AtomicU64::new(0),
            bounced: AtomicU64::new(0),
        })
    }

    /// How copies inside the device are done.
    pub fn policy(&self) -> CopyPolicy {
        self.policy
    }

    /// How many went which way so far.
    pub fn counts(&self) -> CopyCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CopyCounts { direct: read(&self.direct), bounced: read(&self.bounced) }
    }

    /// Starts to zero memory of this device by `cuMemset`, which runs on its multiprocessors; None if
    /// kernels that run leave it no room, or no copy may wait for them.
    ///
    /// # Safety
    /// The range must be this device's, and stay valid until the ticket is done.
    pub(super) unsafe fn zero(
        &self,
        addr: u64,
        len: usize,
    ) -> Result<Option<CopyTicket>, GpuError> {
        let (stream, bounce) = (self.line.stream(), CopyPolicy::Always(CopyPath::Bounce));
        let context = stream.context();
        let _entered = context.enter()?;
        let mut last = lock(&self.last);
        let number = *last + 1;
        if self.policy == bounce || !context.occupancy().admit(&self.landing, number) {
            return Ok(None);
        }
        // SAFETY: the caller's range; a live stream.
        let set = unsafe { context.driver().cuMemsetD8Async(addr, 0, len, stream.raw()) };
        // As in `enqueue`.
        self.line.number(number)?;
        *last = number;
        set.map(|()| Some(CopyTicket(number)))
    }

    /// Starts a copy between any two of: this device, another CUDA device, host memory.
    ///
    /// # Safety
    /// Both ranges must stay valid until the ticket is done.
    pub unsafe fn enqueue(&self, dst: u64, src: u64, len: usize) -> Result<CopyTicket, GpuError> {
        let context = self.line.stream().context();
        let _entered = context.enter()?;
        let mut last = lock(&self.last);
        let number = *last + 1;
        // SAFETY: the ranges are valid until the copy has landed: the caller's obligation.
        let copied = unsafe { self.copy(dst, src, len, number) };
        // Also after a refusal: a launch may be waiting for this number, and a part of the copy may
        // be on its way. If this fails the context is lost, and the copy with it.
        self.line.number(number)?;
        *last = number;
        copied.map(|()| CopyTicket(number))
    }

    /// Whether the copy has landed.
    pub fn landed(&self, ticket: CopyTicket) -> Result<bool, GpuError> {
        self.line.landed(ticket.0)
    }

    /// The way of copy `number` between two places in device memory.
    fn path(&self, (to, from): Ends, number: u64) -> CopyPath {
        let one_device = std::ptr::eq(to, from);
        match self.policy {
            CopyPolicy::Always(CopyPath::Bounce) => CopyPath::Bounce,
            CopyPolicy::Always(path) if one_device => path,
            CopyPolicy::Always(_) => CopyPath::Peer,
            CopyPolicy::ByRoom => {
                let room =
                    [to, from].iter().all(|end| end.occupancy().admit(&self.landing, number));
                match room {
                    false => CopyPath::Bounce,
                    true if one_device => CopyPath::direct(to),
                    true => CopyPath::Peer,
                }
            }
        }
    }

    unsafe fn copy(&self, dst: u64, src: u64, len: usize, number: u64) -> Result<(), GpuError> {
        let stream = self.line.stream();
        let (driver, raw) = (stream.context().driver(), stream.raw());
        let owner = |addr| Context::owning(stream.context(), addr, len as u64);
        let Some((to, from)) = owner(dst).zip(owner(src)) else {
            // One end is host memory.
            // SAFETY: valid ranges (the caller), unified addressing, live stream.
            return unsafe { driver.cuMemcpyAsync(dst, src, len, raw) };
        };
        let path = self.path((to, from), number);
        let count = if path == CopyPath::Bounce { &self.bounced } else { &self.direct };
        count.fetch_add(1, Ordering::Relaxed);
        match path {
            // SAFETY: valid ranges (the caller), unified addressing, live stream.
            CopyPath::Async => unsafe { driver.cuMemcpyAsync(dst, src, len, raw) },
            CopyPath::Peer => {
                let (to, from) = (to.raw(), from.raw());
                // SAFETY: as above; each range belongs to the context given with it.
                unsafe { driver.cuMemcpyPeerAsync(dst, to, src, from, len, raw) }
            }
            // SAFETY: the same obligations.
            CopyPath::Batch => unsafe { self.copy_batch(dst, src, len) },
            // SAFETY: the same obligations.
            CopyPath::Bounce => unsafe { self.copy_bounce(dst, src, len) },
        }
    }

    unsafe fn copy_batch(&self, dst: u64, src: u64, len: usize) -> Result<(), GpuError> {
        let nowhere = sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID,
            id: 0,
        };
        let mut attributes = sys::CUmemcpyAttributes {
            srcAccessOrder: sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            srcLocHint: nowhere,
            dstLocHint: nowhere,
            flags: sys::CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE as u32,
        };
        let (mut dst, mut src, mut len, mut first) = (dst, src, len, 0);
        // SAFETY: one copy and one attribute that holds from copy 0 on, all in live locals that
        // the call reads; valid ranges (the caller); the stream is live and not the default one.
        unsafe {
            self.line.stream().context().driver().cuMemcpyBatchAsync_v2(
                &mut dst,
                &mut src,
                &mut len,
                1,
                &mut attributes,
                &mut first,
                1,
                self.line.stream().raw(),
            )
        }
    }

    unsafe fn copy_bounce(&self, dst: u64, src: u64, len: usize) -> Result<(), GpuError> {
        let stream = self.line.stream();
        let (driver, stream, between) =
            (stream.context().driver(), stream.raw(), self.bounce.addr());
        for at in (0..len).step_by(BOUNCE) {
            let (part, offset) = (BOUNCE.min(len - at), at as u64);
            // The stream's order keeps the parts, and other copies, out of each other's way.
            // SAFETY: a part of the caller's source; the buffer is `BOUNCE` long and the engine's.
            unsafe { driver.cuMemcpyAsync(between, src + offset, part, stream) }?;
            // SAFETY: the same part of the caller's destination.
            unsafe { driver.cuMemcpyAsync(dst + offset, between, part, stream) }?;
        }
        Ok(())
    }
}

// SAFETY: each path touches exactly the ranges given. Landing in order: one stream.
unsafe impl Copier for CopyEngine {
    unsafe fn start(&self, dst: u64, src: u64, len: usize) -> Result<CopyTicket, MemError> {
        // SAFETY: the same obligation.
        unsafe { self.enqueue(dst, src, len) }.map_err(as_mem_error)
    }

    fn is_done(&self, ticket: CopyTicket) -> Result<bool, MemError> {
        self.landed(ticket).map_err(as_mem_error)
    }

    /// Registered with the driver, for every device.
    fn host_memory(&self, len: usize) -> Result<Region, MemError> {
        let context = self.line.stream().context();
        SharedMem::region(context, len).map(|(region, _)| region).map_err(as_mem_error)
    }
}

fn as_mem_error(error: GpuError) -> MemError {
    match error {
        GpuError::Driver { call, code, .. } => MemError::CopyFailed { code, what: call },
        GpuError::Memory(error) => error,
        // Nothing else comes from a stream that is there.
        _ => MemError::CopyFailed { code: -1, what: "CUDA copy" },
    }
}
