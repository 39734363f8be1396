//! Addresses handed to kernels, with what keeps them valid.

use crate::Buffer;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use warpverbs_mem::MemError;

/// Something that must outlive a launch.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// A pointer parameter of a kernel: an address inside a [`Buffer`], which it keeps alive. The
/// launch holds it until the kernel has ended.
#[derive(Clone)]
pub struct KernelPtr {
    addr: u64,
    keep: Vec<Keep>,
}

impl KernelPtr {
    /// A null pointer, for kernels that take one as "none".
    pub const NULL: Self = Self { addr: 0, keep: Vec::new() };

    /// The first byte of `buffer`.
    pub fn new(buffer: &Buffer) -> Self {
        Self { addr: buffer.kernel_addr(), keep: vec![Arc::new(buffer.clone())] }
    }

    /// `len` bytes at `offset` in `buffer`.
    pub fn at(buffer: &Buffer, offset: u64, len: usize) -> Result<Self, MemError> {
        buffer.region().range(offset, len)?;
        Ok(Self { addr: buffer.kernel_addr() + offset, ..Self::new(buffer) })
    }

    /// Keeps `more` alive as well: what the bytes themselves point to.
    pub fn keeping(mut self, more: Keep) -> Self {
        self.keep.push(more);
        self
    }

    /// The address as the kernel sees it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// What it keeps alive.
    pub fn keep(&self) -> &[Keep] {
        &self.keep
    }
}

impl From<&Buffer> for KernelPtr {
    fn from(buffer: &Buffer) -> Self {
        Self::new(buffer)
    }
}

impl fmt::Debug for KernelPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelPtr({:#x})", self.addr)
    }
}
