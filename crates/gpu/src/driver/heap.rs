//! Device memory: whole 2 MiB granules from the driver, divided here.
//!
//! Small requests share a granule. That keeps calls of the driver, which may wait for running
//! kernels, off most allocations, and it makes every buffer exportable as a dmabuf, which wants
//! aligned ranges. Memory that comes back is reused at once or [given back](super::owned).

use super::calls::{Driver, Resource};
use super::lock::lock;
use super::owned::{Owned, release};
use super::ranges::{Known, Ranges};
use crate::GpuError;
use std::collections::BTreeMap;
use std::sync::Mutex;
use warpverbs_mem::Holes;

/// The driver is asked for multiples of this, aligned to this.
const CHUNK: u64 = 2 << 20;
/// Longer requests get an allocation of their own.
const SMALL: u64 = CHUNK / 2;
/// Granule and alignment of every piece of a chunk, bytes.
const GRANULE: u64 = 256;

/// All device memory of one device that this crate allocated for requests below [`SMALL`].
#[derive(Default)]
pub(crate) struct Heap {
    chunks: Mutex<BTreeMap<u64, (Holes, Allocation)>>,
}

/// An allocation of the driver's.
struct Allocation {
    _known: Known,
    _owned: Owned,
}

impl Allocation {
    fn new(
        driver: &'static dyn Driver,
        ranges: &'static Ranges,
        len: u64,
    ) -> Result<(u64, Self), GpuError> {
        let alloc = || {
            let _entered = driver.entered()?;
            driver.alloc(len)
        };
        let addr = alloc().or_else(|error| {
            if !driver.is_out_of_memory(&error) {
                return Err(error);
            }
            release();
            alloc()
        })?;
        let owned = Owned::new(driver, Resource::Memory(addr));
        Ok((addr, Self { _known: ranges.add(addr, len), _owned: owned }))
    }
}

/// A piece of device memory, given back on drop.
pub(crate) struct Piece {
    addr: u64,
    /// The heap that it is from, and its length there.
    shared: Option<(&'static Heap, u64)>,
    _own: Option<Allocation>,
}

impl Piece {
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some((heap, len)) = self.shared {
            heap.give(self.addr, len);
        }
    }
}

impl Heap {
    /// Not zeroed.
    pub(crate) fn take(
        &'static self,
        driver: &'static dyn Driver,
        ranges: &'static Ranges,
        len: u64,
    ) -> Result<Piece, GpuError> {
        if len <= SMALL {
            let len = len.max(1).next_multiple_of(GRANULE);
            let addr = self.take_small(driver, ranges, len)?;
            return Ok(Piece { addr, shared: Some((self, len)), _own: None });
        }
        let whole = len.checked_next_multiple_of(CHUNK).unwrap_or(u64::MAX);
        let (addr, own) = Allocation::new(driver, ranges, whole)?;
        Ok(Piece { addr, shared: None, _own: Some(own) })
    }

    fn take_small(
        &self,
        driver: &'static dyn Driver,
        ranges: &'static Ranges,
        len: u64,
    ) -> Result<u64, GpuError> {
        let mut chunks = lock(&self.chunks);
        for (base, (holes, _)) in chunks.iter_mut() {
            if let Some(at) = holes.take(len, GRANULE) {
                return Ok(base + at);
            }
        }
        // Not under the lock: a driver that waits for a kernel must not keep others from freeing.
        drop(chunks);
        let (base, allocation) = Allocation::new(driver, ranges, CHUNK)?;
        let mut holes = Holes::new(0, CHUNK);
        let at = holes.take(len, GRANULE).unwrap_or_default();
        lock(&self.chunks).insert(base, (holes, allocation));
        Ok(base + at)
    }

    fn give(&self, addr: u64, len: u64) {
        let mut chunks = lock(&self.chunks);
        let Some((&base, (holes, _))) = chunks.range_mut(..=addr).next_back() else { return };
        holes.give(addr - base, len);
        // One empty chunk is kept for the next request.
        let empty = |holes: &Holes| holes.len_at(0) == CHUNK;
        let untouched = empty(holes);
        let spare = chunks.values().filter(|(holes, _)| empty(holes)).count() > 1;
        let gone = if spare && untouched { chunks.remove(&base) } else { None };
        drop(chunks);
        // Not under the lock, as above.
        drop(gone);
    }
}
