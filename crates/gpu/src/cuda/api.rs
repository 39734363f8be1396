//! The CUDA driver's functions, loaded at run time.
//!
//! Types come from `cudarc`'s generated bindings, and each signature below is checked against them
//! at compile time. They are not called through `cudarc` because there a missing symbol panics,
//! and because its `CUresult` is an enum: a code that only a newer driver knows would be undefined
//! behaviour. Here a code is an integer and a missing symbol is an error or an `Option`.

use crate::GpuError;
use crate::library::{open_library, symbol, table};
use cudarc::driver::sys;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

/// `CUDA_ERROR_NOT_READY`: the answer of a query on unfinished work.
pub(crate) const NOT_READY: i64 = 600;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
pub(crate) const PEER_ALREADY_ENABLED: i64 = 704;
/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`.
pub(crate) const PEER_UNSUPPORTED: i64 = 217;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: i64 = 2;
/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`.
pub(crate) const ALREADY_REGISTERED: i64 = 712;
/// `CUDA_ERROR_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: i64 = 801;

const LIBRARY: &str = "NVIDIA driver";

macro_rules! driver_api {
    (
        required { $(fn $name:ident($($arg:ident: $ty:ty),*);)* }
        optional { $(fn $opt:ident($($oarg:ident: $oty:ty),*);)* }
    ) => {
        // A signature that differs from the generated binding does not compile.
        $(const _: unsafe fn($($ty),*) -> sys::CUresult = sys::$name;)*
        $(const _: unsafe fn($($oty),*) -> sys::CUresult = sys::$opt;)*
        table! {
            LIBRARY;
            required { $(fn $name($($arg: $ty),*);)* }
            optional { $(fn $opt($($oarg: $oty),*);)* }
        }
    };
}

