//! Devices and their primary contexts.

use super::api::{Driver, driver};
use super::heap::Heap;
use super::module::Modules;
use super::occupancy::{Occupancy, limit};
use crate::GpuError;
use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError, RwLock};

/// `CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER`: kernels of the device consume writes of other devices
/// consistently. Of larger values, kernels of all devices do.
const WRITES_ORDERED: i32 = 100;

/// A device's primary context, which it shares with every other user of CUDA in this process.
///
/// Retained once and never released: the last release would wait for running kernels, and streams,
/// modules and memory of the context may be dropped at any time. The process's end releases it.
pub struct Context {
    driver: &'static Driver,
    ordinal: u32,
    device: sys::CUdevice,
    raw: sys::CUcontext,
    heap: Heap,
    modules: Modules,
    occupancy: Occupancy,
    multiprocessors: u32,
}

// SAFETY: a context handle may be used from any thread; the rest is `Sync` by itself.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// How many CUDA devices the driver sees.
pub fn device_count() -> Result<u32, GpuError> {
    let mut count = 0;
    // SAFETY: the pointer is to a live local.
    unsafe { driver()?.cuDeviceGetCount(&mut count) }?;
    Ok(count as u32)
}

// By itself, and held for no call of the driver: the copy engines look here.
static CONTEXTS: RwLock<Vec<&'static Context>> = RwLock::new(Vec::new());

fn known(wanted: impl Fn(&Context) -> bool) -> Option<&'static Context> {
    let contexts = CONTEXTS.read().unwrap_or_else(PoisonError::into_inner);
    contexts.iter().find(|context| wanted(context)).copied()
}

impl Context {
    /// The primary context of device `ordinal`.
    pub fn get(ordinal: u32) -> Result<&'static Self, GpuError> {
        static MAKING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = super::lock(&MAKING);
        if let Some(context) = known(|context| context.ordinal == ordinal) {
            return Ok(context);
        }
        let context: &'static Self = Box::leak(Box::new(Self::retain(ordinal)?));
        CONTEXTS.write().unwrap_or_else(PoisonError::into_inner).push(context);
        Ok(context)
    }

    /// The context whose device memory `[addr, addr + len)` is, as far as this crate allocated it;
    /// `likely` is asked first.
    pub(crate) fn owning(likely: &'static Self, addr: u64, len: u64) -> Option<&'static Self> {
        let owns = |context: &Self| context.heap.allocation(addr, len).is_some();
        if owns(likely) { Some(likely) } else { known(owns) }
    }

    fn retain(ordinal: u32) -> Result<Self, GpuError> {
        let driver = driver()?;
        let count = device_count()?;
        if ordinal >= count {
            return Err(GpuError::NoDevice {
                asked: format!("cuda:{ordinal}"),
                found: format!("{count} CUDA devices"),
            });
        }
        let mut device = 0;
        // SAFETY: the pointer is to a live local.
        unsafe { driver.cuDeviceGet(&mut device, ordinal as i32) }?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a live local; `device` is a device of the driver.
        unsafe { driver.cuDevicePrimaryCtxRetain(&mut raw, device) }?;
        let get = |attribute: Attribute| driver.attribute(device, attribute as i32);
        let threads = get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
        Ok(Self {
            driver,
            ordinal,
            device,
            raw,
            heap: Heap::default(),
            modules: Modules::default(),
            occupancy: Occupancy::new(label(ordinal), limit(threads as u32)),
            multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        })
    }

    /// Makes the context current on this thread until the guard is dropped; what was current
    /// before (the program's own use of CUDA) then is again.
    pub fn enter(&self) -> Result<Entered, GpuError> {
        // SAFETY: the context is never released.
        unsafe { self.driver.cuCtxPushCurrent_v2(self.raw) }?;
        Ok(Entered { driver: self.driver, _this_thread: PhantomData })
    }

    /// The driver.
    pub fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Ordinal of the device.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// The device's handle.
    pub fn device(&self) -> sys::CUdevice {
        self.device
    }

    /// The context's handle.
    pub fn raw(&self) -> sys::CUcontext {
        self.raw
    }

    pub(crate) fn heap(&self) -> &Heap {
        &self.heap
    }

    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    pub(crate) fn occupancy(&self) -> &Occupancy {
        &self.occupancy
    }

    pub(crate) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// A device attribute.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32, GpuError> {
        self.driver.attribute(self.device, attribute as i32)
    }

    /// Architecture as the compiler names it.
    pub fn arch(&self) -> Result<String, GpuError> {
        let major = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(format!("sm_{major}{minor}"))
    }

    /// The device as people call it in messages: `cuda:0`.
    pub fn label(&self) -> String {
        label(self.ordinal)
    }
}

