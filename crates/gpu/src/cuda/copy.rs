//! The copy engine: asynchronous copies on one stream, with tickets that the host polls by a load.
//!
//! After each copy the stream writes the copy's number to a word in pinned memory, after a fence
//! (`cuStreamWriteValue64` with its default flag). Asking whether a copy has landed is then one
//! acquire load, which pairs with that fence; no call of the driver, no lock.
//!
//! A copy must never wait for a kernel to end, since kernels wait for copies. Copies between host
//! and device are done by a DMA engine, but one inside a device may be done by a kernel of the
//! driver, which waits for room on a full device. [`CopyPath`] says how that is avoided.
//!
//! Host memory should be registered ([`Gpu::map`](crate::Gpu::map)): the driver stages copies of
//! other host memory itself, and then a copy may have landed before `start` returns.

use super::context::{Context, Priority, Stream};
use super::lock;
use super::pinned::SharedMem;
use crate::GpuError;
use cudarc::driver::sys;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use warpverbs_mem::{Copier, MemError, Region, Ticket};

/// How bytes move from one place of a device to another place of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPath {
    /// `cuMemcpyBatchAsync` with the hint to overlap with compute: a DMA engine.
    Batch,
    /// `cuMemcpyAsync`: the driver chooses, perhaps a kernel.
    Async,
    /// `cuMemcpyPeerAsync` with the device as its own peer.
    Peer,
    /// Down to pinned host memory and up again: two DMA copies, on any driver.
    Bounce,
}

impl CopyPath {
    /// The best path that `context`'s driver has and that cannot wait for a kernel.
    pub fn choose(context: &Context) -> Self {
        if context.driver().has_batch_copy() { Self::Batch } else { Self::Bounce }
    }
}

const BOUNCE: usize = 1 << 20;
/// Polls that find nothing between two questions to the driver whether the stream still lives.
const POLLS_PER_QUERY: u64 = 4096;

/// Copies on one stream of one device. Other devices' memory is reached too.
pub struct CopyEngine {
    stream: Stream,
    path: CopyPath,
    // The number of the last copy enqueued. Held while enqueueing, so that numbers reach the
    // stream in order.
    last: Mutex<u64>,
    done: Region,
    done_addr: u64,
    polls: AtomicU64,
    bounce: Option<Region>,
}

impl CopyEngine {
    /// An engine on its own stream.
    pub fn new(context: &'static Context, path: CopyPath) -> Result<Self, GpuError> {
        let wide = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS;
        if context.attribute(wide)? == 0 {
            let what = "64-bit stream memory operations, which copies are counted with";
            return Err(GpuError::Unsupported { device: context.label(), what });
        }
        let (done, done_addr) = SharedMem::region(context, 8)?;
        let bounce = match path {
            CopyPath::Bounce => Some(SharedMem::region(context, BOUNCE)?.0),
            _ => None,
        };
        Ok(Self {
            stream: Stream::new(context, Priority::Highest)?,
            path,
            last: Mutex::new(0),
            done,
            done_addr,
            polls: AtomicU64::new(0),
            bounce,
        })
    }

    /// How copies inside the device are done.
    pub fn path(&self) -> CopyPath {
        self.path
    }

    /// Starts a copy between any two of: this device, another CUDA device, host memory.
    ///
    /// # Safety
    /// Both ranges must stay valid until the ticket is done.
    pub unsafe fn enqueue(&self, dst: u64, src: u64, len: usize) -> Result<Ticket, GpuError> {
        let context = self.stream.context();
        let _entered = context.enter()?;
        let mut last = lock(&self.last);
        // SAFETY: the ranges are valid until the copy has landed: the caller's obligation.
        unsafe { self.copy(dst, src, len) }?;
        let number = *last + 1;
        // If this failed after the copy was accepted, the context would be lost, the copy with it.
        // SAFETY: the word is pinned memory that lives as long as the engine, mapped at this
        // address and 8-byte aligned; the stream is live.
        unsafe {
            context.driver().cuStreamWriteValue64_v2(self.stream.raw(), self.done_addr, number, 0)
        }?;
        *last = number;
        Ok(Ticket(number))
    }

    /// Whether the copy has landed.
    pub fn landed(&self, ticket: Ticket) -> Result<bool, GpuError> {
        if self.counted()? >= ticket.0 {
            return Ok(true);
        }
        // A stream that has failed never writes its word, and only the driver tells.
        if self.polls.fetch_add(1, Ordering::Relaxed) % POLLS_PER_QUERY == POLLS_PER_QUERY - 1
            && self.stream.is_idle()?
        {
            return Ok(self.counted()? >= ticket.0);
        }
        Ok(false)
    }

    fn counted(&self) -> Result<u64, GpuError> {
        // Acquire: pairs with the fence that the stream makes before it writes the word.
        Ok(self.done.atomic_u64(0)?.load(Ordering::Acquire))
    }

    unsafe fn copy(&self, dst: u64, src: u64, len: usize) -> Result<(), GpuError> {
        let context = self.stream.context();
        let inside = |addr| context.heap().allocation(addr, len as u64).is_some();
        let (driver, stream) = (context.driver(), self.stream.raw());
        let path = if inside(dst) && inside(src) { self.path } else { CopyPath::Async };
        match path {
            // SAFETY: valid ranges (the caller), unified addressing, live stream.
            CopyPath::Async => unsafe { driver.cuMemcpyAsync(dst, src, len, stream) },
            CopyPath::Peer => {
                let raw = context.raw();
                // SAFETY: as above; both ranges belong to this context.
                unsafe { driver.cuMemcpyPeerAsync(dst, raw, src, raw, len, stream) }
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
            self.stream.context().driver().cuMemcpyBatchAsync_v2(
                &mut dst,
                &mut src,
                &mut len,
                1,
                &mut attributes,
                &mut first,
                1,
                self.stream.raw(),
            )
        }
    }

    unsafe fn copy_bounce(&self, dst: u64, src: u64, len: usize) -> Result<(), GpuError> {
        let Some(bounce) = &self.bounce else { return Ok(()) };
        let (driver, stream) = (self.stream.context().driver(), self.stream.raw());
        for at in (0..len).step_by(BOUNCE) {
            let (part, offset) = (BOUNCE.min(len - at), at as u64);
            // The stream's order keeps the parts, and other copies, out of each other's way.
            // SAFETY: a part of the caller's source; the buffer is `BOUNCE` long and the engine's.
            unsafe { driver.cuMemcpyAsync(bounce.addr(), src + offset, part, stream) }?;
            // SAFETY: the same part of the caller's destination.
            unsafe { driver.cuMemcpyAsync(dst + offset, bounce.addr(), part, stream) }?;
        }
        Ok(())
    }
}

// SAFETY: each path touches exactly the ranges given. Landing in order: one stream.
unsafe impl Copier for CopyEngine {
    unsafe fn start(&self, dst: u64, src: u64, len: usize) -> Result<Ticket, MemError> {
        // SAFETY: the same obligation.
        unsafe { self.enqueue(dst, src, len) }.map_err(as_mem_error)
    }

    fn is_done(&self, ticket: Ticket) -> Result<bool, MemError> {
        self.landed(ticket).map_err(as_mem_error)
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
