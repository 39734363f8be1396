//! Virtual memory management, IPC handles and dmabufs by CUDA's driver.

use super::api::{Api, NOT_SUPPORTED};
use crate::GpuError;
use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use warpverbs_mem::ShareHandle;

const FD: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn location(device: sys::CUdevice) -> sys::CUmemLocation {
    let kind = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    sys::CUmemLocation { type_: kind, id: device }
}

fn properties(api: &Api, device: sys::CUdevice) -> sys::CUmemAllocationProp {
    let rdma = Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    let rdma = api.attribute(device, rdma as i32).is_ok_and(|yes| yes != 0);
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FD,
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: rdma.into(),
            usage: 0,
            reserved: [0; 4],
        },
    }
}

pub(crate) fn granule(api: &Api, device: sys::CUdevice) -> Result<u64, GpuError> {
    let (mut granule, properties) = (0, properties(api, device));
    let recommended = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    // SAFETY: pointers to live locals.
    unsafe { api.cuMemGetAllocationGranularity(&mut granule, &properties, recommended) }?;
    Ok(granule as u64)
}

pub(crate) fn create(api: &Api, device: sys::CUdevice, len: u64) -> Result<u64, GpuError> {
    let (mut raw, properties) = (0, properties(api, device));
    // SAFETY: pointers to live locals.
    unsafe { api.cuMemCreate(&mut raw, len as usize, &properties, 0) }?;
    Ok(raw)
}

/// Close-on-exec.
pub(crate) fn export(api: &Api, allocation: u64, label: String) -> Result<OwnedFd, GpuError> {
    let mut fd = -1i32;
    // SAFETY: for this type the pointer is to an `int`, a live local; the driver refuses a handle that it
    // does not know.
    unsafe { api.cuMemExportToShareableHandle((&raw mut fd).cast(), allocation, FD, 0) }?;
    // SAFETY: a new descriptor, which the driver leaves to its caller.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // The driver does not say whether it stays open in a program that this one starts.
    let what = "a file descriptor (ulimit -n)";
    fd.try_clone().map_err(|_| GpuError::Unsupported { device: label, what })
}

pub(crate) fn import(api: &Api, fd: BorrowedFd<'_>) -> Result<u64, GpuError> {
    let mut raw = 0;
    // The driver takes the descriptor's number for a pointer.
    let number = fd.as_raw_fd() as usize as *mut _;
    // SAFETY: the pointer is to a live local; an open descriptor, which stays the caller's.
    unsafe { api.cuMemImportFromShareableHandle(&mut raw, number, FD) }?;
    Ok(raw)
}

pub(crate) fn retain(api: &Api, addr: u64) -> Result<Option<u64>, GpuError> {
    let mut raw = 0;
    // SAFETY: the pointer is to a live local; the driver refuses addresses of other memory.
    match unsafe { api.cuMemRetainAllocationHandle(&mut raw, addr as *mut _) } {
        Ok(()) => Ok(Some(raw)),
        Err(GpuError::Driver { .. } | GpuError::Library { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// # Safety
/// A whole mapping.
pub(crate) unsafe fn allow(
    api: &Api,
    device: sys::CUdevice,
    addr: u64,
    len: u64,
) -> Result<(), GpuError> {
    let access = sys::CUmemAccessDesc {
        location: location(device),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the caller's mapping; one descriptor, which the call reads.
    unsafe { api.cuMemSetAccess(addr, len as usize, &access, 1) }
}

pub(crate) fn export_ipc(api: &Api, base: u64) -> Result<ShareHandle, GpuError> {
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the pointer is to a live local; the driver refuses memory that it cannot share.
    unsafe { api.cuIpcGetMemHandle(&mut handle, base) }?;
    Ok(ShareHandle::CudaIpc(handle.reserved.map(|byte| byte.cast_unsigned())))
}

pub(crate) fn open_ipc(api: &Api, handle: [u8; 64]) -> Result<u64, GpuError> {
    let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| byte.cast_signed()) };
    let lazy = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    let mut addr = 0;
    // SAFETY: the pointer is to a live local; the driver checks the handle.
    unsafe { api.cuIpcOpenMemHandle_v2(&mut addr, handle, lazy) }?;
    Ok(addr)
}

/// None if driver or kernel module cannot.
///
/// # Safety
/// A whole live allocation, or several that follow one another.
pub(crate) unsafe fn export_dmabuf(
    api: &Api,
    base: u64,
    len: u64,
) -> Result<Option<OwnedFd>, GpuError> {
    let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let mut fd = -1i32;
    let out = (&raw mut fd).cast();
    // SAFETY: the caller's allocation; a dmabuf handle is an `int`, and the pointer is to a live one.
    match unsafe { api.cuMemGetHandleForAddressRange(out, base, len as usize, kind, 0) } {
        // SAFETY: a new descriptor, which the driver leaves to its caller.
        Ok(()) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(GpuError::Driver { code: NOT_SUPPORTED, .. } | GpuError::Library { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
