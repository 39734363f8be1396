//! The one trait that every kind of device implements.

use crate::arena::shared_bytes;
use crate::buffer::{Buffer, Keep, Place};
use crate::graph::GRAPHS;
use crate::{Arena, ArenaError, Dim, GpuError, Graph, Kernel, Launch, SafeKernel, Step, Stops};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::{Region, Share};

/// Which kind of device runs the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum GpuKind {
    /// The host SIMT device: any machine.
    Simt,
    /// An NVIDIA GPU.
    Cuda,
    /// An AMD GPU.
    Hip,
}

/// Description of a device.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GpuInfo {
    /// Kind.
    pub kind: GpuKind,
    /// Ordinal among devices of its kind.
    pub ordinal: u32,
    /// Marketing name.
    pub name: String,
    /// Architecture as the compiler names it (`sm_90`), or the host's.
    pub arch: String,
    /// Lanes of a warp.
    pub warp_size: u32,
    /// Multiprocessors.
    pub sm_count: u32,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// Where it sits on the PCI bus, `0000:3b:00.0`; absent for the host SIMT device.
    pub pci: Option<String>,
    /// Whether its driver exports its memory as dmabufs, for NICs to reach it.
    pub dmabuf: bool,
    /// Whether kernels that see one write of a NIC see all that the NIC wrote before, in the device's
    /// memory too. CUDA: `GPU_DIRECT_RDMA_WRITES_ORDERING` is not NONE. True where the driver does not
    /// say.
    pub ordered_nic_writes: bool,
    /// Whether memory of its [arenas](Gpu::arena) can be shared with other processes.
    pub shareable: bool,
    /// The card's identity, the same for every process of the machine; absent for the host SIMT
    /// device.
    pub uuid: Option<String>,
}

impl GpuInfo {
    /// Of a device of which no more is known.
    pub fn new(kind: GpuKind, ordinal: u32, name: impl Into<String>) -> Self {
        Self {
            kind,
            ordinal,
            name: name.into(),
            arch: String::new(),
            warp_size: 32,
            sm_count: 0,
            memory_bytes: 0,
            pci: None,
            dmabuf: false,
            ordered_nic_writes: true,
            shareable: false,
            uuid: None,
        }
    }

    /// Whether it is an emulator's device, and no hardware: a name that begins with `emulated` says so.
    pub fn is_emulated(&self) -> bool {
        self.name.starts_with("emulated ")
    }
}

/// A device that runs kernels.
pub trait Gpu: Send + Sync {
    /// Description of the device.
    fn info(&self) -> &GpuInfo;

    /// Zero-filled memory, aligned to at least 256 bytes.
    fn alloc(&self, len: usize, place: Place) -> Result<Buffer, GpuError>;

    /// Makes host memory that another part of the program owns (the NIC's doorbells) usable by kernels.
    fn map(&self, region: &Region) -> Result<Buffer, GpuError>;

    /// Copies bytes out of a buffer of this device. Returns when they are here.
    fn read(&self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<(), GpuError>;

    /// Copies bytes into a buffer of this device. Returns when they are there.
    fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), GpuError>;

    /// Zeroes all of a buffer of this device. Returns when it is done.
    fn zero(&self, buffer: &Buffer) -> Result<(), GpuError>;

