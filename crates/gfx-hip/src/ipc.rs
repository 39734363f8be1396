//! Memory of other processes: handles of 64 bytes, virtual memory management, dmabufs.

use crate::code::{Answer, Code, exports, put};
use crate::device::check;
use crate::handles::Handles;
use crate::memory::{PAGE, create, map, map_new, unmap};
use crate::state::{Origin, find, lock, state};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use warpverbs_gfx::Caching;

/// `hipIpcMemHandle_t`: a process, its descriptor and the length in decimal, with spaces between; zeros behind.
#[repr(C)]
pub(crate) struct IpcHandle([u8; 64]);

fn open(IpcHandle(handle): &IpcHandle) -> Answer<usize> {
    let words = str::from_utf8(handle).unwrap_or_default().trim_end_matches('\0').split(' ');
    let words = words.map(str::parse).collect::<Result<Vec<u64>, _>>();
    let Ok([process, fd, len]) = words.as_deref() else { return Err(Code::InvalidHandle) };
    // As on a GPU.
    if *process == u64::from(std::process::id()) {
        return Err(Code::InvalidValue);
    }
    let path = format!("/proc/{process}/fd/{fd}");
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|_| Code::InvalidHandle)?;
    let is_whole = file.metadata().is_ok_and(|found| found.len() == *len && *len != 0);
    let memory = if is_whole { Ok(OwnedFd::from(file)) } else { Err(Code::InvalidHandle) };
    map_new(Arc::new(memory?), *len as usize, Origin::Imported)
}

/// An allocation without an address.
#[derive(Clone)]
struct Allocation {
    memory: Arc<OwnedFd>,
    len: usize,
    device: c_int,
}

static ALLOCATIONS: Handles<Allocation> = Handles::new();
/// Lengths of reservations, by first address.
static RESERVED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// `hipMemAllocationProp`.
#[repr(C)]
pub(crate) struct Properties {
    kind: c_int,
    handle: c_int,
    location: [c_int; 2],
    win32: *mut c_void,
    flags: [u8; 4],
}

/// The device that memory is asked for on, and whether it is cached. It is pinned or uncached, and shared by descriptor.
///
/// # Safety
/// Null or to properties.
unsafe fn wanted(properties: *const Properties) -> Answer<(c_int, Caching)> {
    // SAFETY: the caller's obligation.
    let properties = unsafe { properties.as_ref() }.ok_or(Code::InvalidValue)?;
    let known = matches!(properties.kind, 1 | 0x4000_0000) && properties.handle == 1;
    let [kind, device] = properties.location;
    check(device)?;
    let caching = if properties.kind == 1 { Caching::Cached } else { Caching::Uncached };
    if known && kind == 1 { Ok((device, caching)) } else { Err(Code::InvalidValue) }
}

/// `hipMemAccessDesc`.
#[repr(C)]
pub(crate) struct Access {
    location: [c_int; 2],
    flags: c_int,
}