fn label(ordinal: u32) -> String {
    format!("cuda:{ordinal}")
}

/// What is known of device `ordinal`, without making a context on it.
pub fn describe(ordinal: u32) -> Result<crate::GpuInfo, GpuError> {
    let driver = driver()?;
    let mut device = 0;
    // SAFETY: the pointer is to a live local; a wrong ordinal is refused.
    unsafe { driver.cuDeviceGet(&mut device, ordinal as i32) }?;
    let mut name = [0 as c_char; 256];
    // SAFETY: the buffer has the length given; the driver ends the name with NUL inside it.
    unsafe { driver.cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device) }?;
    // SAFETY: the array outlives the borrow, and its last byte is NUL whatever the driver wrote.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let mut memory = 0;
    // SAFETY: the pointer is to a live local.
    unsafe { driver.cuDeviceTotalMem_v2(&mut memory, device) }?;
    let get = |attribute: Attribute| driver.attribute(device, attribute as i32);
    let major = get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let (bus, slot) = (
        get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
    );
    let domain = get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
    Ok(crate::GpuInfo {
        kind: crate::GpuKind::Cuda,
        ordinal,
        name,
        arch: format!("sm_{major}{minor}"),
        warp_size: get(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)? as u32,
        sm_count: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        memory_bytes: memory as u64,
        // GPUs have one function of interest, the first.
        pci: Some(format!("{domain:04x}:{bus:02x}:{slot:02x}.0")),
        dmabuf: get(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED).is_ok_and(|yes| yes != 0),
        ordered_nic_writes: get(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)
            .map_or(true, |order| order >= WRITES_ORDERED),
        shareable: super::arena::is_shareable(get),
        uuid: uuid(driver, device),
    })
}

/// Absent if the driver is too old to tell.
fn uuid(driver: &Driver, device: sys::CUdevice) -> Option<String> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the pointer is to a live local.
    unsafe { driver.cuDeviceGetUuid_v2(&mut uuid, device) }.ok()?;
    let hex: String = uuid.bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Some(format!("GPU-{}", parts.join("-")))
}

/// A context is current on this thread while this lives.
pub struct Entered {
    driver: &'static Driver,
    // Pushing and popping must happen on one thread.
    _this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut popped = std::ptr::null_mut();
        // SAFETY: pops what `Context::enter` pushed on this thread; the pointer is to a live local.
        let result = unsafe { self.driver.cuCtxPopCurrent_v2(&mut popped) };
        if let Err(error) = result {
            tracing::error!(%error, "a CUDA context stays current on this thread");
        }
    }
}

/// How urgent a stream's work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Kernels.
    Usual,
    /// Copies: kernels wait for them. Streams of another priority also never share a hardware
    /// queue with the kernels' streams, where a copy could stand behind a kernel that waits for it.
    Highest,
}

/// A stream that does not synchronise with the legacy default stream.
pub struct Stream {
    context: &'static Context,
    raw: sys::CUstream,
}

// SAFETY: a stream handle may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver serialises calls on one stream.
unsafe impl Sync for Stream {}

impl Stream {
    const NON_BLOCKING: u32 = 1;

    /// A new stream of `context`.
    pub fn new(context: &'static Context, priority: Priority) -> Result<Self, GpuError> {
        let _entered = context.enter()?;
        let driver = context.driver();
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both pointers are to live locals; a context is current.
        unsafe { driver.cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }?;
        let level = if priority == Priority::Highest { greatest } else { least };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a live local; a context is current.
        unsafe { driver.cuStreamCreateWithPriority(&mut raw, Self::NON_BLOCKING, level) }?;
        Ok(Self { context, raw })
    }

    /// Its context.
    pub fn context(&self) -> &'static Context {
        self.context
    }

    /// Its handle.
    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Whether all of its work has ended. Never blocks; fails if the work did.
    pub fn is_idle(&self) -> Result<bool, GpuError> {
        let _entered = self.context.enter()?;
        // SAFETY: the stream lives as long as `self`.
        match unsafe { self.context.driver().cuStreamQuery(self.raw) } {
            Ok(()) => Ok(true),
            Err(GpuError::Driver { code: super::api::NOT_READY, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let result = self.context.enter().and_then(|_entered| {
            // SAFETY: last use of the handle. Returns at once: the driver keeps the stream until
            // its work has ended.
            unsafe { self.context.driver().cuStreamDestroy_v2(self.raw) }
        });
        if let Err(error) = result {
            tracing::debug!(%error, "stream not destroyed");
        }
    }
}