    /// Compiles and loads every kernel of `image` now, so that no later launch has to wait behind
    /// a running kernel. Idempotent.
    fn load(&self, image: &'static crate::Image) -> Result<(), GpuError>;

    /// Starts a kernel and returns at once; `deadline` bounds every wait for it. Objects that its
    /// arguments keep alive are held until it has ended.
    ///
    /// # Safety
    /// A launch of this shape with these arguments must touch no memory but what lies behind its
    /// pointers. On the SIMT device anything else corrupts this process.
    unsafe fn launch_unchecked(
        &self,
        kernel: &dyn Kernel,
        dim: Dim,
        deadline: Duration,
    ) -> Result<Launch, GpuError>;

    /// Records for kernels that can be [withdrawn](Launch::withdraw).
    fn stops(&self) -> &Arc<Stops>;

    /// Starts a kernel whose author declared what it touches, if its arguments have that much;
    /// otherwise as [`Gpu::launch_unchecked`].
    fn launch(
        &self,
        kernel: &dyn SafeKernel,
        dim: Dim,
        deadline: Duration,
    ) -> Result<Launch, GpuError> {
        kernel.check(dim)?;
        // SAFETY: `SafeKernel` promises it of arguments that pass the check.
        unsafe { self.launch_unchecked(kernel, dim, deadline) }
    }

    /// As [`Gpu::launch`], for a kernel whose blocks wait for each other, or for those of other ranks
    /// that wait for each of them.
    ///
    /// # Errors
    /// [`GpuError::NotResident`] if the blocks do not all run at once, which other launches beside
    /// it may still keep them from.
    fn launch_resident(
        &self,
        kernel: &dyn SafeKernel,
        dim: Dim,
        deadline: Duration,
    ) -> Result<Launch, GpuError> {
        let (blocks, threads) = (dim.blocks(), dim.threads());
        let most = self.resident_blocks(kernel, dim)?;
        if blocks > most {
            let kernel = kernel.entry().name;
            return Err(GpuError::NotResident { kernel, blocks, threads, most });
        }
        self.launch(kernel, dim, deadline)
    }

    /// How many blocks of this shape the device runs at once, if it runs nothing else.
    ///
    /// # Errors
    /// The device cannot run the kernel in this shape.
    fn resident_blocks(&self, kernel: &dyn Kernel, dim: Dim) -> Result<u32, GpuError>;

    /// Prepares kernels that run one after another. Their arguments keep alive what they point to as long as
    /// the graph and its launches.
    ///
    /// # Errors
    /// There is no step, one would be refused as a launch, or the device has no graphs.
    fn graph(&self, steps: Vec<Step>) -> Result<Graph, GpuError> {
        for Step { kernel, dim, resident } in &steps {
            kernel.check(*dim)?;
            let most = self.resident_blocks(&**kernel, *dim)?;
            if *resident && dim.blocks() > most {
                let (kernel, blocks, threads) = (kernel.entry().name, dim.blocks(), dim.threads());
                return Err(GpuError::NotResident { kernel, blocks, threads, most });
            }
        }
        let mut steps = steps.into_iter();
        let Some(first) = steps.next() else {
            let (kernel, field, expected) = ("graph", "steps", "1 or more");
            return Err(GpuError::BadLaunch { kernel, field, value: 0, expected });
        };
        self.prepare(first, steps.collect())
    }

    /// The device's part of [`Gpu::graph`], which has checked the steps.
    ///
    /// # Errors
    /// The device has no graphs.
    #[doc(hidden)]
    fn prepare(&self, _first: Step, _more: Vec<Step>) -> Result<Graph, GpuError> {
        let device = self.info().name.clone();
        Err(GpuError::Unsupported { device, what: GRAPHS })
    }

    /// Reserves `len` bytes of addresses, rounded up to granules, for memory that processes share.
    fn arena(&self, len: u64) -> Result<Arena, ArenaError>;

    /// Maps `len` bytes that another process [shares](Region::share). They stay mapped as long as the
    /// buffer or a launch that was given it lives.
    ///
    /// # Errors
    /// Handles of another kind of device, or for other lengths.
    fn import(&self, share: Share, len: u64) -> Result<Buffer, ArenaError> {
        self.arena(shared_bytes(&share))?.import(share, len)
    }

    /// Memory that others allocated: another library's tensor, or a part of it that begins anywhere. On a GPU,
    /// memory of that GPU, however it was allocated, also if it spans several adjacent allocations.
    ///
    /// # Errors
    /// The address is 0, or not of memory of this device.
    ///
    /// # Safety
    /// `[addr, addr + len)` must stay allocated and mapped until `keep` is dropped; on the SIMT
    /// device the CPU must be able to read and write it.
    unsafe fn adopt(&self, addr: u64, len: usize, keep: Keep) -> Result<Buffer, GpuError>;

    /// Lets kernels of this device use `other`'s memory. A no-op between devices of one kind that
    /// share memory anyway.
    fn enable_peer(&self, other: &dyn Gpu) -> Result<(), GpuError>;
}
