//! Memory by CUDA's driver: allocations, host memory, virtual memory management, IPC handles, dmabufs.

use super::api::{
    ALREADY_REGISTERED, Api, NOT_SUPPORTED, OUT_OF_MEMORY, PEER_ALREADY_ENABLED, PEER_UNSUPPORTED,
    driver,
};
use super::driver::Cuda;
use crate::GpuError;
use crate::driver::{Driver, Memory};
use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use std::ffi::c_char;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use warpverbs_mem::{Dmabuf, ShareHandle};

const FD: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const EVERY_CONTEXT_MAPPED: u32 = 1 | 2;
/// `CU_MEMHOSTREGISTER_IOMEMORY`.
const IO_MEMORY: u32 = 4;

/// The device on which the memory at `addr` lies, even if another library allocated it; `None` for host
/// memory.
///
/// # Errors
/// There is no driver, or it does not know the address.
pub(crate) fn owner(addr: u64) -> Result<Option<u32>, GpuError> {
    owner_by(driver()?, addr)
}

fn owner_by(api: &Api, addr: u64) -> Result<Option<u32>, GpuError> {
    let (mut kind, mut ordinal) = (0u32, 0i32);
    let attribute = sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: an `unsigned int`, a live local; the driver refuses an address that it does not know.
    unsafe { api.cuPointerGetAttribute((&raw mut kind).cast(), attribute, addr) }?;
    let attribute = sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: an `int`, a live local; as above.
    unsafe { api.cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, addr) }?;
    let device = sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as u32;
    Ok((kind == device).then_some(ordinal as u32))
}

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

impl Memory for Cuda {
    fn is_out_of_memory(&self, error: &GpuError) -> bool {
        matches!(error, GpuError::Driver { code: OUT_OF_MEMORY, .. })
    }

    fn alloc(&self, len: u64) -> Result<u64, GpuError> {
        let mut addr = 0;
        // SAFETY: the pointer is to a live local; a context is current.
        unsafe { self.api.cuMemAlloc_v2(&mut addr, len as usize) }?;
        Ok(addr)
    }

