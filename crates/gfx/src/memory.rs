//! Memory that kernels may reach: registered ranges of the process, every access checked against them.
use crate::error::{Access, MemoryFault, RangeError};
use memmap2::{MmapMut, MmapRaw};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The accesses that kernels may make to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Only loads.
    Read,
    /// Loads, stores and atomic operations.
    ReadWrite,
}

/// Caches that may keep copies of memory while a kernel runs. This only matters to launches that are
/// [lazy](crate::Config::lazy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// The L2 of each XCD as well: ordinary device memory. Hosts and NICs see it when it has been written back, and
    /// kernels may never see what they write there.
    Cached,
    /// The L1 of each compute unit alone: uncached and fine-grained device memory, memory of the host.
    Uncached,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
    rights: Rights,
    pub(crate) cached: bool,
    /// Its own among all registrations.
    pub(crate) id: u64,
}

/// Sorted by address, without overlaps.
#[derive(Debug, Default)]
pub(crate) struct Ranges(RwLock<Vec<Range>>);

/// A range of memory that kernels of a device may reach for as long as this lives. Dropping it waits for the
/// instructions that access memory at the moment; later accesses fault.
#[derive(Debug)]
pub struct Registration {
    ranges: Arc<Ranges>,
    start: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut list = self.ranges.0.write().unwrap_or_else(PoisonError::into_inner);
        list.retain(|range| range.start != self.start);
    }
}

/// Memory of the emulator's own that kernels reach.
#[derive(Debug)]
pub(crate) struct Own {
    // Before the memory: fields are dropped in order.
    _registration: Registration,
    memory: MmapRaw,
}

impl Own {
    pub(crate) fn address(&self) -> u64 {
        self.memory.as_mut_ptr() as u64
    }
}

impl Ranges {
    /// New memory, which `fill` is given once, zeroed.
    pub(crate) fn own(
        self: &Arc<Self>,
        length: usize,
        rights: Rights,
        caching: Caching,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Own, String> {
        let mut memory = MmapMut::map_anon(length).map_err(|error| error.to_string())?;
        fill(&mut memory);
        let memory = MmapRaw::from(memory);
        // SAFETY: the registration is dropped before the mapping, to whose bytes nobody has a reference any more.
        let registration = unsafe { self.add(memory.as_mut_ptr(), length, rights, caching) };
        Ok(Own { _registration: registration.map_err(|error| error.to_string())?, memory })
    }

    /// # Safety
    /// The bytes stay mapped with these rights until the registration has been dropped, and no Rust reference
    /// to them is used while kernels access them.
    pub(crate) unsafe fn add(
        self: &Arc<Self>,
        start: *mut u8,
        length: usize,
        rights: Rights,
        caching: Caching,
    ) -> Result<Registration, RangeError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let start = start as u64;
        let end = start
            .checked_add(length as u64)
            .filter(|&end| start != 0 && end > start && end < 1 << 48);
        let end = end.ok_or(RangeError::Bounds { start, length })?;
        let mut list = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = list.partition_point(|range| range.start < start);
        let before =
            place.checked_sub(1).map(|index| list[index]).filter(|range| range.end > start);
        let after = list.get(place).copied().filter(|range| range.start < end);
        if let Some(other) = before.or(after) {
            return Err(RangeError::Overlap { start, length, other: other.start });
        }
        let (cached, id) = (caching == Caching::Cached, NEXT.fetch_add(1, Relaxed));
        list.insert(place, Range { start, end, rights, cached, id });
        Ok(Registration { ranges: self.clone(), start })
    }

    /// The ranges as they are; none comes or goes until the view is dropped.
    pub(crate) fn view(&self) -> View<'_> {
        View { list: self.0.read().unwrap_or_else(PoisonError::into_inner), last: Cell::new(0) }
    }
}

/// An atomic operation: the result and the operand to the value to be stored.
pub(crate) type Update = fn(u64, u64) -> u64;

/// The result of an access.
pub(crate) type Checked<T> = Result<T, MemoryFault>;

/// Checked accesses of 1, 2, 4 or 8 bytes, little-endian, at a multiple of their length. All are relaxed atomic ones.
pub(crate) struct View<'a> {
    list: RwLockReadGuard<'a, Vec<Range>>,
    last: Cell<usize>,
}

impl View<'_> {
    /// The range that an access lies in.
    pub(crate) fn range(&self, address: u64, length: u64, access: Access) -> Checked<Range> {
        let allowed = |range: &&Range| {
            let inside = range.start <= address && address < range.end;
            let fits = inside && range.end - address >= length && address & (length - 1) == 0;
            fits && (access == Access::Load || range.rights == Rights::ReadWrite)
        };
        if let Some(range) = self.list.get(self.last.get()).filter(allowed) {
            return Ok(*range);
        }
        let before = self.list.partition_point(|range| range.start <= address).wrapping_sub(1);
        self.last.set(before);
        let range = self.list.get(before).filter(allowed);
        range.copied().ok_or(MemoryFault { address, length, access })
    }

    pub(crate) fn load(&self, address: u64, length: u64) -> Checked<u64> {
        self.range(address, length, Access::Load)?;
        Ok(match length {
            1 => cell8(address).load(Relaxed).into(),
            2 => cell16(address).load(Relaxed).into(),
            4 => cell32(address).load(Relaxed).into(),
            _ => cell64(address).load(Relaxed),
        })
    }

    pub(crate) fn store(&self, address: u64, length: u64, value: u64) -> Checked<()> {
        self.range(address, length, Access::Store)?;
        match length {
            1 => cell8(address).store(value as u8, Relaxed),
            2 => cell16(address).store(value as u16, Relaxed),
            4 => cell32(address).store(value as u32, Relaxed),
            _ => cell64(address).store(value, Relaxed),
        }
        Ok(())
    }

    /// Replaces 4 or 8 bytes by what `f` makes of them, in one step; returns what they were.
    pub(crate) fn update(&self, address: u64, length: u64, f: impl Fn(u64) -> u64) -> Checked<u64> {
        self.range(address, length, Access::Atomic)?;
        let (Ok(old) | Err(old)) = match length {
            4 => {
                let new = |old: u32| Some(f(old.into()) as u32);
                let old = cell32(address).fetch_update(Relaxed, Relaxed, new);
                old.map(u64::from).map_err(u64::from)
            }
            _ => cell64(address).fetch_update(Relaxed, Relaxed, |old| Some(f(old))),
        };
        Ok(old)
    }
}

macro_rules! cells {
    ($($name:ident $cell:ty;)*) => {$(
        /// Of an address that `View::range` found within a range, aligned for the cell.
        fn $name<'a>(address: u64) -> &'a $cell {
            // SAFETY: the range's owner keeps it mapped while a view exists, and every access of kernels is atomic.
            unsafe { <$cell>::from_ptr(address as *mut _) }
        }
    )*};
}
cells! { cell8 AtomicU8; cell16 AtomicU16; cell32 AtomicU32; cell64 AtomicU64; }
