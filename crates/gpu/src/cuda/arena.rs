//! Arenas of a CUDA device: virtual memory management with POSIX file descriptors.
//!
//! Each segment is one allocation, mapped whole: the driver takes no other offset into an allocation
//! than 0. One `cuMemSetAccess` for each segment, which is what costs (`docs/gpu.md`).

use super::CudaDevice;
use super::context::Context;
use super::copy::CopyEngine;
use super::deferred_free::{Deferred, defer};
use super::dmabuf;
use super::transfer::Transfer;
use crate::GpuError;
use crate::arena::{Arena, ArenaError, Mapped, Reservation, Taken};
use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use warpverbs_mem::{Copier, Dmabuf, Kind, NotExported, Region};

const FD: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Reserved addresses of the whole process, for mappings that one device may use.
struct Space {
    context: &'static Context,
    copier: Arc<CopyEngine>,
    transfer: Arc<Transfer>,
    addr: u64,
    len: u64,
    granule: u64,
}

/// Whether the driver shares memory of this device by file descriptor.
pub(crate) fn is_shareable(get: impl Fn(Attribute) -> Result<i32, GpuError>) -> bool {
    [
        Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    ]
    .into_iter()
    .all(|attribute| get(attribute).is_ok_and(|yes| yes != 0))
}

/// Reserves `len` bytes of addresses for memory of `device`.
pub(crate) fn reserve(device: &CudaDevice, len: u64) -> Result<Arena, ArenaError> {
    let context = device.context;
    if !is_shareable(|attribute| context.attribute(attribute)) {
        return Err(device.unsupported("memory shared by file descriptor").into());
    }
    let _entered = context.enter()?;
    let (mut granule, properties) = (0, properties(context));
    let recommended = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    // SAFETY: pointers to live locals.
    unsafe {
        context.driver().cuMemGetAllocationGranularity(&mut granule, &properties, recommended)
    }?;
    let granule = (granule as u64).max(1);
    let len = len
        .max(1)
        .checked_next_multiple_of(granule)
        .ok_or_else(|| ArenaError::reserve(len, "more than there are addresses"))?;
    let mut addr = 0;
    // SAFETY: the pointer is to a live local.
    unsafe {
        context.driver().cuMemAddressReserve(&mut addr, len as usize, granule as usize, 0, 0)
    }
    .map_err(|error| ArenaError::reserve(len, error))?;
    let (copier, transfer) = (device.copier.clone(), device.transfer.clone());
    Ok(Arena::new(Arc::new(Space { context, copier, transfer, addr, len, granule })))
}

fn location(context: &Context) -> sys::CUmemLocation {
    let kind = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    sys::CUmemLocation { type_: kind, id: context.device() }
}

fn properties(context: &Context) -> sys::CUmemAllocationProp {
    let rdma = Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    let rdma = context.attribute(rdma).is_ok_and(|yes| yes != 0);
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FD,
        location: location(context),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: rdma.into(),
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// A reference to memory of some device, released on drop.
pub(super) struct Handle {
    pub(super) context: &'static Context,
    pub(super) raw: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let released = self.context.enter().and_then(|_entered| {
            // SAFETY: a reference that this value owns. Mappings have references of their own.
            unsafe { self.context.driver().cuMemRelease(self.raw) }
        });
        if let Err(error) = released {
            tracing::debug!(%error, "a memory handle was not released");
        }
    }
}