    unsafe fn register(&self, start: u64, len: u64, io: bool) -> Result<bool, GpuError> {
        let flags = EVERY_CONTEXT_MAPPED | if io { IO_MEMORY } else { 0 };
        // SAFETY: the caller's pages.
        match unsafe { self.api.cuMemHostRegister_v2(start as *mut _, len as usize, flags) } {
            Ok(()) => Ok(true),
            Err(GpuError::Driver { code: ALREADY_REGISTERED, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn kernel_addr(&self, host: u64) -> Result<u64, GpuError> {
        let mut addr = 0;
        // SAFETY: the pointer is to a live local; an address that is not registered is refused.
        unsafe { self.api.cuMemHostGetDevicePointer_v2(&mut addr, host as *mut _, 0) }?;
        Ok(addr)
    }

    fn allocation(&self, addr: u64) -> Result<(u64, u64), GpuError> {
        let (mut base, mut size) = (0, 0);
        // SAFETY: pointers to live locals; the driver refuses an address that it does not know.
        unsafe { self.api.cuMemGetAddressRange_v2(&mut base, &mut size, addr) }?;
        Ok((base, size as u64))
    }

    fn owner(&self, addr: u64) -> Result<Option<u32>, GpuError> {
        owner_by(self.api, addr)
    }

    fn enable_peer(&self, peer: &dyn Driver) -> Result<(), GpuError> {
        // SAFETY: both contexts are live, and this device's is current.
        match unsafe { self.api.cuCtxEnablePeerAccess(peer.raw() as sys::CUcontext, 0) } {
            Ok(()) | Err(GpuError::Driver { code: PEER_ALREADY_ENABLED, .. }) => Ok(()),
            Err(GpuError::Driver { code: PEER_UNSUPPORTED, .. }) => {
                Err((self as &dyn Driver).unsupported("peer access to that device"))
            }
            Err(error) => Err(error),
        }
    }

    fn reserve(&self, len: u64, granule: u64) -> Result<u64, GpuError> {
        let mut addr = 0;
        // SAFETY: the pointer is to a live local.
        unsafe { self.api.cuMemAddressReserve(&mut addr, len as usize, granule as usize, 0, 0) }?;
        Ok(addr)
    }

    unsafe fn map(&self, addr: u64, len: u64, allocation: u64) -> Result<(), GpuError> {
        // SAFETY: the caller's addresses and allocation.
        unsafe { self.api.cuMemMap(addr, len as usize, 0, allocation, 0) }
    }

    fn granule(&self) -> Result<u64, GpuError> {
        let (mut granule, properties) = (0, properties(self.api, self.device));
        let recommended =
            sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        // SAFETY: pointers to live locals.
        unsafe { self.api.cuMemGetAllocationGranularity(&mut granule, &properties, recommended) }?;
        Ok(granule as u64)
    }

    fn create(&self, len: u64) -> Result<u64, GpuError> {
        let (mut raw, properties) = (0, properties(self.api, self.device));
        // SAFETY: pointers to live locals.
        unsafe { self.api.cuMemCreate(&mut raw, len as usize, &properties, 0) }?;
        Ok(raw)
    }

    fn export(&self, allocation: u64) -> Result<OwnedFd, GpuError> {
        let mut fd = -1i32;
        // SAFETY: for this type the pointer is to an `int`, a live local; the driver refuses a handle that it
        // does not know.
        unsafe { self.api.cuMemExportToShareableHandle((&raw mut fd).cast(), allocation, FD, 0) }?;
        // SAFETY: a new descriptor, which the driver leaves to its caller.
        unsafe { (self as &dyn Driver).owned_fd(fd) }
    }

    fn import(&self, fd: BorrowedFd<'_>) -> Result<u64, GpuError> {
        let mut raw = 0;
        // The driver takes the descriptor's number for a pointer.
        let number = fd.as_raw_fd() as usize as *mut _;
        // SAFETY: the pointer is to a live local; an open descriptor, which stays the caller's.
        unsafe { self.api.cuMemImportFromShareableHandle(&mut raw, number, FD) }?;
        Ok(raw)
    }

    fn retain(&self, addr: u64) -> Result<Option<u64>, GpuError> {
        let mut raw = 0;
        // SAFETY: the pointer is to a live local; the driver refuses addresses of other memory.
        match unsafe { self.api.cuMemRetainAllocationHandle(&mut raw, addr as *mut _) } {
            Ok(()) => Ok(Some(raw)),
            Err(GpuError::Driver { .. } | GpuError::Library { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    unsafe fn allow(&self, addr: u64, len: u64) -> Result<(), GpuError> {
        let access = sys::CUmemAccessDesc {
            location: location(self.device),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the caller's mapping; one descriptor, which the call reads.
        unsafe { self.api.cuMemSetAccess(addr, len as usize, &access, 1) }
    }

    fn export_ipc(&self, base: u64) -> Result<ShareHandle, GpuError> {
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the pointer is to a live local; the driver refuses memory that it cannot share.
        unsafe { self.api.cuIpcGetMemHandle(&mut handle, base) }?;
        Ok(ShareHandle::CudaIpc(handle.reserved.map(|byte| byte.to_ne_bytes()[0])))
    }

    fn open_ipc(&self, handle: &ShareHandle) -> Result<u64, GpuError> {
        let ShareHandle::CudaIpc(handle) = handle else {
            return Err((self as &dyn Driver).unsupported("handles that are not CUDA's"));
        };
        let handle =
            sys::CUipcMemHandle { reserved: handle.map(|byte| c_char::from_ne_bytes([byte])) };
        let lazy = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut addr = 0;
        // SAFETY: the pointer is to a live local; the driver checks the handle.
        unsafe { self.api.cuIpcOpenMemHandle_v2(&mut addr, handle, lazy) }?;
        Ok(addr)
    }

    unsafe fn export_dmabuf(&self, base: u64, len: u64) -> Result<Dmabuf, GpuError> {
        let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        let mut fd = -1i32;
        let out = (&raw mut fd).cast();
        // SAFETY: the caller's allocation; a dmabuf handle is an `int`, and the pointer is to a live one.
        match unsafe { self.api.cuMemGetHandleForAddressRange(out, base, len as usize, kind, 0) } {
            // SAFETY: a new descriptor, which the driver leaves to its caller.
            Ok(()) => Ok(Dmabuf { fd: unsafe { OwnedFd::from_raw_fd(fd) }, offset: 0 }),
            Err(GpuError::Driver { code: NOT_SUPPORTED, .. } | GpuError::Library { .. }) => {
                Err((self as &dyn Driver).unsupported("dmabuf export"))
            }
            Err(error) => Err(error),
        }
    }
}
