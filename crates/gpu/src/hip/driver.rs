//! AMD's run time as [`Driver`].

use super::abi::{Attribute, COPY_DEFAULT, NON_BLOCKING, NOT_READY};
use super::api::{Addr, Api, Handle, api};
use super::attributes::{describe, device_count};
use crate::driver::{Context, Copy, CopyPath, Driver, DriverGpu, OpenOptions, Priority, Resource};
use crate::graph::GRAPHS;
use crate::{GpuError, GpuInfo, GpuKind};
use std::cell::RefCell;
use std::ffi::c_int;
use warpverbs_mem::Kind;

/// Opens the AMD GPU with this ordinal.
pub(crate) fn open(ordinal: u32, options: OpenOptions) -> Result<DriverGpu, GpuError> {
    DriverGpu::open(context, ordinal, options)
}

fn context(ordinal: u32) -> Result<&'static Context, GpuError> {
    Context::get(GpuKind::Hip, ordinal, || Ok(Box::new(Hip::new(ordinal)?)))
}

/// A device. HIP has one context on each, which everything in the process shares.
pub(crate) struct Hip {
    pub(crate) api: &'static Api,
    pub(crate) info: GpuInfo,
    pub(crate) device: c_int,
    /// Bytes of shared memory (LDS) that a block may have.
    pub(crate) shared: u32,
    /// Ticks of the constant clock, kHz, if the run time says.
    pub(crate) clock: Option<u32>,
    threads: u32,
}

thread_local! {
    /// The devices that were current on this thread before each [`Driver::enter`].
    static BEFORE: RefCell<Vec<c_int>> = const { RefCell::new(Vec::new()) };
}

impl Hip {
    fn new(ordinal: u32) -> Result<Self, GpuError> {
        let api = api()?;
        let count = device_count()?;
        if ordinal >= count {
            return Err(GpuError::NoDevice {
                asked: format!("hip:{ordinal}"),
                found: format!("{count} HIP devices"),
            });
        }
        // SAFETY: takes no pointer, and may be called from any thread.
        unsafe { api.hipInit(0) }?;
        let device = ordinal as c_int;
        let get = |attribute| api.attribute(device, attribute).map(|value| value as u32);
        Ok(Self {
            api,
            info: describe(ordinal)?,
            device,
            shared: get(Attribute::MaxSharedMemoryPerBlock)?,
            clock: get(Attribute::WallClockRate).ok().filter(|&rate| rate != 0),
            threads: get(Attribute::MaxThreadsPerMultiProcessor)?,
        })
    }
}

impl Driver for Hip {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn kind(&self) -> Kind {
        Kind::Hip(self.info.ordinal)
    }

    fn raw(&self) -> u64 {
        self.info.ordinal.into()
    }

    fn threads_per_multiprocessor(&self) -> u32 {
        self.threads
    }

    fn has_path(&self, path: CopyPath) -> bool {
        path != CopyPath::Batch
    }

    fn enter(&self) -> Result<(), GpuError> {
        let mut before = 0;
        // SAFETY: the pointer is to a live local.
        unsafe { self.api.hipGetDevice(&mut before) }?;
        // SAFETY: takes no pointer; a device that there is.
        unsafe { self.api.hipSetDevice(self.device) }?;
        BEFORE.with_borrow_mut(|stack| stack.push(before));
        Ok(())
    }

    fn leave(&self) -> Result<(), GpuError> {
        let before = BEFORE.with_borrow_mut(Vec::pop).unwrap_or(self.device);
        // SAFETY: as above.
        unsafe { self.api.hipSetDevice(before) }
    }

    unsafe fn free(&self, resource: Resource) -> Result<(), GpuError> {
        let api = self.api;
        // The caller's resource, of which this is the last use.
        match resource {
            // SAFETY: an allocation of this device.
            Resource::Memory(addr) => unsafe { api.hipFree(addr as Addr) },
            // SAFETY: a whole mapping.
            Resource::Mapping(at, len) => unsafe { api.hipMemUnmap(at as Addr, len as usize) },
            // SAFETY: a whole reservation, in which nothing is mapped any more.
            Resource::Addresses(at, len) => unsafe {
                api.hipMemAddressFree(at as Addr, len as usize)
            },
            // SAFETY: opened once for this resource.
            Resource::Imported(addr) => unsafe { api.hipIpcCloseMemHandle(addr as Addr) },
            // SAFETY: a registered range, which is still mapped.
            Resource::Host(start, _) => unsafe { api.hipHostUnregister(start as *mut _) },
            // SAFETY: a reference; mappings have references of their own.
            Resource::Allocation(raw) => unsafe { api.hipMemRelease(raw as Handle) },
            // SAFETY: a stream, which is idle: the run time would wait for its work.
            Resource::Stream(raw) => unsafe { api.hipStreamDestroy(raw as Handle) },
            // None was recorded.
            Resource::Graph(_) => Err((self as &dyn Driver).unsupported(GRAPHS)),
        }
    }

    fn stream(&self, priority: Priority) -> Result<u64, GpuError> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both pointers are to live locals.
        unsafe { self.api.hipDeviceGetStreamPriorityRange(&mut least, &mut greatest) }?;
        // Between the two lies the usual one, of which the run time has the most hardware queues.
        let level = if priority == Priority::Highest { greatest } else { 0 };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a live local.
        unsafe { self.api.hipStreamCreateWithPriority(&mut raw, NON_BLOCKING, level) }?;
        Ok(raw as u64)
    }

    fn is_idle(&self, stream: u64) -> Result<bool, GpuError> {
        // SAFETY: a live stream.
        match unsafe { self.api.hipStreamQuery(stream as Handle) } {
            Ok(()) => Ok(true),
            Err(GpuError::Driver { code: NOT_READY, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn can_write_words(&self) -> Result<bool, GpuError> {
        Ok(self.api.attribute(self.device, Attribute::CanUseStreamWaitValue)? != 0)
    }

    unsafe fn write_word(&self, stream: u64, addr: u64, value: u64) -> Result<(), GpuError> {
        // SAFETY: the caller's stream and word. All of the stream's work before it has ended, and been released.
        unsafe { self.api.hipStreamWriteValue64(stream as Handle, addr as Addr, value, 0) }
    }

    unsafe fn copy(&self, copy: Copy<'_>) -> Result<(), GpuError> {
        let Copy { dst, src, len, path, ends, stream } = copy;
        let (dst, src, stream) = (dst as Addr, src as Addr, stream as Handle);
        match (path, ends) {
            (CopyPath::Peer, Some((to, from))) => {
                let (to, from) = (to.raw() as c_int, from.raw() as c_int);
                // SAFETY: as below; each range belongs to the device given with it.
                unsafe { self.api.hipMemcpyPeerAsync(dst, to, src, from, len, stream) }
            }
            // SAFETY: valid ranges (the caller), unified addressing, a live stream.
            _ => unsafe { self.api.hipMemcpyAsync(dst, src, len, COPY_DEFAULT, stream) },
        }
    }

    unsafe fn zero(&self, addr: u64, len: usize, stream: u64) -> Result<(), GpuError> {
        // SAFETY: the caller's range and stream.
        unsafe { self.api.hipMemsetD8Async(addr as Addr, 0, len, stream as Handle) }
    }
}
