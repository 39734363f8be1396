//! Resources of a driver, given back when their owner is dropped: the one way in which anything is freed.
//!
//! Freeing device memory and unregistering host memory wait until every kernel of the device has ended.
//! A kernel may be waiting for the very thread that drops a buffer (the NIC's), so such a call would
//! never return. Hence nothing that kernels may use is freed while a launch of this crate runs: it lies
//! here, and is freed when the last launch has been seen to end. Launches and frees exclude each
//! other by one lock, so that no kernel starts under a free that has begun.
//!
//! Kernels that the program starts by other means than this crate are not seen here: do not drop
//! buffers while such a kernel waits for the NIC.

use super::calls::{Driver, Resource};
use super::lock::lock;
use crate::GpuError;
use std::any::Any;
use std::sync::Mutex;

/// Must stay until a resource is freed: the region of a registration, the range of a mapping.
type Keep = Option<Box<dyn Any + Send + Sync>>;

struct Item {
    driver: &'static dyn Driver,
    resource: Resource,
    _keep: Keep,
}

impl Item {
    fn free(&self) {
        let freed = self.driver.entered().and_then(|_entered| {
            // SAFETY: live, since items are freed once; its owner is gone, and if it concerns kernels
            // none runs that could still use it.
            unsafe { self.driver.free(self.resource) }
        });
        if let Err(error) = freed {
            // After a kernel has failed the context is lost, and all that belongs to it.
            tracing::debug!(%error, resource = ?self.resource, "not given back");
        }
    }
}

/// A resource of a driver. Dropping it frees it now if that concerns no kernel or none runs, else when
/// none does; it never waits for a kernel.
pub(crate) struct Owned(Option<Item>);

impl Owned {
    pub(crate) fn new(driver: &'static dyn Driver, resource: Resource) -> Self {
        Self(Some(Item { driver, resource, _keep: None }))
    }

    /// The same, which drops `keep` after the resource is freed.
    pub(crate) fn keeping(mut self, keep: impl Any + Send + Sync) -> Self {
        if let Some(item) = &mut self.0 {
            item._keep = Some(Box::new(keep));
        }
        self
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        match self.0.take() {
            Some(item) if item.resource.concerns_kernels() => {
                let released = {
                    let mut queue = lock(&QUEUE);
                    queue.deferred.push(item);
                    queue.release()
                };
                drop(released);
            }
            Some(item) => item.free(),
            None => {}
        }
    }
}

/// A launch that was given up after its deadline; says whether its kernel has ended by now.
pub(crate) type Abandoned = Box<dyn Fn() -> bool + Send>;

#[derive(Default)]
struct Queue {
    running: usize,
    deferred: Vec<Item>,
    abandoned: Vec<Abandoned>,
}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { running: 0, deferred: Vec::new(), abandoned: Vec::new() });

/// Taken out by a release; dropped after the lock is released, because dropping may defer more.
struct Released {
    _runs: Vec<Abandoned>,
    _freed: Vec<Item>,
}

impl Queue {
    fn release(&mut self) -> Released {
        let over: Vec<_> = self.abandoned.extract_if(.., |is_over| is_over()).collect();
        self.running -= over.len();
        let idle = self.running == 0;
        let freed = if idle { std::mem::take(&mut self.deferred) } else { Vec::new() };
        freed.iter().for_each(Item::free);
        Released { _runs: over, _freed: freed }
    }
}

/// Frees what can be freed: before an allocation is refused for want of memory.
pub(crate) fn release() {
    let released = lock(&QUEUE).release();
    drop(released);
}

/// Takes back a registration that covers `[start, end)` and is not undone yet, with what keeps its
/// pages mapped: its address and length too.
pub(crate) fn reclaim(driver: &dyn Driver, start: u64, end: u64) -> Option<(u64, u64, Owned)> {
    let covers = |item: &Item| match item.resource {
        Resource::Host(at, len) if item.driver.is_akin(driver) => {
            (at <= start && end <= at + len).then_some((at, len))
        }
        _ => None,
    };
    let mut queue = lock(&QUEUE);
    let mut items = queue.deferred.iter().enumerate();
    let (index, (at, len)) = items.find_map(|(index, item)| Some((index, covers(item)?)))?;
    let item = queue.deferred.remove(index);
    Some((at, len, Owned(Some(item))))
}

/// Whether a kernel of this process runs or may run.
pub(crate) fn is_busy() -> bool {
    lock(&QUEUE).running > 0
}

/// Starts a kernel by `start`, which no free can overlap.
pub(crate) fn launching<R>(start: impl FnOnce() -> Result<R, GpuError>) -> Result<R, GpuError> {
    let mut queue = lock(&QUEUE);
    let started = start()?;
    queue.running += 1;
    Ok(started)
}

/// One kernel that was started by [`launching`] has been seen to end.
pub(crate) fn ended() {
    let released = {
        let mut queue = lock(&QUEUE);
        queue.running -= 1;
        queue.release()
    };
    drop(released);
}

/// Keeps a kernel that has not ended by its deadline, and all that it may touch, until it does.
pub(crate) fn abandon(run: Abandoned) {
    lock(&QUEUE).abandoned.push(run);
}
