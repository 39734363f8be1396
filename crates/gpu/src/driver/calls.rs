//! The calls that a vendor's driver has to offer: all that a second vendor implements.

use super::cache::Cache;
use super::copy_policy::CopyPath;
use crate::graph::GRAPHS;
use crate::{Dim, GpuError, GpuInfo, Image};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use warpverbs_mem::{Dmabuf, Kind, ShareHandle};

/// Something that the driver gave and wants back by [`Driver::free`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource {
    /// Device memory of [`Memory::alloc`], at this address.
    Memory(u64),
    /// A mapping of [`Memory::map`]: address and length.
    Mapping(u64, u64),
    /// Addresses of [`Memory::reserve`]: the first, and how many.
    Addresses(u64, u64),
    /// Memory of another process, opened by [`Memory::open_ipc`] at this address.
    Imported(u64),
    /// A registration of host memory: address and length.
    Host(u64, u64),
    /// A reference to an allocation: [`Memory::create`], [`Memory::import`], [`Memory::retain`].
    Allocation(u64),
    /// A stream of [`Driver::stream`].
    Stream(u64),
    /// Kernels of [`Driver::record`].
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "graphs are made by CUDA alone"))]
    Graph(u64),
}

impl Resource {
    /// Whether a kernel may use it, or giving it back may wait for one.
    pub(crate) fn concerns_kernels(self) -> bool {
        !matches!(self, Self::Allocation(_) | Self::Stream(_))
    }
}

/// How urgent a stream's work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Kernels.
    Usual,
    /// Copies: kernels wait for them. Streams of another priority also never share a hardware
    /// queue with the kernels' streams, where a copy could stand behind a kernel that waits for it.
    Highest,
}

/// One loaded kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    /// The driver's handle.
    pub(crate) raw: u64,
    /// The largest block that it may be launched in.
    pub(crate) max_threads: u32,
}

/// The kernels of an image by name.
pub(crate) type Functions = HashMap<&'static str, Function>;

/// A kernel that is ready to be launched, or to become a part of a graph.
pub(crate) struct Prepared {
    pub(crate) function: Function,
    pub(crate) dim: Dim,
    /// The addresses of its parameters.
    pub(crate) params: Vec<*mut c_void>,
}

/// The arguments of [`Driver::copy`].
#[derive(Clone, Copy)]
pub(crate) struct Copy<'a> {
    pub(crate) dst: u64,
    pub(crate) src: u64,
    pub(crate) len: usize,
    /// By which of the driver's ways; never [`CopyPath::Bounce`].
    pub(crate) path: CopyPath,
    /// The devices that destination and source lie on, for [`CopyPath::Peer`].
    pub(crate) ends: Option<(&'a dyn Driver, &'a dyn Driver)>,
    pub(crate) stream: u64,
}

/// A driver's calls for memory.
///
/// # Safety of the calls
/// As [`Driver`] says.
pub(crate) trait Memory {
    /// Whether the error says that device memory is used up.
    fn is_out_of_memory(&self, error: &GpuError) -> bool;
    /// Device memory, not zeroed.
    fn alloc(&self, len: u64) -> Result<u64, GpuError>;
    /// Registers whole pages of host memory, or I/O memory, for every device; false if they are
    /// registered already.
    unsafe fn register(&self, start: u64, len: u64, io: bool) -> Result<bool, GpuError>;
    /// The address in kernels of a registered host byte.
    fn kernel_addr(&self, host: u64) -> Result<u64, GpuError>;
    /// The allocation that an address lies in, even if another library made it: its start and length.
    fn allocation(&self, addr: u64) -> Result<(u64, u64), GpuError>;
    /// The device on which an address lies, even if another library allocated it; None for host memory.
    fn owner(&self, addr: u64) -> Result<Option<u32>, GpuError>;
    /// Lets kernels of this device use the memory of another.
    fn enable_peer(&self, peer: &dyn Driver) -> Result<(), GpuError>;

