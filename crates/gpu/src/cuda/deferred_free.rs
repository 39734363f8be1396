//! Memory that nobody uses any more and that must not be freed yet.
//!
//! `cuMemFree` and `cuMemHostUnregister` wait until every kernel of the device has ended. A kernel
//! may be waiting for the very thread that drops a buffer (the NIC's), so such a call would never
//! return. Hence nothing is freed while a launch of this crate runs: what is dropped meanwhile lies
//! here, and is freed when the last launch has been seen to end. Launches and frees exclude each
//! other by one lock, so that no kernel starts under a free that has begun.
//!
//! Kernels that the program starts by other means than this crate are not seen here: do not drop
//! buffers while such a kernel waits for the NIC.

use super::context::{Context, Stream};
use super::lock;
use super::occupancy::Claim;
use crate::{GpuError, KernelArgs};
use std::sync::Mutex;
use warpverbs_mem::Region;

/// Something to give back to the driver.
pub(crate) enum Deferred {
    /// An allocation of device memory.
    Device {
        /// Whose.
        context: &'static Context,
        /// What `cuMemAlloc` returned.
        addr: u64,
    },
    /// A registration of host memory.
    Host {
        /// Any context that it was made in.
        context: &'static Context,
        /// First byte of the registered range.
        start: u64,
        /// Its length in bytes.
        len: u64,
        /// Keeps the range mapped until it is no longer registered.
        keep: Region,
    },
}

/// A kernel on its stream, with what must outlive it.
pub(crate) struct Running {
    pub(crate) stream: Stream,
    /// What the kernel's parameters refer to.
    pub(crate) _args: KernelArgs,
    /// Keeps copies inside the device off its kernel slots.
    pub(crate) _claim: Claim,
}

impl Running {
    /// Whether the kernel has ended, well or badly.
    fn is_over(&self) -> bool {
        !matches!(self.stream.is_idle(), Ok(false))
    }
}

#[derive(Default)]
struct Queue {
    running: usize,
    deferred: Vec<Deferred>,
    // Kernels whose launch was given up after its deadline.
    abandoned: Vec<Running>,
}

static DEFERRED: Mutex<Queue> =
    Mutex::new(Queue { running: 0, deferred: Vec::new(), abandoned: Vec::new() });

/// What a release took out; dropped after the lock is released, because dropping may defer more.
#[derive(Default)]
struct Released {
    _runs: Vec<Running>,
    _regions: Vec<Region>,
}

impl Queue {
    fn release(&mut self) -> Released {
        let over: Vec<Running> = self.abandoned.extract_if(.., |run| run.is_over()).collect();
        self.running -= over.len();
        let mut regions = Vec::new();
        if self.running == 0 {
            for item in self.deferred.drain(..) {
                if let Err(error) = free(&item) {
                    // After a kernel has failed the context is lost, and its memory with it.
                    tracing::debug!(%error, "memory not given back");
                }
                if let Deferred::Host { keep, .. } = item {
                    regions.push(keep);
                }
            }
        }
        Released { _runs: over, _regions: regions }
    }
}

fn free(item: &Deferred) -> Result<(), GpuError> {
    match *item {
        Deferred::Device { context, addr } => {
            let _entered = context.enter()?;
            // SAFETY: `addr` is a live allocation of this context; its owner is gone, and no
            // kernel runs that could still use it.
            unsafe { context.driver().cuMemFree_v2(addr) }
        }
        Deferred::Host { context, start, .. } => {
            let _entered = context.enter()?;
            // SAFETY: `start` is a registered range whose last user is gone; it is still mapped.
            unsafe { context.driver().cuMemHostUnregister(start as *mut _) }
        }
    }
}

/// Frees `item` now if no kernel runs, else when none does. Never waits for a kernel.
pub(crate) fn defer(item: Deferred) {
    let released = {
        let mut queue = lock(&DEFERRED);
        queue.deferred.push(item);
        queue.release()
    };
    drop(released);
}

/// Frees what can be freed: before an allocation is refused for want of memory.
pub(crate) fn release() {
    let released = lock(&DEFERRED).release();
    drop(released);
}

/// Takes back a deferred unregistration that covers `[start, end)` and is not undone yet.
pub(crate) fn reclaim(start: u64, end: u64) -> Option<(u64, u64)> {
    let mut queue = lock(&DEFERRED);
    let at = queue.deferred.iter().position(|item| {
        matches!(item, Deferred::Host { start: s, len, .. } if *s <= start && end <= s + len)
    })?;
    let item = queue.deferred.swap_remove(at);
    drop(queue);
    match item {
        Deferred::Host { start, len, .. } => Some((start, len)),
        Deferred::Device { .. } => None,
    }
}

/// Whether a kernel of this process runs or may run.
pub(crate) fn is_busy() -> bool {
    lock(&DEFERRED).running > 0
}

/// Starts a kernel by `start`, which no free can overlap.
pub(crate) fn launching<R>(start: impl FnOnce() -> Result<R, GpuError>) -> Result<R, GpuError> {
    let mut queue = lock(&DEFERRED);
    let started = start()?;
    queue.running += 1;
    Ok(started)
}

/// One kernel that was started by [`launching`] has been seen to end.
pub(crate) fn ended() {
    let released = {
        let mut queue = lock(&DEFERRED);
        queue.running -= 1;
        queue.release()
    };
    drop(released);
}

/// Keeps a kernel that has not ended by its deadline, and all that it may touch, until it does.
pub(crate) fn abandon(run: Running) {
    lock(&DEFERRED).abandoned.push(run);
}
