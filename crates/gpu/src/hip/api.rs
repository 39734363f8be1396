//! The functions of `libamdhip64` and `libhsa-runtime64` that are called, loaded at run time.

use super::abi::{Access, AllocationProperties, Attribute, IpcHandle};
use crate::GpuError;
use crate::library::{open_first, open_library, symbol, table};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

/// Names AMD's HIP library if it is outside the loader's path; or another that has its functions, such as
/// this project's emulator of a GPU.
pub const HIP_ENV: &str = "WARPVERBS_HIP";

const LIBRARY: &str = "AMD's HIP run time";

/// An address of a device.
pub(crate) type Addr = *mut c_void;
/// A stream, module, function or allocation.
pub(crate) type Handle = *mut c_void;

table! {
    LIBRARY;
    required {
        fn hipInit(flags: c_uint);
        fn hipDriverGetVersion(version: *mut c_int);
        fn hipGetDeviceCount(count: *mut c_int);
        fn hipGetDevice(device: *mut c_int);
        fn hipSetDevice(device: c_int);
        fn hipDeviceGetName(name: *mut c_char, len: c_int, device: c_int);
        fn hipDeviceGetUuid(uuid: *mut [u8; 16], device: c_int);
        fn hipDeviceGetPCIBusId(name: *mut c_char, len: c_int, device: c_int);
        fn hipDeviceTotalMem(bytes: *mut usize, device: c_int);
        fn hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
        fn hipGetDeviceProperties(properties: *mut c_void, device: c_int);
        fn hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int);
        fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint);
        fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        fn hipStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int);
        fn hipStreamDestroy(stream: Handle);
        fn hipStreamQuery(stream: Handle);
        fn hipStreamWriteValue64(stream: Handle, addr: Addr, value: u64, flags: c_uint);
        fn hipExtMallocWithFlags(addr: *mut Addr, len: usize, flags: c_uint);
        fn hipFree(addr: Addr);
        fn hipMemGetAddressRange(base: *mut Addr, len: *mut usize, addr: Addr);
        fn hipPointerGetAttribute(value: *mut c_void, attribute: c_int, addr: Addr);
        fn hipHostRegister(addr: *mut c_void, len: usize, flags: c_uint);
        fn hipHostUnregister(addr: *mut c_void);
        fn hipHostGetDevicePointer(device: *mut Addr, host: *mut c_void, flags: c_uint);
        fn hipMemcpyAsync(dst: Addr, src: Addr, len: usize, kind: c_int, stream: Handle);
        fn hipMemcpyPeerAsync(dst: Addr, to: c_int, src: Addr, from: c_int, len: usize, stream: Handle);
        fn hipMemsetD8Async(addr: Addr, value: c_uchar, len: usize, stream: Handle);
        fn hipIpcGetMemHandle(handle: *mut IpcHandle, addr: Addr);
        fn hipIpcOpenMemHandle(addr: *mut Addr, handle: IpcHandle, flags: c_uint);
        fn hipIpcCloseMemHandle(addr: Addr);
        fn hipModuleLoadData(module: *mut Handle, image: *const c_void);
        fn hipModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
        fn hipFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Handle);
        fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: Handle, threads: c_int, shared: usize);
        fn hipModuleLaunchKernel(function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
        fn hipMemAddressReserve(addr: *mut Addr, len: usize, align: usize, at: Addr, flags: c_ulonglong);
        fn hipMemAddressFree(addr: Addr, len: usize);
        fn hipMemCreate(handle: *mut Handle, len: usize, properties: *const AllocationProperties, flags: c_ulonglong);
        fn hipMemRelease(handle: Handle);
        fn hipMemMap(addr: Addr, len: usize, offset: usize, handle: Handle, flags: c_ulonglong);
        fn hipMemUnmap(addr: Addr, len: usize);
        fn hipMemSetAccess(addr: Addr, len: usize, access: *const Access, count: usize);
        fn hipMemGetAllocationGranularity(granule: *mut usize, properties: *const AllocationProperties, option: c_int);
        fn hipMemExportToShareableHandle(out: *mut c_void, handle: Handle, kind: c_int, flags: c_ulonglong);
        fn hipMemImportFromShareableHandle(handle: *mut Handle, from: *mut c_void, kind: c_int);
        fn hipMemRetainAllocationHandle(handle: *mut Handle, addr: Addr);
    }
    optional {
        // HIP 6.0, with the structure as it is since then.
        fn hipGetDevicePropertiesR0600(properties: *mut c_void, device: c_int);
        // HIP 7.0.
        fn hipMemGetHandleForAddressRange(out: *mut c_void, addr: Addr, len: usize, kind: c_int, flags: c_ulonglong);
    }
}

type GetErrorName = unsafe extern "C" fn(c_int) -> *const c_char;
type ExportDmabuf = unsafe extern "C" fn(*const c_void, usize, *mut c_int, *mut u64) -> c_int;

