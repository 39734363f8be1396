//! Memory that kernels may reach: registered ranges of the process, every access checked against them.
use crate::error::{Access, MemoryFault, RangeError};
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

impl Ranges {
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

/// Checked accesses. All are relaxed atomic ones of their size where the address is a multiple of it, and bytes
/// one by one elsewhere.
pub(crate) struct View<'a> {
    list: RwLockReadGuard<'a, Vec<Range>>,
    last: Cell<usize>,
}

impl View<'_> {
    /// The range that an access lies in.
    pub(crate) fn range(
        &self,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Range, MemoryFault> {
        let fits = |range: &Range| {
            range.start <= address && address < range.end && range.end - address >= length
        };
        let allowed = |range: &Range| access == Access::Load || range.rights == Rights::ReadWrite;
        let fault = MemoryFault { address, length, access };
        let last = self.list.get(self.last.get());
        if let Some(range) = last.filter(|range| fits(range) && allowed(range)) {
            return Ok(*range);
        }
        let index = self
            .list
            .partition_point(|range| range.start <= address)
            .checked_sub(1)
            .ok_or(fault)?;
        let range = &self.list[index];
        self.last.set(index);
        if fits(range) && allowed(range) { Ok(*range) } else { Err(fault) }
    }

    /// `length` is 1, 2, 4 or 8; bytes are little-endian.
    pub(crate) fn load(&self, address: u64, length: u64) -> Result<u64, MemoryFault> {
        self.range(address, length, Access::Load)?;
        if !address.is_multiple_of(length) {
            return (0..length)
                .try_fold(0, |all, byte| Ok(all | self.load(address + byte, 1)? << (8 * byte)));
        }
        Ok(match length {
            1 => cell8(address).load(Relaxed).into(),
            2 => cell16(address).load(Relaxed).into(),
            4 => cell32(address).load(Relaxed).into(),
            _ => cell64(address).load(Relaxed),
        })
    }

    pub(crate) fn store(&self, address: u64, length: u64, value: u64) -> Result<(), MemoryFault> {
        self.range(address, length, Access::Store)?;
        if !address.is_multiple_of(length) {
            return (0..length)
                .try_for_each(|byte| self.store(address + byte, 1, value >> (8 * byte)));
        }
        match length {
            1 => cell8(address).store(value as u8, Relaxed),
            2 => cell16(address).store(value as u16, Relaxed),
            4 => cell32(address).store(value as u32, Relaxed),
            _ => cell64(address).store(value, Relaxed),
        }
        Ok(())
    }

    /// Replaces 4 or 8 bytes by what `update` makes of them, in one step; returns what they were.
    pub(crate) fn update(
        &self,
        address: u64,
        length: u64,
        f: impl Fn(u64) -> u64,
    ) -> Result<u64, MemoryFault> {
        self.range(address, length, Access::Atomic)?;
        if !address.is_multiple_of(length) {
            return Err(MemoryFault { address, length, access: Access::Atomic });
        }
        if length == 4 {
            let new = |old: u32| Some(f(old.into()) as u32);
            return Ok(cell32(address)
                .fetch_update(Relaxed, Relaxed, new)
                .unwrap_or_else(|old| old)
                .into());
        }
        Ok(cell64(address)
            .fetch_update(Relaxed, Relaxed, |old| Some(f(old)))
            .unwrap_or_else(|old| old))
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
