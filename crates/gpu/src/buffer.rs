//! Memory that kernels use.

use crate::GpuError;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use warpverbs_mem::{Kind, MemError, Region};

/// Something that must outlive a launch.
pub type Keep = Arc<dyn Any + Send + Sync>;

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
    // Dropped first: who waits for the end of the region may free what is mapped.
    mapping: Option<Arc<dyn Mapping>>,
    region: Region,
    kernel_addr: u64,
}

impl Buffer {
    /// `kernel_addr` is what a kernel uses for the first byte of `region`.
    ///
    /// # Safety
    /// From `kernel_addr` on, kernels must reach the bytes of `region` and no others, as long as
    /// `region` and `mapping` live.
    pub unsafe fn new(region: Region, kernel_addr: u64, mapping: Option<Arc<dyn Mapping>>) -> Self {
        Self { region, kernel_addr, mapping }
    }

    /// Memory that kernels reach, if at all, at the address that the NIC uses: that of a device, or
    /// host memory for the SIMT device.
    pub fn of_region(region: Region) -> Self {
        Self { kernel_addr: region.addr(), region, mapping: None }
    }

    /// The same memory; `keep` is dropped after the last clone or part of what is returned.
    pub fn kept_with(self, keep: impl Send + Sync + 'static) -> Self {
        Self { region: self.region.kept_with(keep), ..self }
    }

    /// `len` bytes from `offset` on, sharing ownership.
    pub fn slice(&self, offset: u64, len: usize) -> Result<Self, MemError> {
        let region = self.region.slice(offset, len)?;
        Ok(Self { region, kernel_addr: self.kernel_addr + offset, mapping: self.mapping.clone() })
    }

    /// The bytes, as NIC and host see them.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Address of the first byte in a kernel.
    pub fn kernel_addr(&self) -> u64 {
        self.kernel_addr
    }

    /// Whether the CPU reaches the bytes at the kernels' address.
    pub(crate) fn is_host_address(&self) -> bool {
        self.region.kind() == Kind::Host && self.kernel_addr == self.region.addr()
    }

    pub(crate) fn keep(&self) -> Keep {
        Arc::new(self.clone())
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

/// Whether memory of others may begin at `addr`.
pub(crate) fn check_adopted(addr: u64) -> Result<(), GpuError> {
    if addr != 0 {
        return Ok(());
    }
    let (setting, value) = ("address of adopted memory", format!("{addr:#x}"));
    Err(GpuError::BadSetting { setting, value, expected: "any but 0" })
}