driver_api! {
    required {
        fn cuInit(flags: c_uint);
        fn cuDriverGetVersion(version: *mut c_int);
        fn cuDeviceGetCount(count: *mut c_int);
        fn cuDeviceGet(device: *mut sys::CUdevice, ordinal: c_int);
        fn cuDeviceGetName(name: *mut c_char, len: c_int, device: sys::CUdevice);
        fn cuDeviceTotalMem_v2(bytes: *mut usize, device: sys::CUdevice);
        fn cuDevicePrimaryCtxRetain(context: *mut sys::CUcontext, device: sys::CUdevice);
        fn cuCtxPushCurrent_v2(context: sys::CUcontext);
        fn cuCtxPopCurrent_v2(context: *mut sys::CUcontext);
        fn cuCtxEnablePeerAccess(peer: sys::CUcontext, flags: c_uint);
        fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        fn cuCtxGetLimit(value: *mut usize, limit: sys::CUlimit);
        fn cuCtxSetLimit(limit: sys::CUlimit, value: usize);
        fn cuStreamCreateWithPriority(stream: *mut sys::CUstream, flags: c_uint, priority: c_int);
        fn cuStreamDestroy_v2(stream: sys::CUstream);
        fn cuStreamQuery(stream: sys::CUstream);
        fn cuStreamWriteValue64_v2(stream: sys::CUstream, addr: sys::CUdeviceptr, value: u64, flags: c_uint);
        fn cuMemAlloc_v2(addr: *mut sys::CUdeviceptr, len: usize);
        fn cuMemFree_v2(addr: sys::CUdeviceptr);
        fn cuMemGetAddressRange_v2(base: *mut sys::CUdeviceptr, len: *mut usize, addr: sys::CUdeviceptr);
        fn cuMemHostRegister_v2(addr: *mut c_void, len: usize, flags: c_uint);
        fn cuMemHostUnregister(addr: *mut c_void);
        fn cuMemHostGetDevicePointer_v2(device: *mut sys::CUdeviceptr, host: *mut c_void, flags: c_uint);
        fn cuMemcpyAsync(dst: sys::CUdeviceptr, src: sys::CUdeviceptr, len: usize, stream: sys::CUstream);
        fn cuMemcpyPeerAsync(dst: sys::CUdeviceptr, dst_ctx: sys::CUcontext, src: sys::CUdeviceptr, src_ctx: sys::CUcontext, len: usize, stream: sys::CUstream);
        fn cuMemsetD8Async(addr: sys::CUdeviceptr, value: c_uchar, len: usize, stream: sys::CUstream);
        fn cuModuleLoadData(module: *mut sys::CUmodule, image: *const c_void);
        fn cuModuleGetFunction(function: *mut sys::CUfunction, module: sys::CUmodule, name: *const c_char);
        fn cuFuncGetAttribute(value: *mut c_int, attribute: sys::CUfunction_attribute, function: sys::CUfunction);
        fn cuFuncSetAttribute(function: sys::CUfunction, attribute: sys::CUfunction_attribute, value: c_int);
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: sys::CUfunction, threads: c_int, shared: usize);
        fn cuLaunchKernel(function: sys::CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: sys::CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
    }
    optional {
        // CUDA 11.4.
        fn cuDeviceGetUuid_v2(uuid: *mut sys::CUuuid, device: sys::CUdevice);
        // CUDA 10.2.
        fn cuMemAddressReserve(addr: *mut sys::CUdeviceptr, len: usize, align: usize, at: sys::CUdeviceptr, flags: c_ulonglong);
        fn cuMemAddressFree(addr: sys::CUdeviceptr, len: usize);
        fn cuMemCreate(handle: *mut sys::CUmemGenericAllocationHandle, len: usize, properties: *const sys::CUmemAllocationProp, flags: c_ulonglong);
        fn cuMemRelease(handle: sys::CUmemGenericAllocationHandle);
        fn cuMemMap(addr: sys::CUdeviceptr, len: usize, offset: usize, handle: sys::CUmemGenericAllocationHandle, flags: c_ulonglong);
        fn cuMemUnmap(addr: sys::CUdeviceptr, len: usize);
        fn cuMemSetAccess(addr: sys::CUdeviceptr, len: usize, access: *const sys::CUmemAccessDesc, count: usize);
        fn cuMemGetAllocationGranularity(granule: *mut usize, properties: *const sys::CUmemAllocationProp, option: sys::CUmemAllocationGranularity_flags);
        fn cuMemExportToShareableHandle(out: *mut c_void, handle: sys::CUmemGenericAllocationHandle, kind: sys::CUmemAllocationHandleType, flags: c_ulonglong);
        fn cuMemImportFromShareableHandle(handle: *mut sys::CUmemGenericAllocationHandle, from: *mut c_void, kind: sys::CUmemAllocationHandleType);
        fn cuMemRetainAllocationHandle(handle: *mut sys::CUmemGenericAllocationHandle, addr: *mut c_void);
        fn cuIpcGetMemHandle(handle: *mut sys::CUipcMemHandle, addr: sys::CUdeviceptr);
        fn cuIpcOpenMemHandle_v2(addr: *mut sys::CUdeviceptr, handle: sys::CUipcMemHandle, flags: c_uint);
        fn cuIpcCloseMemHandle(addr: sys::CUdeviceptr);
        fn cuPointerGetAttribute(value: *mut c_void, attribute: sys::CUpointer_attribute, addr: sys::CUdeviceptr);
        fn cuGraphCreate(graph: *mut sys::CUgraph, flags: c_uint);
        fn cuGraphDestroy(graph: sys::CUgraph);
        fn cuGraphExecDestroy(graph: sys::CUgraphExec);
        fn cuGraphLaunch(graph: sys::CUgraphExec, stream: sys::CUstream);
        // CUDA 11.4.
        fn cuGraphInstantiateWithFlags(instance: *mut sys::CUgraphExec, graph: sys::CUgraph, flags: c_ulonglong);
        // CUDA 12.0.
        fn cuGraphAddKernelNode_v2(node: *mut sys::CUgraphNode, graph: sys::CUgraph, after: *const sys::CUgraphNode, count: usize, kernel: *const sys::CUDA_KERNEL_NODE_PARAMS);
        // CUDA 11.7.
        fn cuMemGetHandleForAddressRange(handle: *mut c_void, addr: sys::CUdeviceptr, len: usize, kind: sys::CUmemRangeHandleType, flags: c_ulonglong);
        // CUDA 12.4.
        fn cuFuncLoad(function: sys::CUfunction);
        // CUDA 12.4.
        fn cuFuncGetParamInfo(function: sys::CUfunction, index: usize, offset: *mut usize, len: *mut usize);
        // CUDA 13.0.
        fn cuMemcpyBatchAsync_v2(dsts: *mut sys::CUdeviceptr, srcs: *mut sys::CUdeviceptr, lens: *mut usize, count: usize, attrs: *mut sys::CUmemcpyAttributes, first: *mut usize, attr_count: usize, stream: sys::CUstream);
    }
}

