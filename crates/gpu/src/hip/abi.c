// The assumptions of `abi.rs` and `api.rs`, against AMD's header of HIP 5 or later: compiled by a test, never linked. The
// test defines the numbers of `abi.rs` by their names there, and sizes and offsets of its structures.
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>
#include <stddef.h>
#include <stdint.h>

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs)
#define AT(structure, member, offset) SAME(offset, offsetof(structure, member))

SAME(OUT_OF_MEMORY, hipErrorOutOfMemory);
SAME(NO_DEVICE, hipErrorNoDevice);
SAME(PEER_UNSUPPORTED, hipErrorPeerAccessUnsupported);
SAME(NOT_READY, hipErrorNotReady);
SAME(PEER_ALREADY_ENABLED, hipErrorPeerAccessAlreadyEnabled);
SAME(ALREADY_REGISTERED, hipErrorHostMemoryAlreadyRegistered);
SAME(MaxThreadsPerMultiProcessor, hipDeviceAttributeMaxThreadsPerMultiProcessor);
SAME(MultiprocessorCount, hipDeviceAttributeMultiprocessorCount);
SAME(MaxSharedMemoryPerBlock, hipDeviceAttributeMaxSharedMemoryPerBlock);
SAME(WarpSize, hipDeviceAttributeWarpSize);
SAME(CanUseStreamWaitValue, hipDeviceAttributeCanUseStreamWaitValue);
SAME(FUNCTION_MAX_THREADS, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(NON_BLOCKING, hipStreamNonBlocking);
SAME(COPY_DEFAULT, hipMemcpyDefault);
SAME(EVERY_DEVICE_MAPPED, hipHostRegisterPortable | hipHostRegisterMapped);
SAME(IO_MEMORY, hipHostRegisterIoMemory);
SAME(FINE_GRAINED, hipDeviceMallocFinegrained);
SAME(POINTER_MEMORY_TYPE, HIP_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(POINTER_DEVICE, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(HANDLE_FD, hipMemHandleTypePosixFileDescriptor);
SAME(LOCATION_DEVICE, hipMemLocationTypeDevice);
SAME(READ_WRITE, hipMemAccessFlagsProtReadWrite);
SAME(RECOMMENDED, hipMemAllocationGranularityRecommended);

#if HIP_VERSION_MAJOR >= 6
SAME(WallClockRate, hipDeviceAttributeWallClockRate);
SAME(UNCACHED, hipDeviceMallocUncached);
SAME(LAZY_PEER_ACCESS, hipIpcMemLazyEnablePeerAccess);
SAME(MEMORY_TYPE_DEVICE, hipMemoryTypeDevice);
AT(hipDeviceProp_t, gcnArchName, ARCH_NAME);
AT(hipMemAllocationProp, type, AllocationProperties_kind);
AT(hipMemAllocationProp, requestedHandleType, AllocationProperties_handle);
AT(hipMemAllocationProp, location, AllocationProperties_location);
AT(hipMemAllocationProp, win32HandleMetaData, AllocationProperties_win32);
AT(hipMemAllocationProp, allocFlags, AllocationProperties_compression);
#else
SAME(0, hipIpcMemLazyEnablePeerAccess);
SAME(MEMORY_TYPE_DEVICE - 1, hipMemoryTypeDevice);
AT(hipDeviceProp_t, gcnArchName, ARCH_NAME_OF_FIVE);
#endif
#if HIP_VERSION_MAJOR >= 7
SAME(RANGE_DMABUF, hipMemRangeHandleTypeDmaBufFd);
#endif
#if HIP_VERSION >= 70051831
SAME(ALLOCATION_UNCACHED, hipMemAllocationTypeUncached);
#endif
SAME(256, sizeof(((hipDeviceProp_t*)0)->gcnArchName));
_Static_assert(sizeof(hipDeviceProp_t) <= PROPERTIES, "hipDeviceProp_t");

SAME(sizeof_Location, sizeof(hipMemLocation));
AT(hipMemLocation, type, Location_kind);
AT(hipMemLocation, id, Location_id);
SAME(sizeof_AllocationProperties, sizeof(hipMemAllocationProp));
SAME(sizeof_Access, sizeof(hipMemAccessDesc));
AT(hipMemAccessDesc, location, Access_location);
AT(hipMemAccessDesc, flags, Access_flags);
SAME(sizeof_IpcHandle, sizeof(hipIpcMemHandle_t));
SAME(16, sizeof(hipUUID));
SAME(sizeof(int), sizeof(hipError_t));
SAME(sizeof(int), sizeof(hipDevice_t));
SAME(sizeof(void*), sizeof(hipDeviceptr_t));
SAME(sizeof(void*), sizeof(hipStream_t));
SAME(sizeof(void*), sizeof(hipMemGenericAllocationHandle_t));

// A function whose parameters differ in number or type does not compile; enumerations stand for their `int`.
#define FUNCTION(name, ...) static hipError_t (*const use_##name)(__VA_ARGS__) = name

FUNCTION(hipInit, unsigned);
FUNCTION(hipDriverGetVersion, int*);
FUNCTION(hipGetDeviceCount, int*);
FUNCTION(hipGetDevice, int*);
FUNCTION(hipSetDevice, int);
FUNCTION(hipDeviceGetName, char*, int, hipDevice_t);
FUNCTION(hipDeviceGetUuid, hipUUID*, hipDevice_t);
FUNCTION(hipDeviceGetPCIBusId, char*, int, int);
FUNCTION(hipDeviceTotalMem, size_t*, hipDevice_t);
FUNCTION(hipDeviceGetAttribute, int*, hipDeviceAttribute_t, int);
FUNCTION(hipGetDeviceProperties, hipDeviceProp_t*, int);
FUNCTION(hipDeviceCanAccessPeer, int*, int, int);
FUNCTION(hipDeviceEnablePeerAccess, int, unsigned);
FUNCTION(hipDeviceGetStreamPriorityRange, int*, int*);
FUNCTION(hipStreamCreateWithPriority, hipStream_t*, unsigned, int);
FUNCTION(hipStreamDestroy, hipStream_t);
FUNCTION(hipStreamQuery, hipStream_t);
FUNCTION(hipStreamWriteValue64, hipStream_t, void*, uint64_t, unsigned);
FUNCTION(hipExtMallocWithFlags, void**, size_t, unsigned);
FUNCTION(hipFree, void*);
FUNCTION(hipMemGetAddressRange, hipDeviceptr_t*, size_t*, hipDeviceptr_t);
FUNCTION(hipPointerGetAttribute, void*, hipPointer_attribute, hipDeviceptr_t);
FUNCTION(hipHostRegister, void*, size_t, unsigned);
FUNCTION(hipHostUnregister, void*);
FUNCTION(hipHostGetDevicePointer, void**, void*, unsigned);
FUNCTION(hipMemcpyAsync, void*, const void*, size_t, hipMemcpyKind, hipStream_t);
FUNCTION(hipMemcpyPeerAsync, void*, int, const void*, int, size_t, hipStream_t);
FUNCTION(hipMemsetD8Async, hipDeviceptr_t, unsigned char, size_t, hipStream_t);
FUNCTION(hipIpcGetMemHandle, hipIpcMemHandle_t*, void*);
FUNCTION(hipIpcOpenMemHandle, void**, hipIpcMemHandle_t, unsigned);
FUNCTION(hipIpcCloseMemHandle, void*);
FUNCTION(hipModuleLoadData, hipModule_t*, const void*);
FUNCTION(hipModuleGetFunction, hipFunction_t*, hipModule_t, const char*);
FUNCTION(hipFuncGetAttribute, int*, hipFunction_attribute, hipFunction_t);
FUNCTION(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, int*, hipFunction_t, int, size_t);
FUNCTION(hipModuleLaunchKernel, hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
         hipStream_t, void**, void**);
FUNCTION(hipMemAddressReserve, void**, size_t, size_t, void*, unsigned long long);
FUNCTION(hipMemAddressFree, void*, size_t);
FUNCTION(hipMemCreate, hipMemGenericAllocationHandle_t*, size_t, const hipMemAllocationProp*, unsigned long long);
FUNCTION(hipMemRelease, hipMemGenericAllocationHandle_t);
FUNCTION(hipMemMap, void*, size_t, size_t, hipMemGenericAllocationHandle_t, unsigned long long);
FUNCTION(hipMemUnmap, void*, size_t);
FUNCTION(hipMemSetAccess, void*, size_t, const hipMemAccessDesc*, size_t);
FUNCTION(hipMemGetAllocationGranularity, size_t*, const hipMemAllocationProp*, hipMemAllocationGranularity_flags);
FUNCTION(hipMemExportToShareableHandle, void*, hipMemGenericAllocationHandle_t, hipMemAllocationHandleType,
         unsigned long long);
FUNCTION(hipMemImportFromShareableHandle, hipMemGenericAllocationHandle_t*, void*, hipMemAllocationHandleType);
FUNCTION(hipMemRetainAllocationHandle, hipMemGenericAllocationHandle_t*, void*);
static const char* (*const use_hipGetErrorName)(hipError_t) = hipGetErrorName;

#define COMPILER(name, ...) static hiprtcResult (*const use_##name)(__VA_ARGS__) = name

SAME(sizeof(int), sizeof(hiprtcResult));
SAME(sizeof(void*), sizeof(hiprtcProgram));
COMPILER(hiprtcVersion, int*, int*);
COMPILER(hiprtcCreateProgram, hiprtcProgram*, const char*, const char*, int, const char**, const char**);
COMPILER(hiprtcCompileProgram, hiprtcProgram, int, const char**);
COMPILER(hiprtcDestroyProgram, hiprtcProgram*);
COMPILER(hiprtcGetProgramLogSize, hiprtcProgram, size_t*);
COMPILER(hiprtcGetProgramLog, hiprtcProgram, char*);
COMPILER(hiprtcGetCodeSize, hiprtcProgram, size_t*);
COMPILER(hiprtcGetCode, hiprtcProgram, char*);
