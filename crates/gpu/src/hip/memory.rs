//! Memory by AMD's run time.
//!
//! A NIC writes memory while kernels poll it. Lines of ordinary device memory may stay in the L2 whatever a kernel
//! invalidates, so all that is allocated here is uncached, or fine-grained where the run time is too old for that;
//! what shared mappings are made of is uncached, and there are none where the run time cannot do it.

use super::abi::{
    ALLOCATION_UNCACHED, ALREADY_REGISTERED, Access, AllocationProperties, EVERY_DEVICE_MAPPED,
    FINE_GRAINED, HANDLE_FD, IO_MEMORY, IpcHandle, LAZY_PEER_ACCESS, LOCATION_DEVICE, Location,
    MEMORY_TYPE_DEVICE, OUT_OF_MEMORY, PEER_ALREADY_ENABLED, PEER_UNSUPPORTED, POINTER_DEVICE,
    POINTER_MEMORY_TYPE, RANGE_DMABUF, READ_WRITE, RECOMMENDED, UNCACHED,
};
use super::api::{Addr, Api, Handle, api};
use super::driver::Hip;
use crate::GpuError;
use crate::driver::{Driver, Memory};
use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use warpverbs_mem::{Dmabuf, ShareHandle};

/// The device on which the memory at `addr` lies, even if another library allocated it; `None` for host
/// memory.
///
/// # Errors
/// There is no run time, or it does not know the address.
pub(crate) fn owner(addr: u64) -> Result<Option<u32>, GpuError> {
    owner_by(api()?, addr)
}

fn owner_by(api: &Api, addr: u64) -> Result<Option<u32>, GpuError> {
    let (mut kind, mut ordinal) = (0u32, 0i32);
    let (addr, out) = (addr as Addr, (&raw mut kind).cast());
    // SAFETY: a `hipMemoryType`, a live local; the run time refuses an address that it does not know.
    unsafe { api.hipPointerGetAttribute(out, POINTER_MEMORY_TYPE, addr) }?;
    // SAFETY: an `int`, a live local; as above.
    unsafe { api.hipPointerGetAttribute((&raw mut ordinal).cast(), POINTER_DEVICE, addr) }?;
    let device = MEMORY_TYPE_DEVICE - u32::from(api.is_five());
    Ok((kind == device).then_some(ordinal as u32))
}

fn location(device: c_int) -> Location {
    Location { kind: LOCATION_DEVICE, id: device }
}

fn properties(device: c_int) -> AllocationProperties {
    AllocationProperties {
        // A cache may hold lines of memory of other types when a NIC writes.
        kind: ALLOCATION_UNCACHED,
        handle: HANDLE_FD,
        location: location(device),
        win32: std::ptr::null_mut(),
        compression: 0,
        rdma: 1,
        usage: 0,
    }
}

impl Memory for Hip {
    fn is_out_of_memory(&self, error: &GpuError) -> bool {
        matches!(error, GpuError::Driver { code: OUT_OF_MEMORY, .. })
    }

    fn alloc(&self, len: u64) -> Result<u64, GpuError> {
        let alloc = |flags| {
            let mut addr = std::ptr::null_mut();
            // SAFETY: the pointer is to a live local.
            unsafe { self.api.hipExtMallocWithFlags(&mut addr, len as usize, flags) }?;
            Ok(addr as u64)
        };
        alloc(UNCACHED).or_else(|error| match self.is_out_of_memory(&error) {
            true => Err(error),
            false => alloc(FINE_GRAINED),
        })
    }

    unsafe fn register(&self, start: u64, len: u64, io: bool) -> Result<bool, GpuError> {
        let register = |flags| {
            // SAFETY: the caller's pages.
            match unsafe { self.api.hipHostRegister(start as *mut _, len as usize, flags) } {
                Ok(()) => Ok(true),
                Err(GpuError::Driver { code: ALREADY_REGISTERED, .. }) => Ok(false),
                Err(error) => Err(error),
            }
        };
        // Run times before 7.1 take a NIC's register as any page, and refuse the flag that is meant for it.
        match register(EVERY_DEVICE_MAPPED) {
            Err(error) if io => register(EVERY_DEVICE_MAPPED | IO_MEMORY).map_err(|_| error),
            done => done,
        }
    }

    fn kernel_addr(&self, host: u64) -> Result<u64, GpuError> {
        let mut addr = std::ptr::null_mut();
        // SAFETY: the pointer is to a live local; an address that is not registered is refused.
        unsafe { self.api.hipHostGetDevicePointer(&mut addr, host as *mut _, 0) }?;
        Ok(addr as u64)
    }