/// The loaded run time.
pub(crate) struct Api {
    table: Table,
    error_name: GetErrorName,
    /// `hsa_amd_portable_export_dmabuf`, of ROCm 5.5 and later.
    export_dmabuf: Option<ExportDmabuf>,
    /// HIPRTC before HIP 6 is in the same library.
    name: String,
    _libraries: (Library, Option<Library>),
}

/// The run time, loaded on first use. There may be no device.
pub(crate) fn api() -> Result<&'static Api, GpuError> {
    static API: OnceLock<Api> = OnceLock::new();
    if let Some(api) = API.get() {
        return Ok(api);
    }
    // Loading twice at once is harmless, and a failure may be cured.
    let api = Api::load(std::env::var(HIP_ENV).ok())?;
    Ok(API.get_or_init(|| api))
}

/// Version of HIP, major and minor.
///
/// # Errors
/// The run time is not there.
pub fn hip_version() -> Result<(u32, u32), GpuError> {
    let version = api()?.version()?;
    Ok((version / 10_000_000, version / 100_000 % 100))
}

impl Api {
    pub(super) fn load(named: Option<String>) -> Result<Self, GpuError> {
        let usual = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
        let names = named.as_deref().map_or_else(|| usual.to_vec(), |named| vec![named]);
        let (library, name) = open_first(LIBRARY, &names).map_err(|error| match error {
            GpuError::NotFound { library, .. } => {
                GpuError::NotFound { library, file: names.join(", ") }
            }
            other => other,
        })?;
        // A part of ROCm, which the run time has loaded; the emulator has this function itself.
        let hsa = open_library("AMD's HSA run time", &["libhsa-runtime64.so.1"]).ok();
        let export = "hsa_amd_portable_export_dmabuf";
        let export_dmabuf = [Some(&library), hsa.as_ref().filter(|_| named.is_none())];
        let export_dmabuf = export_dmabuf.into_iter().flatten().find_map(|library| {
            // SAFETY: `hsa_status_t f(const void*, size_t, int*, uint64_t*)`.
            unsafe { symbol::<ExportDmabuf>(library, LIBRARY, export) }.ok()
        });
        Ok(Self {
            table: Table::load(&library)?,
            // SAFETY: `const char* hipGetErrorName(hipError_t)`; a C enum is passed as an int.
            error_name: unsafe { symbol(&library, LIBRARY, "hipGetErrorName") }?,
            export_dmabuf,
            name: name.to_owned(),
            _libraries: (library, hsa),
        })
    }

    /// The name by which the library was found.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The version as one number: major · 10⁷ + minor · 10⁵ + patch.
    pub(crate) fn version(&self) -> Result<u32, GpuError> {
        let mut version = 0;
        // SAFETY: the pointer is to a live local of the right type.
        unsafe { self.hipDriverGetVersion(&mut version) }?;
        Ok(version as u32)
    }

    /// Whether the structures and numbers are those of HIP 5.
    pub(crate) fn is_five(&self) -> bool {
        self.table.hipGetDevicePropertiesR0600.is_none()
    }

    /// A device attribute.
    pub(crate) fn attribute(&self, device: c_int, attribute: Attribute) -> Result<i32, GpuError> {
        let mut value = 0;
        // SAFETY: the pointer is to a live local; an unknown number or device is refused.
        unsafe { self.hipDeviceGetAttribute(&mut value, attribute as c_int, device) }?;
        Ok(value)
    }

    /// Whether device memory can be exported as dmabufs, as far as the libraries go.
    pub(crate) fn has_dmabuf(&self) -> bool {
        self.export_dmabuf.is_some() || self.table.hipMemGetHandleForAddressRange.is_some()
    }

    /// The descriptor of a dmabuf of device memory and the offset in it, by the HSA run time; None if
    /// that has no such call.
    ///
    /// # Safety
    /// `[addr, addr + len)` is live memory of a device.
    pub(crate) unsafe fn export_dmabuf(
        &self,
        addr: u64,
        len: usize,
    ) -> Option<Result<(c_int, u64), GpuError>> {
        let (mut fd, mut offset) = (-1, 0);
        // SAFETY: the caller's memory; both pointers are to live locals.
        let code = unsafe { self.export_dmabuf?(addr as *const c_void, len, &mut fd, &mut offset) };
        let call = "hsa_amd_portable_export_dmabuf";
        let failed = || GpuError::Driver { call, code: code.into(), name: "HSA status".to_owned() };
        Some(if code == 0 { Ok((fd, offset)) } else { Err(failed()) })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), GpuError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: takes no pointer; answers a static string for any code.
        let name = unsafe { (self.error_name)(code) };
        let name = if name.is_null() {
            "unknown to this run time".to_owned()
        } else {
            // SAFETY: not null, so a static NUL-terminated string of the library.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        Err(GpuError::Driver { call, code: code.into(), name })
    }
}