type GetErrorName = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, sys::CUdevice) -> c_int;

/// The loaded and initialised driver.
pub(crate) struct Api {
    table: Table,
    // These two take an enum in the generated binding; an integer can also carry a value that the
    // binding does not know.
    error_name: GetErrorName,
    attribute: GetAttribute,
    _library: Library,
}

/// The driver, loaded and initialised on first use.
pub(crate) fn driver() -> Result<&'static Api, GpuError> {
    static DRIVER: OnceLock<Api> = OnceLock::new();
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    // Loading twice at once is harmless, and a failure may be cured (a device node that appears).
    let driver = Api::load()?;
    Ok(DRIVER.get_or_init(|| driver))
}

/// Version of the driver, major and minor.
///
/// # Errors
/// There is no driver.
pub fn driver_version() -> Result<(u32, u32), GpuError> {
    driver()?.version()
}

impl Api {
    fn load() -> Result<Self, GpuError> {
        let library = open_library(LIBRARY, &["libcuda.so.1", "libcuda.so"])?;
        let driver = Self {
            table: Table::load(&library)?,
            // SAFETY: `cuGetErrorName(CUresult, const char**)`; a C enum is passed as an int.
            error_name: unsafe { symbol(&library, LIBRARY, "cuGetErrorName") }?,
            // SAFETY: `cuDeviceGetAttribute(int*, CUdevice_attribute, CUdevice)`; as above.
            attribute: unsafe { symbol(&library, LIBRARY, "cuDeviceGetAttribute") }?,
            _library: library,
        };
        // SAFETY: `cuInit` takes no pointer and may be called from any thread.
        unsafe { driver.cuInit(0) }?;
        Ok(driver)
    }

    /// Driver version, major and minor.
    pub(crate) fn version(&self) -> Result<(u32, u32), GpuError> {
        let mut version = 0;
        // SAFETY: the pointer is to a live local of the right type.
        unsafe { self.cuDriverGetVersion(&mut version) }?;
        Ok((version as u32 / 1000, version as u32 % 1000 / 10))
    }

    /// Whether the driver has `cuMemcpyBatchAsync`.
    pub(crate) fn has_batch_copy(&self) -> bool {
        self.table.cuMemcpyBatchAsync_v2.is_some()
    }

    /// Whether the driver has `cuFuncLoad`.
    pub(crate) fn has_func_load(&self) -> bool {
        self.table.cuFuncLoad.is_some()
    }

    /// Whether the driver has `cuFuncGetParamInfo`.
    pub(crate) fn has_param_info(&self) -> bool {
        self.table.cuFuncGetParamInfo.is_some()
    }

    /// A device attribute by its number, which may be one that these bindings do not name.
    pub(crate) fn attribute(&self, device: sys::CUdevice, attribute: i32) -> Result<i32, GpuError> {
        let mut value = 0;
        // SAFETY: the pointer is to a live local; an unknown number or device is refused.
        let code = unsafe { (self.attribute)(&mut value, attribute, device) };
        self.check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), GpuError> {
        if code == 0 {
            return Ok(());
        }
        Err(GpuError::Driver { call, code: code.into(), name: self.error_name(code) })
    }

    fn error_name(&self, code: c_int) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is to a live local; an unknown code is refused and leaves null.
        unsafe { (self.error_name)(code, &mut name) };
        if name.is_null() {
            return "unknown to this driver".to_owned();
        }
        // SAFETY: not null, so a static NUL-terminated string of the driver.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}
