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
use super::room::Claim;
use crate::{GpuError, KernelArgs};
use std::sync::Mutex;
use warpverbs_mem::Region;

/// Something to give back to the driver.
pub(crate) enum Corpse {
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
struct Yard {
    running: usize,
    corpses: Vec<Corpse>,
    // Kernels whose launch was given up after its deadline.
    abandoned: Vec<Running>,
}

static YARD: Mutex<Yard> =
    Mutex::new(Yard { running: 0, corpses: Vec::new(), abandoned: Vec::new() });

/// What a sweep took out; dropped after the lock is released, because dropping may bury more.
#[derive(Default)]
struct Swept {
    _runs: Vec<Running>,
    _regions: Vec<Region>,
}

impl Yard {
    fn sweep(&mut self) -> Swept {
        let over: Vec<Running> = self.abandoned.extract_if(.., |run| run.is_over()).collect();
        self.running -= over.len();
        let mut regions = Vec::new();
        if self.running == 0 {
            for corpse in self.corpses.drain(..) {
                if let Err(error) = free(&corpse) {
                    // After a kernel has failed the context is lost, and its memory with it.
                    tracing::debug!(%error, "memory not given back");
                }
                if let Corpse::Host { keep, .. } = corpse {
                    regions.push(keep);
                }
            }
        }
        Swept { _runs: over, _regions: regions }
    }
}

fn free(corpse: &Corpse) -> Result<(), GpuError> {
    match *corpse {
        Corpse::Device { context, addr } => {
            let _entered = context.enter()?;
            // SAFETY: `addr` is a live allocation of this context; its owner is gone, and no
            // kernel runs that could still use it.
            unsafe { context.driver().cuMemFree_v2(addr) }
        }
        Corpse::Host { context, start, .. } => {
            let _entered = context.enter()?;
            // SAFETY: `start` is a registered range whose last user is gone; it is still mapped.
            unsafe { context.driver().cuMemHostUnregister(start as *mut _) }
        }
    }
}

/// Frees `corpse` now if no kernel runs, else when none does. Never waits for a kernel.
pub(crate) fn bury(corpse: Corpse) {
    let swept = {
        let mut yard = lock(&YARD);
        yard.corpses.push(corpse);
        yard.sweep()
    };
    drop(swept);
}

/// Frees what can be freed: before an allocation is refused for want of memory.
pub(crate) fn sweep() {
    let swept = lock(&YARD).sweep();
    drop(swept);
}

/// Takes back a buried registration that covers `[start, end)` and is not undone yet.
pub(crate) fn exhume(start: u64, end: u64) -> Option<(u64, u64)> {
    let mut yard = lock(&YARD);
    let at = yard.corpses.iter().position(|corpse| {
        matches!(corpse, Corpse::Host { start: s, len, .. } if *s <= start && end <= s + len)
    })?;
    let corpse = yard.corpses.swap_remove(at);
    drop(yard);
    match corpse {
        Corpse::Host { start, len, .. } => Some((start, len)),
        Corpse::Device { .. } => None,
    }
}

/// Whether a kernel of this process runs or may run.
pub(crate) fn is_busy() -> bool {
    lock(&YARD).running > 0
}

/// Starts a kernel by `start`, which no free can overlap.
pub(crate) fn launching<R>(start: impl FnOnce() -> Result<R, GpuError>) -> Result<R, GpuError> {
    let mut yard = lock(&YARD);
    let started = start()?;
    yard.running += 1;
    Ok(started)
}

/// One kernel that was started by [`launching`] has been seen to end.
pub(crate) fn ended() {
    let swept = {
        let mut yard = lock(&YARD);
        yard.running -= 1;
        yard.sweep()
    };
    drop(swept);
}

/// Keeps a kernel that has not ended by its deadline, and all that it may touch, until it does.
pub(crate) fn abandon(run: Running) {
    lock(&YARD).abandoned.push(run);
}
