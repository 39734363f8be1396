//! Attributes of the device, as the driver reports them.

use crate::raw::device;
use warpverbs_gpu::cuda::{driver_version, nvrtc};
use warpverbs_gpu::driver::{CopyPath, DriverGpu};
use warpverbs_gpu::{Gpu, GpuError};

/// `CUdevice_attribute` by number: the driver may know more than the bindings do.
const ATTRIBUTES: [(&str, i32); 20] = [
    ("UNIFIED_ADDRESSING", 41),
    ("ASYNC_ENGINE_COUNT", 40),
    ("MAX_THREADS_PER_MULTIPROCESSOR", 39),
    ("STREAM_PRIORITIES_SUPPORTED", 78),
    ("HOST_NATIVE_ATOMIC_SUPPORTED", 86),
    ("PAGEABLE_MEMORY_ACCESS", 88),
    ("CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM", 91),
    ("CAN_USE_64_BIT_STREAM_MEM_OPS", 122),
    ("CAN_FLUSH_REMOTE_WRITES", 98),
    ("HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED", 103),
    ("GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED", 110),
    ("MEMORY_POOLS_SUPPORTED", 115),
    ("GPU_DIRECT_RDMA_SUPPORTED", 116),
    ("GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS", 117),
    ("GPU_DIRECT_RDMA_WRITES_ORDERING", 118),
    ("DMA_BUF_SUPPORTED", 124),
    ("HANDLE_TYPE_FABRIC_SUPPORTED", 128),
    ("HOST_NUMA_ID", 134),
    ("HOST_ALLOC_DMA_BUF_SUPPORTED", 146),
    ("DMA_BUF_MMAP_SUPPORTED", 152),
];

pub(crate) fn print(gpu: &DriverGpu) -> Result<(), GpuError> {
    let info = gpu.info();
    let (major, minor) = driver_version()?;
    println!("## {} ({}, {} SMs)\n", info.name, info.arch, info.sm_count);
    println!("| fact | value |\n|---|---|");
    println!("| CUDA of the driver | {major}.{minor} |");
    let (major, minor) = nvrtc()?.version();
    println!("| NVRTC | {major}.{minor} |");
    println!("| memory, GiB | {} |", info.memory_bytes >> 30);
    println!("| cuMemcpyBatchAsync | {} |", gpu.has_copy_path(CopyPath::Batch));
    println!("| copy policy | {} |", gpu.copy_policy());
    for (name, number) in ATTRIBUTES {
        match attribute(info.ordinal, number) {
            Ok(value) => println!("| {name} | {value} |"),
            Err(error) => println!("| {name} | {error} |"),
        }
    }
    println!();
    Ok(())
}

/// By number, which the binding's enumeration need not have.
fn attribute(ordinal: u32, number: i32) -> Result<i32, String> {
    type Call = unsafe extern "C" fn(*mut i32, i32, i32) -> i32;
    let device = device(ordinal).map_err(|error| error.to_string())?;
    // SAFETY: the driver, which is loaded already.
    let library = unsafe { libloading::Library::new("libcuda.so.1") };
    let library = library.map_err(|error| error.to_string())?;
    // SAFETY: `CUresult cuDeviceGetAttribute(int*, CUdevice_attribute, CUdevice)`; enums are ints.
    let call = unsafe { library.get::<Call>("cuDeviceGetAttribute") };
    let (call, mut value) = (call.map_err(|error| error.to_string())?, 0);
    // SAFETY: the pointer is to a live local; an unknown number is refused.
    match unsafe { call(&mut value, number, device) } {
        0 => Ok(value),
        code => Err(format!("refused ({code})")),
    }
}
