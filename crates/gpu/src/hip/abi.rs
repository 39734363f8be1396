//! Numbers and structures of AMD's libraries, as `hip_runtime_api.h` has them: the same from HIP 5.2 to 7.1
//! where nothing else is said. `abi.c` compares each of them with the header: a test passes it these numbers by their names.

use std::ffi::{c_int, c_uint, c_void};

/// `hipErrorOutOfMemory`.
pub(crate) const OUT_OF_MEMORY: i64 = 2;
/// `hipErrorNoDevice`.
pub(crate) const NO_DEVICE: i64 = 100;
/// `hipErrorPeerAccessUnsupported`.
pub(crate) const PEER_UNSUPPORTED: i64 = 217;
/// `hipErrorNotReady`: the answer of a query on unfinished work.
pub(crate) const NOT_READY: i64 = 600;
/// `hipErrorPeerAccessAlreadyEnabled`.
pub(crate) const PEER_ALREADY_ENABLED: i64 = 704;
/// `hipErrorHostMemoryAlreadyRegistered`.
pub(crate) const ALREADY_REGISTERED: i64 = 712;

/// `hipDeviceAttribute_t`.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Attribute {
    MaxThreadsPerMultiProcessor = 57,
    MultiprocessorCount = 63,
    MaxSharedMemoryPerBlock = 74,
    WarpSize = 87,
    CanUseStreamWaitValue = 10013,
    /// From HIP 5.3 on: kHz of `s_memrealtime`.
    WallClockRate = 10017,
}

/// `hipFuncAttributeMaxThreadsPerBlock` of `hipFunction_attribute`.
pub(crate) const FUNCTION_MAX_THREADS: c_int = 0;

/// `hipStreamNonBlocking`.
pub(crate) const NON_BLOCKING: c_uint = 1;
/// `hipMemcpyDefault`.
pub(crate) const COPY_DEFAULT: c_int = 4;
/// `hipHostRegisterPortable | hipHostRegisterMapped`.
pub(crate) const EVERY_DEVICE_MAPPED: c_uint = 1 | 2;
/// `hipHostRegisterIoMemory`.
pub(crate) const IO_MEMORY: c_uint = 4;
/// `hipDeviceMallocFinegrained`.
pub(crate) const FINE_GRAINED: c_uint = 1;
/// `hipDeviceMallocUncached`, from HIP 5.3 on.
pub(crate) const UNCACHED: c_uint = 3;
/// `hipIpcMemLazyEnablePeerAccess`, which was 0 in HIP 5.
pub(crate) const LAZY_PEER_ACCESS: c_uint = 1;

/// `HIP_POINTER_ATTRIBUTE_MEMORY_TYPE`.
pub(crate) const POINTER_MEMORY_TYPE: c_int = 2;
/// `HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
pub(crate) const POINTER_DEVICE: c_int = 9;
/// `hipMemoryTypeDevice`, which was 1 in HIP 5.
pub(crate) const MEMORY_TYPE_DEVICE: c_uint = 2;

/// `hipMemHandleTypePosixFileDescriptor`.
pub(crate) const HANDLE_FD: c_int = 1;
/// `hipMemAllocationTypeUncached`, from HIP 7.1 on.
pub(crate) const ALLOCATION_UNCACHED: c_int = 0x4000_0000;
/// `hipMemLocationTypeDevice`.
pub(crate) const LOCATION_DEVICE: c_int = 1;
/// `hipMemAccessFlagsProtReadWrite`.
pub(crate) const READ_WRITE: c_int = 3;
/// `hipMemAllocationGranularityRecommended`.
pub(crate) const RECOMMENDED: c_int = 1;
/// `hipMemRangeHandleTypeDmaBufFd`, from HIP 7.0 on.
pub(crate) const RANGE_DMABUF: c_int = 1;

/// `hipMemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

/// `hipMemAllocationProp` from HIP 6 on: the members of HIP 5 are in another order, and nothing is mapped there.
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: c_int,
    pub(crate) handle: c_int,
    pub(crate) location: Location,
    pub(crate) win32: *mut c_void,
    pub(crate) compression: u8,
    pub(crate) rdma: u8,
    pub(crate) usage: u16,
}

/// `hipMemAccessDesc`.
#[repr(C)]
pub(crate) struct Access {
    pub(crate) location: Location,
    pub(crate) flags: c_int,
}

/// `hipIpcMemHandle_t`.
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// More than any version of `hipDeviceProp_t` has.
pub(crate) const PROPERTIES: usize = 4096;
/// Offset of `gcnArchName` in it, in HIP 5; 256 bytes.
pub(crate) const ARCH_NAME_OF_FIVE: usize = 396;
/// The same from HIP 6.0 on (`hipDeviceProp_tR0600`).
pub(crate) const ARCH_NAME: usize = 1160;
