//! Device memory: whole 2 MiB granules from the driver, divided here.
//!
//! Small requests share a granule. That keeps calls of the driver, which may wait for running
//! kernels, off most allocations, and it makes every buffer exportable as a dmabuf, which wants
//! aligned ranges. Memory that comes back is reused at once or goes to the [deferred frees](super::deferred_free).

use super::api::OUT_OF_MEMORY;
use super::context::Context;
use super::deferred_free::{Deferred, defer, release};
use super::lock;
use super::suballocator::Suballocator;
use crate::GpuError;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, RwLock};

/// What the driver is asked for: multiples of this, aligned to this.
const CHUNK: u64 = 2 << 20;
/// Longer requests get an allocation of their own.
const SMALL: u64 = CHUNK / 2;

/// All device memory of one context that this crate holds.
#[derive(Default)]
pub(crate) struct Heap {
    chunks: Mutex<BTreeMap<u64, Suballocator>>,
    // Every allocation of the driver, chunks included, by address. Its own lock, and held for no
    // call of the driver: the copy engines look here.
    ranges: RwLock<BTreeMap<u64, Known>>,
}

/// An allocation of the driver, as long as somebody uses it.
struct Known {
    len: u64,
    users: usize,
}

/// A piece of device memory, given back on drop.
pub(crate) struct Piece {
    context: &'static Context,
    addr: u64,
    len: u64,
}

impl Piece {
    /// Not zeroed.
    pub(crate) fn new(context: &'static Context, len: u64) -> Result<Self, GpuError> {
        let heap = context.heap();
        let addr = if len <= SMALL {
            heap.take_small(context, len)?
        } else {
            heap.grow(context, len.checked_next_multiple_of(CHUNK).unwrap_or(u64::MAX))?
        };
        Ok(Self { context, addr, len })
    }

    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.context.heap().give(self.context, self.addr, self.len);
    }
}

impl Heap {
    /// The allocations that `[addr, addr + len)` lies in, which follow one another: address and
    /// length of all of them.
    pub(crate) fn allocation(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let (&base, first) = ranges.range(..=addr).next_back()?;
        let end = addr.checked_add(len)?;
        let mut to = base + first.len;
        while to < end {
            to += ranges.get(&to)?.len;
        }
        (addr < to || addr == base + first.len && len == 0).then_some((base, to - base))
    }

    /// Memory that is mapped by other means is now there, or has one more user.
    pub(crate) fn insert(&self, addr: u64, len: u64) {
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        let known = ranges.entry(addr).or_insert(Known { len, users: 0 });
        known.users += 1;
    }

    /// The allocation at `addr` has one user less.
    pub(crate) fn remove(&self, addr: u64) {
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = ranges.get_mut(&addr) {
            known.users -= 1;
            if known.users == 0 {
                ranges.remove(&addr);
            }
        }
    }

    fn take_small(&self, context: &'static Context, len: u64) -> Result<u64, GpuError> {
        let mut chunks = lock(&self.chunks);
        for (base, spans) in chunks.iter_mut() {
            if let Some(at) = spans.take(len) {
                return Ok(base + at);
            }
        }
        // Not under the lock: a driver that waits for a kernel must not keep others from freeing.
        drop(chunks);
        let base = self.grow(context, CHUNK)?;
        let mut spans = Suballocator::new(CHUNK);
        let at = spans.take(len).unwrap_or_default();
        lock(&self.chunks).insert(base, spans);
        Ok(base + at)
    }

    fn grow(&self, context: &'static Context, len: u64) -> Result<u64, GpuError> {
        let addr = match allocate(context, len) {
            Err(GpuError::Driver { code: OUT_OF_MEMORY, .. }) => {
                release();
                allocate(context, len)?
            }
            other => other?,
        };
        self.insert(addr, len);
        Ok(addr)
    }

    fn give(&self, context: &'static Context, addr: u64, len: u64) {
        if len > SMALL {
            return self.shrink(context, addr);
        }
        let mut chunks = lock(&self.chunks);
        let Some((&base, spans)) = chunks.range_mut(..=addr).next_back() else { return };
        spans.give(addr - base, len);
        // One empty chunk is kept for the next request.
        let spare = chunks.values().filter(|spans| spans.is_untouched()).count() > 1;
        if spare && chunks.get(&base).is_some_and(Suballocator::is_untouched) {
            chunks.remove(&base);
            drop(chunks);
            self.shrink(context, base);
        }
    }

    fn shrink(&self, context: &'static Context, addr: u64) {
        self.remove(addr);
        defer(Deferred::Device { context, addr });
    }
}

fn allocate(context: &'static Context, len: u64) -> Result<u64, GpuError> {
    let _entered = context.enter()?;
    let mut addr = 0;
    // SAFETY: the pointer is to a live local; a context is current.
    unsafe { context.driver().cuMemAlloc_v2(&mut addr, len as usize) }?;
    Ok(addr)
}
