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

use super::calls::Copy;
use super::context::Context;
use super::copy_policy::{CopyPath, CopyPolicy};
use super::counted_stream::CountedStream;
use super::lock::lock;
use super::occupancy::Landing;
use super::pinned::SharedMem;
use crate::GpuError;
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
    context: &'static Context,
    line: Arc<CountedStream>,
    // The same, for the account of room.
    landing: Arc<dyn Landing>,
    policy: CopyPolicy,
    // The driver's own way inside a device.
    direct_path: CopyPath,
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
    pub(crate) fn new(context: &'static Context, policy: CopyPolicy) -> Result<Self, GpuError> {
        let line = Arc::new(CountedStream::new(context.driver())?);
        Ok(Self {
            context,
            landing: line.clone(),
            line,
            policy,
            direct_path: context.direct_path(),
            last: Mutex::new(0),
            bounce: SharedMem::region(context.driver(), BOUNCE)?.0,
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

    /// Starts to zero memory of this device by the driver's kernel, which runs on its multiprocessors; None if
    /// kernels that run leave it no room, or no copy may wait for them.
    ///
    /// # Safety
    /// The range must be this device's, and stay valid until the ticket is done.
    pub(super) unsafe fn zero(
        &self,
        addr: u64,
        len: usize,
    ) -> Result<Option<CopyTicket>, GpuError> {
        let (context, bounce) = (self.context, CopyPolicy::Always(CopyPath::Bounce));
        let _entered = context.driver().entered()?;
        let mut last = lock(&self.last);
        let number = *last + 1;
        if self.policy == bounce || !context.occupancy().admit(&self.landing, number) {
            return Ok(None);
        }
        // SAFETY: the caller's range; a live stream.
        let set = unsafe { context.driver().zero(addr, len, self.line.stream().raw()) };
        // As in `enqueue`.
        self.line.number(number)?;
        *last = number;
        set.map(|()| Some(CopyTicket(number)))
    }

    /// Starts a copy between any two of: this device, another of its driver, host memory.
    ///
    /// # Safety
    /// Both ranges must stay valid until the ticket is done.
    pub unsafe fn enqueue(&self, dst: u64, src: u64, len: usize) -> Result<CopyTicket, GpuError> {
        let _entered = self.context.driver().entered()?;
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
                    true if one_device => self.direct_path,
                    true => CopyPath::Peer,
                }
            }
        }
    }

    unsafe fn copy(&self, dst: u64, src: u64, len: usize, number: u64) -> Result<(), GpuError> {
        let owner = |addr| Context::owning(self.context, addr, len as u64);
        let Some(ends) = owner(dst).zip(owner(src)) else {
            // One end is host memory.
            // SAFETY: the same obligations.
            return unsafe { self.copy_by(CopyPath::Async, None, (dst, src), len) };
        };
        let path = self.path(ends, number);
        if path == CopyPath::Bounce {
            self.bounced.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the same obligations.
            return unsafe { self.copy_bounce(dst, src, len) };
        }
        self.direct.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the same obligations; each range belongs to the device given with it.
        unsafe { self.copy_by(path, Some(ends), (dst, src), len) }
    }

    unsafe fn copy_by(
        &self,
        path: CopyPath,
        ends: Option<Ends>,
        (dst, src): (u64, u64),
        len: usize,
    ) -> Result<(), GpuError> {
        let stream = self.line.stream();
        let ends = ends.map(|(to, from)| (to.driver(), from.driver()));
        let copy = Copy { dst, src, len, path, ends, stream: stream.raw() };
        // SAFETY: valid ranges (the caller), unified addressing, a live stream.
        unsafe { stream.driver().copy(copy) }
    }

    unsafe fn copy_bounce(&self, dst: u64, src: u64, len: usize) -> Result<(), GpuError> {
        let between = self.bounce.addr();
        for at in (0..len).step_by(BOUNCE) {
            let (part, offset) = (BOUNCE.min(len - at), at as u64);
            let (down, up) = ((between, src + offset), (dst + offset, between));
            // The stream's order keeps the parts, and other copies, out of each other's way.
            // SAFETY: a part of the caller's source; the buffer is `BOUNCE` long and the engine's.
            unsafe { self.copy_by(CopyPath::Async, None, down, part) }?;
            // SAFETY: the same part of the caller's destination.
            unsafe { self.copy_by(CopyPath::Async, None, up, part) }?;
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
        SharedMem::region(self.context.driver(), len)
            .map(|(region, _)| region)
            .map_err(as_mem_error)
    }
}

fn as_mem_error(error: GpuError) -> MemError {
    match error {
        GpuError::Driver { call, code, .. } => MemError::CopyFailed { code, what: call },
        GpuError::Memory(error) => error,
        // Nothing else comes from a stream that is there.
        _ => MemError::CopyFailed { code: -1, what: "a copy" },
    }
}
