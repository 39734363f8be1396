//! Bytes that one process leaves for another to find in its memory, so that the other knows whose
//! it is.

use crate::MemError;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Smallest page of every machine that this crate knows; the kernel rounds up to its own.
const PAGE: usize = 64 << 10;

/// Where a [`Proof`] lies in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofPlace {
    /// Address of the bytes that must be found, in memory that cannot be written.
    pub proof: u64,
    /// Address of a word of 8 bytes that others may write.
    pub word: u64,
    /// Number of the thread that has left it. Others reach the memory by it as long as the thread runs, so
    /// it should run as long as the memory may be copied. It is not the first of its process
    /// ([`ProcessError::FirstThread`](crate::ProcessError::FirstThread)).
    pub thread: u32,
}

/// Bytes in memory of this process that cannot be written, and beside them a word that may be.
///
/// Memory that others may write, such as a registered buffer or a mapping of a file of theirs, proves nothing: a
/// process that may write it can have left the bytes there. So [`Process::prove`](crate::Process::prove) insists
/// on private memory of no file that may only be read.
#[derive(Debug)]
pub struct Proof {
    page: NonNull<c_void>,
    thread: u32,
}

impl Proof {
    /// Leaves `bytes` in this process until this is dropped, in the name of the calling thread.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(bytes: &[u8; 32]) -> Result<Self, MemError> {
        let failed = |errno| MemError::Map { len: 2 * PAGE, errno };
        let len = NonZeroUsize::new(2 * PAGE).unwrap_or(NonZeroUsize::MIN);
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let page = unsafe { mmap_anonymous(None, len, access, MapFlags::MAP_PRIVATE) };
        // SAFETY: takes nothing, and cannot fail.
        let thread = unsafe { libc::gettid() }.unsigned_abs();
        let own = Self { page: page.map_err(failed)?, thread };
        // SAFETY: the mapping is longer, writable, and known to nobody yet.
        unsafe { own.page.cast::<[u8; 32]>().write(*bytes) };
        // SAFETY: the first half of the mapping, to which no reference exists.
        let kept = unsafe { mprotect(own.page, PAGE, ProtFlags::PROT_READ) };
        kept.map_err(failed).map(|()| own)
    }

    /// Where it is.
    pub fn place(&self) -> ProofPlace {
        let proof = self.page.as_ptr() as u64;
        ProofPlace { proof, word: proof + PAGE as u64, thread: self.thread }
    }
}

impl Drop for Proof {
    fn drop(&mut self) {
        // SAFETY: a mapping that this value owns; nothing in this process refers to it.
        let unmapped = unsafe { munmap(self.page, 2 * PAGE) };
        debug_assert!(unmapped.is_ok());
    }
}

// SAFETY: the mapping has no thread affinity, and this process never touches it again.
unsafe impl Send for Proof {}
// SAFETY: as above.
unsafe impl Sync for Proof {}
