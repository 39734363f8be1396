//! CUDA's driver as [`Driver`].

use super::api::{Api, NOT_READY, driver};
use super::attributes::{describe, device_count};
use super::graph;
use crate::driver::{
    Context, Copy, CopyPath, Driver, DriverGpu, OpenOptions, Prepared, Priority, Resource,
};
use crate::{GpuError, GpuInfo, GpuKind};
use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use warpverbs_mem::Kind;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// Opens the NVIDIA GPU with this ordinal.
pub(crate) fn open(ordinal: u32, options: OpenOptions) -> Result<DriverGpu, GpuError> {
    DriverGpu::open(context, ordinal, options)
}

fn context(ordinal: u32) -> Result<&'static Context, GpuError> {
    Context::get(GpuKind::Cuda, ordinal, || Ok(Box::new(Cuda::retain(ordinal)?)))
}

/// A device's primary context, which it shares with every other user of CUDA in this process.
///
/// Retained once and never released: the last release would wait for running kernels. The process's
/// end releases it.
pub(crate) struct Cuda {
    pub(crate) api: &'static Api,
    pub(crate) info: GpuInfo,
    pub(crate) device: sys::CUdevice,
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

    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context is never released.
        unsafe { self.api.cuCtxPushCurrent_v2(self.context as sys::CUcontext) }
    }

    fn leave(&self) -> Result<(), GpuError> {
        let mut popped = std::ptr::null_mut();
        // SAFETY: pops what `enter` pushed on this thread; the pointer is to a live local.
        unsafe { self.api.cuCtxPopCurrent_v2(&mut popped) }
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
            // SAFETY: a graph that is instantiated, of which no launch runs.
            Resource::Graph(raw) => unsafe { api.cuGraphExecDestroy(raw as sys::CUgraphExec) },
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

    unsafe fn record(&self, kernels: &mut [Prepared]) -> Result<u64, GpuError> {
        // SAFETY: handed on to the caller.
        unsafe { graph::record(self.api, kernels) }
    }

    unsafe fn launch_graph(&self, graph: u64, stream: u64) -> Result<(), GpuError> {
        // SAFETY: the caller's graph and stream.
        unsafe { self.api.cuGraphLaunch(graph as sys::CUgraphExec, stream as sys::CUstream) }
    }
}
