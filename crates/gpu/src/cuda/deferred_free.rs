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
use crate::arena::Taken;
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
    /// A mapping in reserved addresses.
    Mapping {
        /// Whose.
        context: &'static Context,
        /// Its first address.
        addr: u64,
        /// Its length in bytes.
        len: u64,
        /// Keeps others off the addresses until it is gone.
        _range: Taken,
    },
    /// Reserved addresses, in which nothing is mapped or every mapping was deferred before.
    Addresses {
        /// Whose.
        context: &'static Context,
        /// The first.
        addr: u64,
        /// How many.
        len: u64,
    },
    /// Memory of another process, opened by an IPC handle.
    Ipc {
        /// Whose.
        context: &'static Context,
        /// What `cuIpcOpenMemHandle` returned.
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
        _keep: Region,
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
    _freed: Vec<Deferred>,
}

impl Queue {
    fn release(&mut self) -> Released {
        let over: Vec<Running> = self.abandoned.extract_if(.., |run| run.is_over()).collect();
        self.running -= over.len();
        let idle = self.running == 0;
        let freed = if idle { std::mem::take(&mut self.deferred) } else { Vec::new() };
        for item in &freed {
            if let Err(error) = free(item) {
                // After a kernel has failed the context is lost, and its memory with it.
                tracing::debug!(%error, "memory not given back");
            }
        }
        Released { _runs: over, _freed: freed }
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
        Deferred::Mapping { context, addr, len, .. } => {
            let _entered = context.enter()?;
            // SAFETY: a whole mapping whose last user is gone.
            unsafe { context.driver().cuMemUnmap(addr, len as usize) }
        }
        Deferred::Addresses { context, addr, len } => {
            let _entered = context.enter()?;
            // SAFETY: a whole reservation, in which nothing is mapped any more.
            unsafe { context.driver().cuMemAddressFree(addr, len as usize) }
        }
        Deferred::Ipc { context, addr } => {
            let _entered = context.enter()?;
            // SAFETY: opened once for this item, whose last user is gone.
            unsafe { context.driver().cuIpcCloseMemHandle(addr) }
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
    let item = queue.deferred.remove(at);
    drop(queue);
    match item {
        Deferred::Host { start, len, .. } => Some((start, len)),
        _ => None,
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
