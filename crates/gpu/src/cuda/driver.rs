//! CUDA's driver as [`Driver`].

use super::api::{
    ALREADY_REGISTERED, Api, NOT_READY, OUT_OF_MEMORY, PEER_ALREADY_ENABLED, PEER_UNSUPPORTED,
    driver,
};
use super::attributes::{describe, device_count};
use super::{compile, memory, module};
use crate::driver::{
    Cache, Context, Copy, CopyPath, CopyPolicy, Driver, DriverGpu, Function, Functions, Priority,
    Resource,
};
use crate::launch::{Dim, TOO_MUCH_SHARED};
use crate::{GpuError, GpuInfo, GpuKind, Image};
use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use cudarc::driver::sys::CUfunction_attribute_enum as FunctionAttribute;
use std::ffi::c_void;
use std::os::fd::{BorrowedFd, OwnedFd};
use warpverbs_mem::{Kind, ShareHandle};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const EVERY_CONTEXT_MAPPED: u32 = 1 | 2;
/// `CU_MEMHOSTREGISTER_IOMEMORY`.
const IO_MEMORY: u32 = 4;

/// How a device is to be opened.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Where compiled kernels are kept.
    pub cache: Cache,
    /// How bytes move inside the device; what [`COPY_ENV`](super::COPY_ENV) says if not given.
    pub copy: Option<CopyPolicy>,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self { cache: Cache::from_env(), copy: None }
    }
}

/// Opens the NVIDIA GPU with this ordinal.
pub fn open(ordinal: u32, options: CudaOptions) -> Result<DriverGpu, GpuError> {
    let policy = options.copy.map_or_else(CopyPolicy::from_env, Ok)?;
    DriverGpu::open(context, ordinal, options.cache, policy)
}

fn context(ordinal: u32) -> Result<&'static Context, GpuError> {
    Context::get(GpuKind::Cuda, ordinal, || Ok(Box::new(Cuda::retain(ordinal)?)))
}

/// The device on which the memory at `addr` is, whoever allocated it; `None` for memory of the host.
///
/// # Errors
/// There is no driver, or it does not know the address.
pub fn owner(addr: u64) -> Result<Option<u32>, GpuError> {
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

/// A device's primary context, which it shares with every other user of CUDA in this process.
///
/// Retained once and never released: the last release would wait for running kernels. The process's
/// end releases it.
struct Cuda {
    api: &'static Api,
    info: GpuInfo,
    device: sys::CUdevice,
    context: u64,
    threads: u32,
}

impl Cuda {
    fn retain(ordinal: u32) -> Result<Self, GpuError> {
        let api = driver()?;
        let count = device_count()?;
        if ordinal >= count {
            return Err(GpuError::NoDevice {
                asked: format!("cuda:{ordinal}"),
                found: format!("{count} CUDA devices"),
            });
        }
        let mut device = 0;
        // SAFETY: the pointer is to a live local.
        unsafe { api.cuDeviceGet(&mut device, ordinal as i32) }?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a live local; `device` is a device of the driver.
        unsafe { api.cuDevicePrimaryCtxRetain(&mut raw, device) }?;
        let threads = Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
        let threads = api.attribute(device, threads as i32)? as u32;
        Ok(Self { api, info: describe(ordinal)?, device, context: raw as u64, threads })
    }

    /// # Safety
    /// As [`Driver::copy`].
    unsafe fn copy_batch(&self, copy: Copy<'_>) -> Result<(), GpuError> {
        let nowhere = sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID,
            id: 0,
        };
        let mut attributes = sys::CUmemcpyAttributes {
            srcAccessOrder: sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            srcLocHint: nowhere,
            dstLocHint: nowhere,
            flags: sys::CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE as u32,
        };
        let Copy { mut dst, mut src, mut len, stream, .. } = copy;
        let mut first = 0;
        // SAFETY: one copy and one attribute that holds from copy 0 on, all in live locals that
        // the call reads; valid ranges (the caller); the stream is live and not the default one.
        unsafe {
            self.api.cuMemcpyBatchAsync_v2(
                &mut dst,
                &mut src,
                &mut len,
                1,
                &mut attributes,
                &mut first,
                1,
                stream as sys::CUstream,
            )
        }
    }
}

