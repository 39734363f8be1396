//! The one trait that every kind of device implements.

use crate::{GpuError, Kernel, Launch, launch::Dim};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::Region;

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

/// What is known of a device.
#[derive(Clone, Debug, Serialize)]
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
    /// Where it sits on the PCI bus, `0000:3b:00.0`; absent for a device that is no card.
    pub pci: Option<String>,
    /// Whether its driver exports its memory as dmabufs, for NICs to reach it.
    pub dmabuf: bool,
}

/// Where a buffer should live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The device's own memory (SIMT: host memory).
    Device,
    /// Host memory that the device, the NIC and the host all touch (CUDA: pinned and mapped).
    Shared,
}

/// Keeps a host region mapped into a device.
pub trait Mapping: Send + Sync {}

/// Memory a kernel can use. Cloning shares it.
#[derive(Clone)]
pub struct Buffer {
    region: Region,
    kernel_addr: u64,
    _mapping: Option<Arc<dyn Mapping>>,
}

impl Buffer {
    /// `kernel_addr` is what a kernel uses for the first byte of `region`.
    pub fn new(region: Region, kernel_addr: u64, mapping: Option<Arc<dyn Mapping>>) -> Self {
        Self { region, kernel_addr, _mapping: mapping }
    }

    /// The bytes, as NIC and host see them.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Address of the first byte in a kernel.
    pub fn kernel_addr(&self) -> u64 {
        self.kernel_addr
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?}, kernel {:#x})", self.region, self.kernel_addr)
    }
}

/// A device that runs kernels.
pub trait Gpu: Send + Sync {
    /// What it is.
    fn info(&self) -> &GpuInfo;

    /// Zero-filled memory, aligned to at least 256 bytes.
    fn alloc(&self, len: usize, place: Place) -> Result<Buffer, GpuError>;

    /// Makes host memory that somebody else owns (the NIC's doorbells) usable by kernels.
    fn map(&self, region: &Region) -> Result<Buffer, GpuError>;

    /// Copies bytes out of a buffer of this device. Returns when they are here.
    fn read(&self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<(), GpuError>;

    /// Copies bytes into a buffer of this device. Returns when they are there.
    fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), GpuError>;

    /// Compiles and loads every kernel of `image` now, so that no later launch has to wait behind
    /// a running kernel. Idempotent.
    fn load(&self, image: &'static crate::Image) -> Result<(), GpuError>;

    /// Starts a kernel and returns at once; `deadline` bounds every wait for it.
    fn launch(&self, kernel: &dyn Kernel, dim: Dim, deadline: Duration)
    -> Result<Launch, GpuError>;

    /// Lets kernels of this device use `other`'s memory. A no-op between devices of one kind that
    /// share memory anyway.
    fn enable_peer(&self, other: &dyn Gpu) -> Result<(), GpuError>;
}
