//! The program's memory: read and written by calls that cannot crash, and as regions of the NIC.

use std::ffi::c_void;
use warpverbs_mem::{MemError, Region};
use warpverbs_uverbs::{Errno, Refusal, UserMemory};

const PAGE: u64 = 4096;

/// The memory of this process, by system calls, so that an address that is not mapped is an error.
pub(crate) struct ProcessMemory;

fn span(address: u64, len: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut c_void, iov_len: len }
}

impl UserMemory for ProcessMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        let local = span(out.as_mut_ptr() as u64, out.len());
        let remote = span(address, out.len());
        // SAFETY: `local` is `out`, which nothing else uses; the kernel checks `remote`.
        let moved = unsafe { libc::process_vm_readv(own(), &local, 1, &remote, 1, 0) };
        check(moved, out.len())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let local = span(bytes.as_ptr() as u64, bytes.len());
        let remote = span(address, bytes.len());
        // SAFETY: `local` is `bytes`, which the call only reads; the kernel checks `remote`, which
        // the program gave for an answer.
        let moved = unsafe { libc::process_vm_writev(own(), &local, 1, &remote, 1, 0) };
        check(moved, bytes.len())
    }
}

fn own() -> libc::pid_t {
    std::process::id() as libc::pid_t
}

fn check(moved: isize, len: usize) -> Result<(), Errno> {
    if usize::try_from(moved) == Ok(len) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// `len` bytes of the program's memory, if they are mapped: writable, or at least readable. All
/// pages are there afterwards.
pub(crate) fn region(
    what: &str,
    address: u64,
    len: u64,
    writable: bool,
) -> Result<Region, Refusal> {
    let fault = |why: &str| {
        Refusal::new(Errno::EFAULT, format!("{what}: {len:#x} bytes at {address:#x} {why}"))
    };
    let end = address.checked_add(len).filter(|end| *end <= u64::MAX - PAGE);
    let (Some(end), Ok(bytes)) = (end, usize::try_from(len)) else {
        return Err(fault("are beyond all memory"));
    };
    if len == 0 {
        return Err(Refusal::invalid(format!("{what}: no bytes")));
    }
    let first = address & !(PAGE - 1);
    populate(first, end.next_multiple_of(PAGE) - first, writable)
        .map_err(|()| fault(if writable { "are not writable" } else { "are not readable" }))?;
    // SAFETY: the span was mapped readable just now, and writable unless the key that names it lets
    // nobody write (the caller's part). A kernel would keep the pages; here the program may unmap
    // them. With the feature `fault-guard` every access to a region may fault, and then fails
    // (`faults` has the handler).
    Ok(unsafe { Region::foreign(address, bytes, ()) })
}

/// A span of memory that will not do.
pub(crate) fn refuse_region(what: &str, error: &MemError) -> Refusal {
    Refusal::invalid(format!("{what}: {error}"))
}

/// Has the kernel make every page of the span present, or say that it cannot.
fn populate(first: u64, len: u64, writable: bool) -> Result<(), ()> {
    let advice = if writable { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: populating changes no byte, whatever the span is.
    let done = unsafe { libc::madvise(first as *mut c_void, len as usize, advice) };
    if done == 0 {
        return Ok(());
    }
    // Kernels before 5.14 do not know it, memory of devices does not take it, and it says the same
    // of missing rights.
    if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
        return Err(());
    }
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(drop)?;
    if is_mapped(&maps, first, first + len, writable) { Ok(()) } else { Err(()) }
}

/// Whether mappings with the rights cover `first` to `end`; `maps` has them in ascending order.
fn is_mapped(maps: &str, first: u64, end: u64, writable: bool) -> bool {
    let mut covered = first;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let number = |word| u64::from_str_radix(word, 16).unwrap_or(0);
        let fits = rights.starts_with(if writable { "rw" } else { "r" });
        if fits && number(from) <= covered && covered < number(to) {
            covered = number(to);
        }
    }
    covered >= end
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs_mem::HostBuf;

    #[test]
    fn unmapped_memory_is_an_error() {
        let buf = HostBuf::region(PAGE as usize * 2).unwrap();
        let (at, len) = (buf.addr(), buf.len() as u64);
        ProcessMemory.write(at + 5, b"abc").unwrap();
        let mut out = [0; 3];
        ProcessMemory.read(at + 5, &mut out).unwrap();
        assert_eq!(&out, b"abc");
        let region = region("a test", at + 7, len - 7, true).unwrap();
        assert_eq!((region.addr(), region.len() as u64), (at + 7, len - 7));
        drop((region, buf));
        // The pages are unmapped now, or another's: page 0 never is anybody's.
        assert_eq!(ProcessMemory.read(8, &mut out), Err(Errno::EFAULT));
        assert_eq!(ProcessMemory.write(8, &out), Err(Errno::EFAULT));
        for (address, len) in [(8, 8), (u64::MAX - 8, 4), (u64::MAX, 2), (1 << 63, 1 << 62)] {
            let refusal = super::region("a test", address, len, false).unwrap_err();
            assert_eq!(refusal.errno, Errno::EFAULT, "{address:#x}");
        }
        assert_eq!(super::region("a test", at, 0, false).unwrap_err().errno, Errno::EINVAL);
    }

    #[test]
    fn mappings_must_cover_all_of_a_span() {
        let maps = "1000-3000 rw-p 0 0:0 0\n3000-4000 r--p 0 0:0 0 /file\n5000-6000 rw-p 0 0:0 0\n";
        let rows = [
            (0x1000, 0x3000, true, true),
            (0x1000, 0x4000, true, false),
            (0x2000, 0x4000, false, true),
            (0x2000, 0x6000, false, false),
            (0x0, 0x2000, false, false),
            (0x5000, 0x7000, true, false),
        ];
        for (first, end, writable, expected) in rows {
            assert_eq!(is_mapped(maps, first, end, writable), expected, "{first:#x} {end:#x}");
        }
    }

    #[test]
    fn read_only_memory_is_readable_only() {
        static BYTES: [u8; 64] = [7; 64];
        let at = BYTES.as_ptr() as u64;
        assert!(region("a test", at, 64, false).is_ok());
        assert_eq!(region("a test", at, 64, true).unwrap_err().errno, Errno::EFAULT);
    }
}