impl Driver for Cuda {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn kind(&self) -> Kind {
        Kind::Cuda(self.info.ordinal)
    }

    fn raw(&self) -> u64 {
        self.context
    }

    fn threads_per_multiprocessor(&self) -> u32 {
        self.threads
    }

    fn has_path(&self, path: CopyPath) -> bool {
        path != CopyPath::Batch || self.api.has_batch_copy()
    }

    fn is_out_of_memory(&self, error: &GpuError) -> bool {
        matches!(error, GpuError::Driver { code: OUT_OF_MEMORY, .. })
    }

    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context is never released.
        unsafe { self.api.cuCtxPushCurrent_v2(self.context as sys::CUcontext) }
    }

    fn leave(&self) -> Result<(), GpuError> {
        let mut popped = std::ptr::null_mut();
        // SAFETY: pops what `enter` pushed on this thread; the pointer is to a live local.
        unsafe { self.api.cuCtxPopCurrent_v2(&mut popped) }
    }

    fn compile(&self, image: &Image, cache: &Cache) -> Result<(Vec<u8>, bool), GpuError> {
        let (cubin, origin) = compile::cubin(image, &self.info.arch, cache)?;
        Ok((cubin, origin != compile::Origin::Compiled))
    }

    unsafe fn free(&self, resource: Resource) -> Result<(), GpuError> {
        let api = self.api;
        // The caller's resource, of which this is the last use.
        match resource {
            // SAFETY: an allocation of this context.
            Resource::Memory(addr) => unsafe { api.cuMemFree_v2(addr) },
            // SAFETY: a whole mapping.
            Resource::Mapping(addr, len) => unsafe { api.cuMemUnmap(addr, len as usize) },
            // SAFETY: a whole reservation, in which nothing is mapped any more.
            Resource::Addresses(addr, len) => unsafe { api.cuMemAddressFree(addr, len as usize) },
            // SAFETY: opened once for this resource.
            Resource::Imported(addr) => unsafe { api.cuIpcCloseMemHandle(addr) },
            // SAFETY: a registered range, which is still mapped.
            Resource::Host(start, _) => unsafe { api.cuMemHostUnregister(start as *mut _) },
            // SAFETY: a reference; mappings have references of their own.
            Resource::Allocation(raw) => unsafe { api.cuMemRelease(raw) },
            // SAFETY: a stream, which the driver keeps until its work has ended.
            Resource::Stream(raw) => unsafe { api.cuStreamDestroy_v2(raw as sys::CUstream) },
        }
    }

    fn stream(&self, priority: Priority) -> Result<u64, GpuError> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both pointers are to live locals; a context is current.
        unsafe { self.api.cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }?;
        let level = if priority == Priority::Highest { greatest } else { least };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a live local; a context is current.
        unsafe { self.api.cuStreamCreateWithPriority(&mut raw, NON_BLOCKING, level) }?;
        Ok(raw as u64)
    }

    fn is_idle(&self, stream: u64) -> Result<bool, GpuError> {
        // SAFETY: a live stream.
        match unsafe { self.api.cuStreamQuery(stream as sys::CUstream) } {
            Ok(()) => Ok(true),
            Err(GpuError::Driver { code: NOT_READY, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn can_write_words(&self) -> Result<bool, GpuError> {
        let wide = Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS;
        Ok(self.api.attribute(self.device, wide as i32)? != 0)
    }

    unsafe fn write_word(&self, stream: u64, addr: u64, value: u64) -> Result<(), GpuError> {
        // SAFETY: the caller's stream and word. The default flag has a fence before the write.
        unsafe { self.api.cuStreamWriteValue64_v2(stream as sys::CUstream, addr, value, 0) }
    }

    unsafe fn copy(&self, copy: Copy<'_>) -> Result<(), GpuError> {
        let Copy { dst, src, len, path, ends, stream } = copy;
        let stream = stream as sys::CUstream;
        match (path, ends) {
            (CopyPath::Peer, Some((to, from))) => {
                let (to, from) = (to.raw() as sys::CUcontext, from.raw() as sys::CUcontext);
                // SAFETY: as below; each range belongs to the context given with it.
                unsafe { self.api.cuMemcpyPeerAsync(dst, to, src, from, len, stream) }
            }
            // SAFETY: the same obligations.
            (CopyPath::Batch, _) => unsafe { self.copy_batch(copy) },
            // SAFETY: valid ranges (the caller), unified addressing, a live stream.
            _ => unsafe { self.api.cuMemcpyAsync(dst, src, len, stream) },
        }
    }

    unsafe fn zero(&self, addr: u64, len: usize, stream: u64) -> Result<(), GpuError> {
        // SAFETY: the caller's range and stream.
        unsafe { self.api.cuMemsetD8Async(addr, 0, len, stream as sys::CUstream) }
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

    fn granule(&self) -> Result<u64, GpuError> {
        memory::granule(self.api, self.device)
    }

    fn reserve(&self, len: u64, granule: u64) -> Result<u64, GpuError> {
        let mut addr = 0;
        // SAFETY: the pointer is to a live local.
        unsafe { self.api.cuMemAddressReserve(&mut addr, len as usize, granule as usize, 0, 0) }?;
        Ok(addr)
    }

    fn create(&self, len: u64) -> Result<u64, GpuError> {
        memory::create(self.api, self.device, len)
    }

    fn export(&self, allocation: u64) -> Result<OwnedFd, GpuError> {
        memory::export(self.api, allocation, self.kind().to_string())
    }

    fn import(&self, fd: BorrowedFd<'_>) -> Result<u64, GpuError> {
        memory::import(self.api, fd)
    }

    fn retain(&self, addr: u64) -> Result<Option<u64>, GpuError> {
        memory::retain(self.api, addr)
    }

    unsafe fn map(&self, addr: u64, len: u64, allocation: u64) -> Result<(), GpuError> {
        // SAFETY: the caller's addresses and allocation.
        unsafe { self.api.cuMemMap(addr, len as usize, 0, allocation, 0) }
    }

    unsafe fn allow(&self, addr: u64, len: u64) -> Result<(), GpuError> {
        // SAFETY: the caller's mapping.
        unsafe { memory::allow(self.api, self.device, addr, len) }
    }

    fn export_ipc(&self, base: u64) -> Result<ShareHandle, GpuError> {
        memory::export_ipc(self.api, base)
    }

    fn open_ipc(&self, handle: &ShareHandle) -> Result<u64, GpuError> {
        match handle {
            ShareHandle::CudaIpc(handle) => memory::open_ipc(self.api, *handle),
            _ => Err((self as &dyn Driver).unsupported("handles that are not CUDA's")),
        }
    }

    unsafe fn export_dmabuf(&self, base: u64, len: u64) -> Result<OwnedFd, GpuError> {
        // SAFETY: the caller's allocation.
        let exported = unsafe { memory::export_dmabuf(self.api, base, len) }?;
        exported.ok_or_else(|| (self as &dyn Driver).unsupported("dmabuf export"))
    }

    fn load(&self, image: &'static Image, code: &[u8]) -> Result<Functions, GpuError> {
        module::load(self.api, image, code)
    }

    fn fitting(&self, function: Function, kernel: &'static str, dim: Dim) -> Result<u32, GpuError> {
        let raw = function.raw as sys::CUfunction;
        if dim.shared != 0 {
            // More than 48 KiB has to be asked for, once for a function; less is no harm.
            let most = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: a loaded function; a context is current.
            unsafe { self.api.cuFuncSetAttribute(raw, most, dim.shared as i32) }.map_err(|_| {
                let (field, value) = ("shared", dim.shared.into());
                GpuError::BadLaunch { kernel, field, value, expected: TOO_MUCH_SHARED }
            })?;
        }
        let (mut fitting, threads, shared) = (0, dim.threads() as i32, dim.shared as usize);
        // SAFETY: the pointer is to a live local; a loaded function; a context is current.
        unsafe {
            self.api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut fitting, raw, threads, shared)
        }?;
        Ok(fitting as u32)
    }

    unsafe fn launch(
        &self,
        function: Function,
        dim: Dim,
        stream: u64,
        params: &mut [*mut c_void],
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's function, stream and parameters.
        unsafe {
            self.api.cuLaunchKernel(
                function.raw as sys::CUfunction,
                dim.grid.x,
                dim.grid.y,
                dim.grid.z,
                dim.block.x,
                dim.block.y,
                dim.block.z,
                dim.shared,
                stream as sys::CUstream,
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    }
}
