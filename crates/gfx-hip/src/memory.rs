//! Device memory, registered host memory, and what is known of an address.

use crate::code::{Answer, Code, exports, put};
use crate::device::current;
use crate::state::{Origin, find, name, state};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::{c_int, c_uint, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use warpverbs_gfx::Caching;

/// Lengths are rounded up to it.
pub(crate) const PAGE: usize = 4096;

/// Zeroed memory without an address.
pub(crate) fn create(len: usize, caching: Caching) -> Answer<OwnedFd> {
    let none = |_| Code::OutOfMemory;
    let len = i64::try_from(len).map_err(|_| Code::OutOfMemory)?;
    let memory = memfd_create(name(caching), MFdFlags::MFD_CLOEXEC).map_err(none)?;
    nix::unistd::ftruncate(&memory, len).map_err(none)?;
    Ok(memory)
}

/// Maps memory, or reserves addresses where there is none, anywhere or in the place of what is mapped at `at`.
///
/// # Safety
/// If an address is given, `len` bytes there are a reservation, or a mapping in one, that nobody uses.
pub(crate) unsafe fn map(memory: Option<&OwnedFd>, len: usize, at: Option<usize>) -> Answer<usize> {
    let len = NonZeroUsize::new(len).ok_or(Code::InvalidValue)?;
    let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let fixed = at.map_or(MapFlags::empty(), |_| MapFlags::MAP_FIXED);
    let (at, shared) = (at.and_then(NonZeroUsize::new), MapFlags::MAP_SHARED | fixed);
    let mapped = match memory {
        // SAFETY: a new mapping, or one in the place of what nobody uses (the caller's obligation).
        Some(memory) => unsafe { mmap(at, len, both, shared, memory.as_fd(), 0) },
        // SAFETY: likewise.
        None => unsafe {
            mmap_anonymous(at, len, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE | fixed)
        },
    };
    Ok(mapped.map_err(|_| Code::OutOfMemory)?.as_ptr() as usize)
}

/// # Safety
/// A whole mapping, whose last use this is.
pub(crate) unsafe fn unmap(at: usize, len: usize) -> Answer {
    let at = NonNull::new(at as *mut c_void).ok_or(Code::InvalidValue)?;
    // SAFETY: the caller's obligation.
    unsafe { munmap(at, len) }.map_err(|_| Code::InvalidValue)
}

/// Maps memory, for kernels too, until [`take_back`].
pub(crate) fn map_new(memory: Arc<OwnedFd>, len: usize, origin: Origin) -> Answer<usize> {
    // SAFETY: no address is given.
    let at = unsafe { map(Some(&memory), len, None) }?;
    // SAFETY: a new mapping, which is taken out of the ranges before it goes.
    let added = unsafe { state().add((at, len), origin, current(), Some(memory)) };
    if added.is_err() {
        // SAFETY: nobody knows of it.
        unsafe { unmap(at, len) }?;
    }
    added.map(|()| at)
}

fn take_back(at: usize, origin: Origin) -> Answer {
    let range = state().remove(at, origin)?;
    let len = range.len;
    drop(range);
    // SAFETY: mapped by `map_new`, and out of the kernels' reach now.
    unsafe { unmap(at, len) }
}

exports! {
    fn hipExtMallocWithFlags(len: usize, flags: c_uint) -> *mut c_void {
        // Default, fine-grained and uncached memory; there is none for signals.
        if len == 0 || !matches!(flags, 0 | 1 | 3) {
            return Err(Code::InvalidValue);
        }
        state().alive()?;
        let len = len.checked_next_multiple_of(PAGE).ok_or(Code::OutOfMemory)?;
        let caching = if flags == 0 { Caching::Cached } else { Caching::Uncached };
        let at = map_new(Arc::new(create(len, caching)?), len, Origin::Allocated)?;
        Ok(at as *mut c_void)
    }

    fn hipFree(addr: *mut c_void) {
        if addr.is_null() { Ok(()) } else { take_back(addr as usize, Origin::Allocated) }
    }

    fn hipIpcCloseMemHandle(addr: *mut c_void) {
        take_back(addr as usize, Origin::Imported)
    }

    fn hipHostRegister(addr: *mut c_void, len: usize, flags: c_uint) {
        state().alive()?;
        // Portable, mapped, coarse-grained; I/O memory is refused, as by AMD's library before HIP 7.1.
        if len == 0 || flags & !(1 | 2 | 8) != 0 {
            return Err(Code::InvalidValue);
        }
        let range = (addr as usize, len);
        // SAFETY: the caller keeps it mapped until it has been unregistered.
        unsafe { state().add(range, Origin::Host, current(), None) }
    }

    fn hipHostUnregister(addr: *mut c_void) {
        let removed = state().remove(addr as usize, Origin::Host);
        removed.map(drop).map_err(|_| Code::HostMemoryNotRegistered)
    }

    fn hipHostGetDevicePointer(host: *mut c_void, _flags: c_uint) -> *mut c_void {
        let ranges = state().ranges();
        let (_, range) = find(&ranges, host as usize)?;
        if range.origin == Origin::Host { Ok(host) } else { Err(Code::InvalidValue) }
    }

    fn hipMemGetAddressRange(len: *mut usize, addr: *mut c_void) -> *mut c_void {
        let ranges = state().ranges();
        let (at, range) = find(&ranges, addr as usize).map_err(|_| Code::NotFound)?;
        // SAFETY: the caller's pointer.
        unsafe { put(len, range.len) }?;
        Ok(at as *mut c_void)
    }

    /// The attribute says what is written.
    fn hipPointerGetAttribute(out: *mut c_void, attribute: c_int, addr: *mut c_void) {
        let ranges = state().ranges();
        let (_, range) = find(&ranges, addr as usize)?;
        match attribute {
            // The type of memory: host 1, device 2.
            // SAFETY: the caller's pointer, to an `unsigned`.
            2 => unsafe { put(out.cast(), if range.origin == Origin::Host { 1u32 } else { 2 }) },
            // SAFETY: the caller's pointer, to an `int`.
            9 => unsafe { put(out.cast(), range.device) },
            _ => Err(Code::InvalidValue),
        }
    }
}