exports! {
    fn hipIpcGetMemHandle(addr: *mut c_void) -> IpcHandle {
        let ranges = state().ranges();
        let range = ranges.get(&(addr as usize)).filter(|range| range.origin == Origin::Allocated);
        let range = range.ok_or(Code::InvalidValue)?;
        let fd = range.memory.as_ref().ok_or(Code::InvalidValue)?.as_raw_fd();
        let (text, mut handle) = (format!("{} {fd} {}", std::process::id(), range.len), [0; 64]);
        handle[..text.len()].copy_from_slice(text.as_bytes());
        Ok(IpcHandle(handle))
    }

    fn hipIpcOpenMemHandle(handle: IpcHandle, flags: c_uint) -> *mut c_void {
        // Lazy access of peers is the one flag there is, and has to be given.
        let opened = if flags == 1 { open(&handle) } else { Err(Code::InvalidValue) };
        opened.map(|at| at as *mut c_void)
    }

    fn hipMemGetAllocationGranularity(properties: *const Properties, _option: c_int) -> usize {
        // SAFETY: the caller's pointer.
        unsafe { wanted(properties) }.map(|_| PAGE)
    }

    fn hipMemCreate(len: usize, properties: *const Properties, flags: c_ulonglong) -> *mut c_void {
        // SAFETY: the caller's pointer.
        let (device, caching) = unsafe { wanted(properties) }?;
        if len == 0 || !len.is_multiple_of(PAGE) || flags != 0 {
            return Err(Code::InvalidValue);
        }
        let memory = Arc::new(create(len, caching)?);
        Ok(ALLOCATIONS.add(Allocation { memory, len, device }))
    }

    fn hipMemRelease(handle: *mut c_void) {
        ALLOCATIONS.remove(handle).map(drop).ok_or(Code::InvalidValue)
    }

    /// A descriptor is written.
    fn hipMemExportToShareableHandle(handle: *mut c_void, kind: c_int, flags: c_ulonglong) -> c_int {
        if kind != 1 || flags != 0 {
            return Err(Code::InvalidValue);
        }
        let copy = ALLOCATIONS.with(handle, |allocation| allocation.memory.try_clone());
        let fd = copy.ok_or(Code::InvalidValue)?;
        Ok(fd.map_err(|_| Code::OutOfMemory)?.into_raw_fd())
    }

    fn hipMemImportFromShareableHandle(from: *mut c_void, kind: c_int) -> *mut c_void {
        let fd = RawFd::try_from(from as usize).map_err(|_| Code::InvalidValue)?;
        if fd < 0 || kind != 1 {
            return Err(Code::InvalidValue);
        }
        // SAFETY: the caller's descriptor, which is open during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let file = fd.try_clone_to_owned().map(std::fs::File::from);
        let file = file.map_err(|_| Code::InvalidValue)?;
        let len = file.metadata().map_err(|_| Code::InvalidValue)?.len() as usize;
        if len == 0 || !len.is_multiple_of(PAGE) {
            return Err(Code::InvalidValue);
        }
        let (memory, device) = (Arc::new(file.into()), crate::device::current());
        Ok(ALLOCATIONS.add(Allocation { memory, len, device }))
    }

    fn hipMemRetainAllocationHandle(addr: *mut c_void) -> *mut c_void {
        let ranges = state().ranges();
        let (_, range) = find(&ranges, addr as usize)?;
        let memory = range.memory.clone().filter(|_| range.origin == Origin::Mapped);
        let memory = memory.ok_or(Code::InvalidValue)?;
        Ok(ALLOCATIONS.add(Allocation { memory, len: range.len, device: range.device }))
    }

    fn hipMemAddressReserve(
        len: usize,
        align: usize,
        at: *mut c_void,
        flags: c_ulonglong,
    ) -> *mut c_void {
        // A place of the caller's choice is a hint, which is not taken.
        if !len.is_multiple_of(PAGE) || align > PAGE || flags != 0 || !at.is_null() {
            return Err(Code::InvalidValue);
        }
        // SAFETY: no address is given.
        let at = unsafe { map(None, len, None) }?;
        lock(&RESERVED).insert(at, len);
        Ok(at as *mut c_void)
    }

    fn hipMemAddressFree(addr: *mut c_void, len: usize) {
        let at = addr as usize;
        let used = state().ranges().range(at..at.saturating_add(len)).next().is_some();
        let mut reserved = lock(&RESERVED);
        if used || reserved.get(&at) != Some(&len) {
            return Err(Code::InvalidValue);
        }
        reserved.remove(&at);
        // SAFETY: a whole reservation, in which nothing is mapped.
        unsafe { unmap(at, len) }
    }

    fn hipMemMap(
        addr: *mut c_void,
        len: usize,
        offset: usize,
        handle: *mut c_void,
        flags: c_ulonglong,
    ) {
        let at = addr as usize;
        let allocation = ALLOCATIONS.with(handle, Allocation::clone).ok_or(Code::InvalidValue)?;
        let Allocation { memory, len: size, device } = allocation;
        let reserved = lock(&RESERVED);
        let space = reserved.range(..=at).next_back();
        let inside = space.is_some_and(|(from, space)| at - from + len <= *space);
        let used = state().ranges().range(at..at.saturating_add(len)).next().is_some();
        if !inside || used || offset != 0 || flags != 0 || len != size {
            return Err(Code::InvalidValue);
        }
        // SAFETY: a part of a reservation in which nothing is mapped.
        unsafe { map(Some(&memory), len, Some(at)) }?;
        // SAFETY: a new mapping, which `hipMemUnmap` takes out of the ranges before it goes.
        unsafe { state().add((at, len), Origin::Mapped, device, Some(memory)) }
    }

    fn hipMemUnmap(addr: *mut c_void, len: usize) {
        let at = addr as usize;
        let whole = state().ranges().get(&at).is_some_and(|range| range.len == len);
        let removed = if whole { state().remove(at, Origin::Mapped) } else { Err(Code::InvalidValue) };
        drop(removed?);
        // SAFETY: a mapping of `hipMemMap`, out of the kernels' reach now.
        unsafe { map(None, len, Some(at)) }.map(drop)
    }

    fn hipMemSetAccess(addr: *mut c_void, len: usize, access: *const Access, count: usize) {
        // SAFETY: the caller's pointer, to one or more.
        let access = unsafe { access.as_ref() }.filter(|_| count == 1).ok_or(Code::InvalidValue)?;
        check(access.location[1])?;
        let mapped = state().ranges().get(&(addr as usize)).is_some_and(|range| range.len == len);
        // Read and write, for a device.
        let known = access.flags == 3 && access.location[0] == 1;
        if known && mapped { Ok(()) } else { Err(Code::InvalidValue) }
    }
}

/// HSA's call, which this library has as well: `hsa_status_t`, of which 0x1001 is an invalid argument.
///
/// # Safety
/// As HSA's function of this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hsa_amd_portable_export_dmabuf(
    addr: *const c_void,
    len: usize,
    fd: *mut c_int,
    offset: *mut u64,
) -> c_int {
    let export = || {
        let ranges = state().ranges();
        let (at, range) = find(&ranges, addr as usize)?;
        let inside = addr as usize - at;
        let memory = range.memory.as_ref().filter(|_| range.len - inside >= len);
        let copy = memory.ok_or(Code::InvalidValue)?.try_clone();
        Ok((copy.map_err(|_| Code::OutOfMemory)?.into_raw_fd(), inside as u64))
    };
    let put_both = |(copy, inside)| {
        // SAFETY: the caller's pointer.
        unsafe { put(fd, copy) }?;
        // SAFETY: the caller's pointer.
        unsafe { put::<_, Code>(offset, inside) }
    };
    if export().and_then(put_both).is_ok() { 0 } else { 0x1001 }
}