impl Space {
    fn map(self: Arc<Self>, range: Taken, handle: Handle) -> Result<Box<dyn Mapped>, GpuError> {
        let context = self.context;
        let (driver, addr, len) = (context.driver(), self.addr + range.offset, range.len);
        let _entered = context.enter()?;
        // SAFETY: addresses of the reservation that `range` gives to this mapping alone; the driver
        // refuses a length that is not the allocation's.
        unsafe { driver.cuMemMap(addr, len as usize, 0, handle.raw, 0) }?;
        // From here on, dropping it undoes the mapping.
        let segment = Mapping { handle, range: Some(range), addr, len, space: self };
        let access = sys::CUmemAccessDesc {
            location: location(context),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: a whole mapping; one descriptor, which the call reads.
        unsafe { driver.cuMemSetAccess(addr, len as usize, &access, 1) }?;
        context.heap().insert(addr, len);
        Ok(Box::new(segment))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // Behind the mappings, which were deferred before.
        let Self { context, addr, len, .. } = *self;
        defer(Deferred::Addresses { context, addr, len });
    }
}

// SAFETY: reserved until `drop` and longer. `Mapping` maps its range alone, aligned to a granule.
unsafe impl Reservation for Space {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn granule(&self) -> u64 {
        self.granule
    }

    fn kind(&self) -> Kind {
        Kind::Cuda(self.context.ordinal())
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        Some(self.copier.clone())
    }

    fn export_dmabuf(&self, addr: u64, len: u64) -> Result<Dmabuf, NotExported> {
        let exported = dmabuf::export(self.context, addr, len);
        exported.map_err(|error| NotExported(error.to_string()))
    }

    fn commit(self: Arc<Self>, range: Taken) -> Result<Box<dyn Mapped>, ArenaError> {
        let context = self.context;
        let entered = context.enter()?;
        let (mut raw, properties) = (0, properties(context));
        // SAFETY: pointers to live locals.
        unsafe { context.driver().cuMemCreate(&mut raw, range.len as usize, &properties, 0) }?;
        drop(entered);
        Ok(self.map(range, Handle { context, raw })?)
    }

    fn attach(self: Arc<Self>, range: Taken, fd: OwnedFd) -> Result<Box<dyn Mapped>, ArenaError> {
        let (context, len) = (self.context, range.len);
        let wrong = |error: GpuError| match error {
            GpuError::Driver { call, code, name } => ArenaError::WrongDescriptor {
                expected: format!("of {len:#x} bytes of a GPU that {} reaches", context.label()),
                found: format!("refused by {call}: {name} ({code})"),
            },
            other => other.into(),
        };
        let entered = context.enter()?;
        let mut raw = 0;
        // The driver takes the descriptor's number for a pointer.
        let number = fd.as_raw_fd() as usize as *mut _;
        // SAFETY: the pointer is to a live local; an open descriptor, which stays the caller's.
        unsafe { context.driver().cuMemImportFromShareableHandle(&mut raw, number, FD) }
            .map_err(wrong)?;
        drop(entered);
        self.map(range, Handle { context, raw }).map_err(wrong)
    }

    fn zero(&self, region: &Region) -> Result<(), ArenaError> {
        Ok(self.transfer.zero(region)?)
    }
}

/// An allocation at its place.
struct Mapping {
    handle: Handle,
    /// None once dropped.
    range: Option<Taken>,
    addr: u64,
    len: u64,
    space: Arc<Space>,
}

impl Mapped for Mapping {
    fn export(&self) -> Result<OwnedFd, ArenaError> {
        Ok(export(self.space.context, &self.handle)?)
    }
}

/// A new descriptor of an allocation. Close-on-exec.
pub(super) fn export(context: &Context, handle: &Handle) -> Result<OwnedFd, GpuError> {
    let _entered = context.enter()?;
    let mut fd = -1i32;
    // SAFETY: a live handle; for this type the pointer is to an `int`, a live local.
    unsafe {
        context.driver().cuMemExportToShareableHandle((&raw mut fd).cast(), handle.raw, FD, 0)
    }?;
    // SAFETY: a new descriptor, which the driver leaves to its caller.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // The driver does not say whether it stays open in a program that this one starts.
    let limit = "a file descriptor (ulimit -n)";
    fd.try_clone().map_err(|_| GpuError::Unsupported { device: context.label(), what: limit })
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (context, addr, len) = (self.space.context, self.addr, self.len);
        context.heap().remove(addr);
        if let Some(range) = self.range.take() {
            defer(Deferred::Mapping { context, addr, len, _range: range });
        }
    }
}