    /// Lengths and addresses of mappings are multiples of this.
    fn granule(&self) -> Result<u64, GpuError>;
    /// Addresses without memory.
    fn reserve(&self, len: u64, granule: u64) -> Result<u64, GpuError>;
    /// Memory without an address that can be exported.
    fn create(&self, len: u64) -> Result<u64, GpuError>;
    /// A new descriptor of an allocation.
    fn export(&self, allocation: u64) -> Result<OwnedFd, GpuError>;
    /// The allocation of a descriptor.
    fn import(&self, fd: BorrowedFd<'_>) -> Result<u64, GpuError>;
    /// The allocation behind an address, if it was made by [`Memory::create`] or the like.
    fn retain(&self, addr: u64) -> Result<Option<u64>, GpuError>;
    /// Maps a whole allocation at reserved addresses.
    unsafe fn map(&self, addr: u64, len: u64, allocation: u64) -> Result<(), GpuError>;
    /// Lets this device read and write a mapping.
    unsafe fn allow(&self, addr: u64, len: u64) -> Result<(), GpuError>;

    /// A handle by which other processes open the allocation that begins at `base`.
    fn export_ipc(&self, base: u64) -> Result<ShareHandle, GpuError>;
    /// The address of another process's memory.
    fn open_ipc(&self, handle: &ShareHandle) -> Result<u64, GpuError>;
    /// A dmabuf of a whole allocation, and where that begins in it.
    unsafe fn export_dmabuf(&self, base: u64, len: u64) -> Result<Dmabuf, GpuError>;
}

/// A driver's calls for kernels.
///
/// # Safety of the calls
/// As [`Driver`] says.
pub(crate) trait Kernels {
    /// Machine code for this device, by way of the cache, and whether it came from there.
    fn compile(&self, image: &Image, cache: &Cache) -> Result<(Vec<u8>, bool), GpuError>;
    /// Loads every kernel of an image for good, so that no launch has to load or to reserve anything.
    fn load(&self, image: &'static Image, code: &[u8]) -> Result<Functions, GpuError>;
    /// How many blocks of this shape a multiprocessor holds. Launches of the shape may have its shared
    /// memory from now on.
    fn fitting(&self, function: Function, name: &'static str, dim: Dim) -> Result<u32, GpuError>;
    /// Starts a kernel, whose parameters are copied.
    unsafe fn launch(&self, kernel: &mut Prepared, stream: u64) -> Result<(), GpuError>;
}

/// One device of a vendor's driver, with a context on it that is never given back: its end would wait
/// for running kernels, and whatever belongs to it may be dropped at any time.
///
/// Every call but those of the first group and [`Kernels::compile`] wants the context current
/// ([`Entered`]). No call waits for a kernel, except where the table in [`driver`](super) says so.
/// Addresses are unified: one address means the same to the host and to all devices of the driver.
///
/// # Safety of the calls
/// Handles are live and of this device; addresses and lengths are of memory that stays valid until the
/// call, or what it enqueued, is done.
pub(crate) trait Driver: Memory + Kernels + Send + Sync {
    /// A description of the device.
    fn info(&self) -> &GpuInfo;
    /// Where its memory lies.
    fn kind(&self) -> Kind;
    /// The handle of context or device that the driver's calls between two devices take.
    fn raw(&self) -> u64;
    /// Threads that a multiprocessor holds.
    fn threads_per_multiprocessor(&self) -> u32;
    /// Whether [`Driver::copy`] has this way.
    fn has_path(&self, path: CopyPath) -> bool;
    /// Whether streams write words of 8 bytes.
    fn can_write_words(&self) -> Result<bool, GpuError>;
    /// Makes the context current on this thread.
    fn enter(&self) -> Result<(), GpuError>;
    /// Undoes [`Driver::enter`]: what was current before (the program's own use) then is again.
    fn leave(&self) -> Result<(), GpuError>;

    /// Gives a resource back.
    ///
    /// # Safety
    /// It is live, and this is its last use.
    unsafe fn free(&self, resource: Resource) -> Result<(), GpuError>;

    /// A stream that does not synchronise with a default stream.
    fn stream(&self, priority: Priority) -> Result<u64, GpuError>;
    /// Whether all work of a stream has ended; an error if the work failed.
    fn is_idle(&self, stream: u64) -> Result<bool, GpuError>;
    /// Has the stream write a word behind its other work and a fence.
    unsafe fn write_word(&self, stream: u64, addr: u64, value: u64) -> Result<(), GpuError>;
    /// Enqueues a copy.
    unsafe fn copy(&self, copy: Copy<'_>) -> Result<(), GpuError>;
    /// Enqueues zeroing by the driver's own kernel.
    unsafe fn zero(&self, addr: u64, len: usize, stream: u64) -> Result<(), GpuError>;

    /// Prepares kernels that run one after another, with parameters as [`Kernels::launch`] takes them.
    unsafe fn record(&self, _kernels: &mut [Prepared]) -> Result<u64, GpuError> {
        Err(GpuError::Unsupported { device: self.kind().to_string(), what: GRAPHS })
    }
    /// Enqueues the kernels of a graph that [`Driver::record`] made.
    unsafe fn launch_graph(&self, _graph: u64, _stream: u64) -> Result<(), GpuError> {
        Err(GpuError::Unsupported { device: self.kind().to_string(), what: GRAPHS })
    }
}

impl dyn Driver {
    /// Makes the context current on this thread until the guard is dropped.
    pub(crate) fn entered(&self) -> Result<Entered<'_>, GpuError> {
        self.enter()?;
        Ok(Entered { driver: self, _this_thread: PhantomData })
    }

    /// The device as people call it in messages: `cuda:0`.
    pub(crate) fn label(&self) -> String {
        self.kind().to_string()
    }

    /// The device does not do this.
    pub(crate) fn unsupported(&self, what: &'static str) -> GpuError {
        GpuError::Unsupported { device: self.label(), what }
    }

    /// A descriptor that the driver made, which programs that this one starts do not inherit: drivers do not say
    /// whether they would.
    ///
    /// # Safety
    /// It is open, and belongs to the caller.
    pub(crate) unsafe fn owned_fd(&self, fd: c_int) -> Result<OwnedFd, GpuError> {
        // SAFETY: the caller's obligation.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        fd.try_clone().map_err(|_| self.unsupported("a file descriptor (ulimit -n)"))
    }

    /// Whether both are devices of one driver.
    pub(crate) fn is_akin(&self, other: &dyn Driver) -> bool {
        self.info().kind == other.info().kind
    }
}

/// A context is current on this thread while this lives.
pub(crate) struct Entered<'a> {
    driver: &'a dyn Driver,
    // Entering and leaving must happen on one thread.
    _this_thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.driver.leave() {
            tracing::error!(%error, "a context stays current on this thread");
        }
    }
}
