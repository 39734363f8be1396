//! Runs of atomic words inside host memory: checked once, then only indexed.

use crate::{Kind, MemError, Region};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

mod sealed {
    pub trait Sealed {}
}

/// A word that anybody may access at any time.
///
/// # Safety
/// Every bit pattern is valid, and a shared reference allows concurrent access by others.
pub unsafe trait Cell: sealed::Sealed + Send + Sync + 'static {}

macro_rules! cell {
    ($($word:ty),*) => {$(
        impl sealed::Sealed for $word {}
        // SAFETY: std's atomics have the layout of the integer and interior mutability.
        unsafe impl Cell for $word {}
    )*};
}
cell!(AtomicU8, AtomicU32, AtomicU64);

/// `count` words of a [`Region`], which this value keeps alive. Dereferences to a slice of atomics,
/// so that a hot path pays one bounds check of a slice and nothing else.
pub struct Cells<A: Cell> {
    first: NonNull<A>,
    count: usize,
    region: Region,
}

impl<A: Cell> Cells<A> {
    /// The bytes, as a region.
    pub fn region(&self) -> &Region {
        &self.region
    }
}

impl<A: Cell> Deref for Cells<A> {
    type Target = [A];

    #[inline]
    fn deref(&self) -> &[A] {
        // SAFETY: `Region::cells` checked bounds, kind and alignment of all `count` words, `region`
        // keeps them allocated, and `Cell` allows any concurrent access.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<A: Cell> fmt::Debug for Cells<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cells({} words in {:?})", self.count, self.region)
    }
}

// SAFETY: access is through atomics only, and the region is itself `Send`.
unsafe impl<A: Cell> Send for Cells<A> {}
// SAFETY: as above.
unsafe impl<A: Cell> Sync for Cells<A> {}

impl Region {
    /// `count` atomic words from `offset` on. Host memory only, naturally aligned.
    pub fn cells<A: Cell>(&self, offset: u64, count: usize) -> Result<Cells<A>, MemError> {
        let bytes = count.saturating_mul(size_of::<A>());
        let addr = self.range(offset, bytes)?;
        if self.kind() != Kind::Host {
            return Err(MemError::NotHost { addr });
        }
        let align = align_of::<A>();
        let first = NonNull::new(addr as *mut A).filter(|p| p.is_aligned());
        let first = first.ok_or(MemError::Misaligned { addr, align })?;
        Ok(Cells { first, count, region: self.slice(offset, bytes)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostBuf;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn cells_see_what_the_region_sees() {
        let region = HostBuf::region(64).unwrap();
        let words = region.cells::<AtomicU64>(16, 2).unwrap();
        words[1].store(0x0807_0605_0403_0201, Relaxed);
        let mut bytes = [0; 8];
        region.read(24, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        drop(region);
        assert_eq!(words[0].load(Relaxed), 0);
    }

    #[test]
    fn bad_ranges_are_refused() {
        let region = HostBuf::region(64).unwrap();
        assert!(matches!(region.cells::<AtomicU64>(8, 8), Err(MemError::OutOfBounds { .. })));
        assert!(matches!(region.cells::<AtomicU64>(4, 1), Err(MemError::Misaligned { .. })));
        assert!(matches!(
            region.cells::<AtomicU8>(0, usize::MAX),
            Err(MemError::OutOfBounds { .. })
        ));
    }
}
