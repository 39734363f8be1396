//! Zero-filled host memory: whole pages, or a few bytes.

use crate::{Backing, Kind, MemError, Region};
use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use std::cell::UnsafeCell;
use std::ptr::NonNull;

/// Bytes from which on a mapping has huge pages.
const HUGE: usize = 4 << 20;

/// A mapping of host memory; unmapped on drop.
#[derive(Debug)]
pub struct HostBuf(pub(crate) MmapRaw);

impl HostBuf {
    /// Maps `len` zeroed bytes (at least one), rounded up to whole 4 KiB pages; of huge pages where
    /// the kernel has some, since NICs and other processes pin page by page.
    pub fn new(len: usize) -> Result<Self, MemError> {
        let want = len.max(1).checked_next_multiple_of(4096).unwrap_or(usize::MAX);
        let mapped = MmapOptions::new().len(want).map_anon().map_err(|error| {
            // More than an address space has is refused without a call of the system.
            let errno = error.raw_os_error().map_or(Errno::ENOMEM, Errno::from_raw);
            MemError::Map { len: want, errno }
        })?;
        let mapping = MmapRaw::from(mapped);
        if want >= HUGE {
            // A kernel without huge pages refuses it.
            let _ = mapping.advise(Advice::HugePage);
        }
        Ok(Self(mapping))
    }

    /// As [`HostBuf::new`], as a [`Region`] of exactly `len` bytes.
    pub fn region(len: usize) -> Result<Region, MemError> {
        Region::new(Self::new(len)?).slice(0, len)
    }
}

// SAFETY: the range is mapped readable and writable until `drop`, and what it maps stays as long.
unsafe impl Backing for HostBuf {
    fn addr(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }
}

/// A few bytes on the heap, zeroed, 16-byte aligned: for what is too small for a page.
#[derive(Debug)]
pub struct SmallBuf {
    words: Box<[UnsafeCell<u128>]>,
    len: usize,
}

impl SmallBuf {
    /// `len` zeroed bytes as a [`Region`].
    pub fn region(len: usize) -> Region {
        let words = (0..len.div_ceil(16).max(1)).map(|_| UnsafeCell::new(0)).collect();
        Region::new(Self { words, len })
    }

    /// A copy of `bytes` as a [`Region`].
    pub fn of(bytes: &[u8]) -> Region {
        let word = |chunk: &[u8]| {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            UnsafeCell::new(u128::from_ne_bytes(word))
        };
        let words: Vec<_> = bytes.chunks(16).map(word).collect();
        let words = if words.is_empty() { vec![UnsafeCell::new(0)] } else { words };
        Region::new(Self { words: words.into(), len: bytes.len() })
    }
}

// SAFETY: all access to the cells goes through `Region`, by address.
unsafe impl Send for SmallBuf {}
// SAFETY: as above; `&SmallBuf` gives out no references to the bytes.
unsafe impl Sync for SmallBuf {}

// SAFETY: the boxed cells stay where they are, readable and writable, until `drop`.
unsafe impl Backing for SmallBuf {
    fn addr(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    fn len(&self) -> usize {
        self.len
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }
}

/// The bytes of a vector, freed as those of a vector are.
#[derive(Debug)]
pub struct VecBuf {
    bytes: NonNull<u8>,
    len: usize,
    capacity: usize,
}

impl VecBuf {
    /// Takes `bytes` as a [`Region`]. They stay where they are, unless they do not begin at a
    /// multiple of 16.
    pub fn region(bytes: Vec<u8>) -> Region {
        if bytes.is_empty() || !bytes.as_ptr().addr().is_multiple_of(16) {
            return SmallBuf::of(&bytes);
        }
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        let (len, capacity) = (bytes.len(), bytes.capacity());
        let Some(bytes) = NonNull::new(bytes.as_mut_ptr()) else { return SmallBuf::region(0) };
        Region::new(Self { bytes, len, capacity })
    }
}

impl Drop for VecBuf {
    fn drop(&mut self) {
        // SAFETY: the parts of a vector that `region` took apart, and nothing that holds a `Region`
        // over it is left.
        drop(unsafe { Vec::from_raw_parts(self.bytes.as_ptr(), self.len, self.capacity) });
    }
}

// SAFETY: the bytes have no thread affinity; all access goes through `Region`.
unsafe impl Send for VecBuf {}
// SAFETY: as above; `&VecBuf` gives out no references to the bytes.
unsafe impl Sync for VecBuf {}

// SAFETY: the allocation is this value's own until `drop`, and begins at a multiple of 16.
unsafe impl Backing for VecBuf {
    fn addr(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    fn len(&self) -> usize {
        self.len
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_keeps_its_bytes_as_a_region() {
        for len in [0, 1, 15, 4096, 100_000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let region = VecBuf::region(bytes.clone());
            let mut seen = vec![0; len];
            region.read(0, &mut seen).unwrap();
            assert!(seen == bytes && region.len() == len && region.addr().is_multiple_of(16));
        }
    }
}