    fn allocation(&self, addr: u64) -> Result<(u64, u64), GpuError> {
        let (mut base, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: pointers to live locals; the run time refuses an address that it does not know.
        unsafe { self.api.hipMemGetAddressRange(&mut base, &mut size, addr as Addr) }?;
        Ok((base as u64, size as u64))
    }

    fn owner(&self, addr: u64) -> Result<Option<u32>, GpuError> {
        owner_by(self.api, addr)
    }

    fn enable_peer(&self, peer: &dyn Driver) -> Result<(), GpuError> {
        let (peer, mut can) = (peer.raw() as c_int, 0);
        let unsupported = || (self as &dyn Driver).unsupported("peer access to that device");
        // SAFETY: the pointer is to a live local.
        unsafe { self.api.hipDeviceCanAccessPeer(&mut can, self.device, peer) }?;
        if can == 0 {
            return Err(unsupported());
        }
        // SAFETY: takes no pointer; this device is current.
        match unsafe { self.api.hipDeviceEnablePeerAccess(peer, 0) } {
            Ok(()) | Err(GpuError::Driver { code: PEER_ALREADY_ENABLED, .. }) => Ok(()),
            Err(GpuError::Driver { code: PEER_UNSUPPORTED, .. }) => Err(unsupported()),
            Err(error) => Err(error),
        }
    }

    fn granule(&self) -> Result<u64, GpuError> {
        let (mut granule, properties) = (0, properties(self.device));
        // SAFETY: pointers to live locals.
        unsafe { self.api.hipMemGetAllocationGranularity(&mut granule, &properties, RECOMMENDED) }?;
        Ok(granule as u64)
    }

    fn reserve(&self, len: u64, granule: u64) -> Result<u64, GpuError> {
        let (mut addr, nowhere) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (len, granule) = (len as usize, granule as usize);
        // SAFETY: the pointer is to a live local.
        unsafe { self.api.hipMemAddressReserve(&mut addr, len, granule, nowhere, 0) }?;
        Ok(addr as u64)
    }

    fn create(&self, len: u64) -> Result<u64, GpuError> {
        let (mut raw, properties) = (std::ptr::null_mut(), properties(self.device));
        // SAFETY: pointers to live locals.
        unsafe { self.api.hipMemCreate(&mut raw, len as usize, &properties, 0) }?;
        Ok(raw as u64)
    }

    fn export(&self, allocation: u64) -> Result<OwnedFd, GpuError> {
        let mut fd: c_int = -1;
        let (out, allocation) = ((&raw mut fd).cast(), allocation as Handle);
        // SAFETY: for this type the pointer is to an `int`, a live local; a live allocation.
        unsafe { self.api.hipMemExportToShareableHandle(out, allocation, HANDLE_FD, 0) }?;
        // SAFETY: a new descriptor, which the run time leaves to its caller.
        unsafe { (self as &dyn Driver).owned_fd(fd) }
    }

    fn import(&self, fd: BorrowedFd<'_>) -> Result<u64, GpuError> {
        let mut raw = std::ptr::null_mut();
        // The run time takes the descriptor's number for a pointer.
        let number = fd.as_raw_fd() as usize as *mut _;
        // SAFETY: the pointer is to a live local; an open descriptor, which stays the caller's.
        unsafe { self.api.hipMemImportFromShareableHandle(&mut raw, number, HANDLE_FD) }?;
        Ok(raw as u64)
    }

    fn retain(&self, addr: u64) -> Result<Option<u64>, GpuError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a live local; the run time refuses addresses of other memory.
        match unsafe { self.api.hipMemRetainAllocationHandle(&mut raw, addr as Addr) } {
            Ok(()) => Ok(Some(raw as u64)),
            Err(GpuError::Driver { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    unsafe fn map(&self, addr: u64, len: u64, allocation: u64) -> Result<(), GpuError> {
        // SAFETY: the caller's addresses and allocation.
        unsafe { self.api.hipMemMap(addr as Addr, len as usize, 0, allocation as Handle, 0) }
    }

    unsafe fn allow(&self, addr: u64, len: u64) -> Result<(), GpuError> {
        let access = Access { location: location(self.device), flags: READ_WRITE };
        // SAFETY: the caller's mapping; one descriptor, which the call reads.
        unsafe { self.api.hipMemSetAccess(addr as Addr, len as usize, &access, 1) }
    }

    fn export_ipc(&self, base: u64) -> Result<ShareHandle, GpuError> {
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: the pointer is to a live local; the run time refuses memory that it cannot share.
        unsafe { self.api.hipIpcGetMemHandle(&mut handle, base as Addr) }?;
        Ok(ShareHandle::HipIpc(handle.0))
    }

    fn open_ipc(&self, handle: &ShareHandle) -> Result<u64, GpuError> {
        let ShareHandle::HipIpc(handle) = handle else {
            return Err((self as &dyn Driver).unsupported("handles that are not HIP's"));
        };
        let flags = if self.api.is_five() { 0 } else { LAZY_PEER_ACCESS };
        let mut addr = std::ptr::null_mut();
        // SAFETY: the pointer is to a live local; the run time checks the handle.
        unsafe { self.api.hipIpcOpenMemHandle(&mut addr, IpcHandle(*handle), flags) }?;
        Ok(addr as u64)
    }

    unsafe fn export_dmabuf(&self, base: u64, len: u64) -> Result<Dmabuf, GpuError> {
        // HSA first: only it says where in the dmabuf the range begins.
        // SAFETY: the caller's allocation.
        if let Some(exported) = unsafe { self.api.export_dmabuf(base, len as usize) } {
            let (fd, offset) = exported?;
            // SAFETY: a new descriptor, which the run time leaves to its caller.
            return Ok(Dmabuf { fd: unsafe { (self as &dyn Driver).owned_fd(fd) }?, offset });
        }
        // HIP's own call exports all of an allocation, so the range has to begin where that does.
        let unsupported = |what| Err((self as &dyn Driver).unsupported(what));
        if self.allocation(base)?.0 != base {
            return unsupported("a dmabuf of a part of an allocation, without HSA's export");
        }
        let mut fd: c_int = -1;
        let (out, addr, len) = ((&raw mut fd).cast(), base as Addr, len as usize);
        // SAFETY: the caller's allocation; a dmabuf handle is an `int`, and the pointer is to a live one.
        match unsafe { self.api.hipMemGetHandleForAddressRange(out, addr, len, RANGE_DMABUF, 0) } {
            // SAFETY: as above.
            Ok(()) => Ok(Dmabuf { fd: unsafe { (self as &dyn Driver).owned_fd(fd) }?, offset: 0 }),
            Err(GpuError::Library { .. }) => unsupported("dmabuf export"),
            Err(error) => Err(error),
        }
    }
}
