//! Arenas of the SIMT device: memfds in a range of addresses.

use crate::arena::{ArenaError, Mapped, Reservation, Taken};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use warpverbs_mem::{Copier, Dmabuf, Kind, NotExported, Region, check_sealed, sealed_memfd};

/// Addresses without memory.
pub(crate) struct Space {
    ptr: NonNull<c_void>,
    len: NonZeroUsize,
    granule: u64,
    /// Bytes of the machine's memory, 0 if unknown.
    total: u64,
}

// SAFETY: the mapping has no thread affinity.
unsafe impl Send for Space {}
// SAFETY: as above; `&Space` gives out addresses alone.
unsafe impl Sync for Space {}

impl Space {
    pub(crate) fn reserve(len: u64, total: u64) -> Result<Self, ArenaError> {
        let granule = page_size();
        let rounded = len.max(1).checked_next_multiple_of(granule);
        let size = rounded.and_then(|len| usize::try_from(len).ok()).and_then(NonZeroUsize::new);
        let size = size.ok_or_else(|| ArenaError::reserve(len, "more than there are addresses"))?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let ptr = unsafe { mmap_anonymous(None, size, ProtFlags::PROT_NONE, flags) }
            .map_err(|errno| ArenaError::reserve(len, errno))?;
        Ok(Self { ptr, len: size, granule, total })
    }

    fn map(self: Arc<Self>, range: Taken, fd: OwnedFd) -> Result<Box<dyn Mapped>, ArenaError> {
        let (at, len) = self.place(&range);
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: replaces reserved addresses that `range` gives to this mapping alone.
        unsafe { mmap(Some(at), len, prot, flags, &fd, 0) }
            .map_err(|errno| ArenaError::system("mmap of a segment", errno.into()))?;
        Ok(Box::new(File { space: self, range, fd }))
    }

    fn place(&self, range: &Taken) -> (NonZeroUsize, NonZeroUsize) {
        let at = self.ptr.as_ptr() as usize + range.offset as usize;
        let number = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        (number(at), number(range.len as usize))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: a mapping that this value owns; everything inside it is unmapped.
        let unmapped = unsafe { munmap(self.ptr, self.len.get()) };
        debug_assert!(unmapped.is_ok());
    }
}

// SAFETY: reserved from `reserve` to `drop`. `File` maps its range alone, of a file that is sealed
// against getting shorter, so its pages stay.
unsafe impl Reservation for Space {
    fn addr(&self) -> u64 {
        self.ptr.as_ptr() as u64
    }

    fn len(&self) -> u64 {
        self.len.get() as u64
    }

    fn granule(&self) -> u64 {
        self.granule
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        None
    }

    fn export_dmabuf(&self, _addr: u64, _len: u64) -> Result<Dmabuf, NotExported> {
        Err(NotExported("host memory is not exported".to_owned()))
    }

    fn commit(self: Arc<Self>, range: Taken) -> Result<Box<dyn Mapped>, ArenaError> {
        // The system would promise any amount, and kill the process that uses it.
        if self.total != 0 && range.len > self.total {
            return Err(ArenaError::TooLarge { len: range.len, total: self.total });
        }
        let fd = sealed_memfd(range.len)
            .map_err(|cause| ArenaError::system("memfd of a segment", cause))?;
        self.map(range, fd)
    }

    fn attach(self: Arc<Self>, range: Taken, fd: OwnedFd) -> Result<Box<dyn Mapped>, ArenaError> {
        check_sealed(&fd, range.len).map_err(|found| ArenaError::WrongDescriptor {
            expected: format!("a memfd of {:#x} bytes, sealed against getting shorter", range.len),
            found: found.to_string(),
        })?;
        self.map(range, fd)
    }

    fn zero(&self, _region: &Region) -> Result<(), ArenaError> {
        // A new file reads as zeros.
        Ok(())
    }
}

/// A memfd at its place.
struct File {
    space: Arc<Space>,
    range: Taken,
    fd: OwnedFd,
}

impl Mapped for File {
    fn export(&self) -> Result<OwnedFd, ArenaError> {
        self.fd.try_clone().map_err(|cause| ArenaError::system("dup of a descriptor", cause))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let (at, len) = self.space.place(&self.range);
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED;
        // SAFETY: replaces the mapping that this value owns; nobody holds its memory any more.
        let reserved = unsafe { mmap_anonymous(Some(at), len, ProtFlags::PROT_NONE, flags) };
        debug_assert!(reserved.is_ok());
    }
}

fn page_size() -> u64 {
    // SAFETY: no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
