//! A span of memory that stays valid while the value lives.

use crate::{Copier, Dmabuf, MemError, NotExported};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Where bytes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Host memory, pinned or not: the CPU loads and stores it.
    Host,
    /// Memory of the CUDA device with this ordinal; only its copy engine reaches it.
    Cuda(u32),
    /// Memory of the HIP device with this ordinal.
    Hip(u32),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Host => f.write_str("host"),
            Kind::Cuda(n) => write!(f, "cuda:{n}"),
            Kind::Hip(n) => write!(f, "hip:{n}"),
        }
    }
}

/// Owner of a span of memory.
///
/// # Safety
/// `[addr, addr + len)` must stay allocated, at the same place, until the value is dropped; for
/// [`Kind::Host`] it must be readable and writable by this process. `addr` is 16-byte aligned.
pub unsafe trait Backing: Send + Sync + 'static {
    /// First byte, as the NIC addresses it.
    fn addr(&self) -> u64;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Where the bytes live.
    fn kind(&self) -> Kind;
    /// The engine that moves these bytes, unless the CPU can.
    fn copier(&self) -> Option<Arc<dyn Copier>> {
        None
    }
    /// A dmabuf in which these bytes lie, for NICs to reach them.
    fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        Err(NotExported(format!("{} memory is not exported", self.kind())))
    }
}

/// A span of memory, kept alive by this value. Cloning shares it.
#[derive(Clone)]
pub struct Region {
    addr: u64,
    len: u64,
    kind: Kind,
    backing: Arc<dyn Backing>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({}, {:#x}+{:#x})", self.kind, self.addr, self.len)
    }
}

impl Region {
    /// All of `backing`.
    pub fn new(backing: impl Backing) -> Self {
        Self::from_arc(Arc::new(backing))
    }

    /// All of a shared `backing`.
    pub fn from_arc(backing: Arc<dyn Backing>) -> Self {
        Self { addr: backing.addr(), len: backing.len() as u64, kind: backing.kind(), backing }
    }

    /// Part of this region, sharing ownership.
    pub fn slice(&self, offset: u64, len: usize) -> Result<Self, MemError> {
        let addr = self.range(offset, len)?;
        Ok(Self { addr, len: len as u64, kind: self.kind, backing: self.backing.clone() })
    }

    /// Address of the first byte, as the NIC addresses it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes live.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The engine that moves these bytes, unless the CPU can.
    pub fn copier(&self) -> Option<Arc<dyn Copier>> {
        self.backing.copier()
    }

    /// A dmabuf in which these bytes lie, with the offset of the first. Fails where driver, kernel
    /// or kind of memory have none.
    pub fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        let Dmabuf { fd, offset } = self.backing.export_dmabuf()?;
        // A slice begins after its backing.
        Ok(Dmabuf { fd, offset: offset + (self.addr - self.backing.addr()) })
    }

    /// Absolute address of `offset`, if `[offset, offset + len)` is inside.
    #[inline]
    pub fn range(&self, offset: u64, len: usize) -> Result<u64, MemError> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(self.addr + offset),
            _ => Err(MemError::OutOfBounds { offset, len: len as u64, region_len: self.len }),
        }
    }

    #[inline]
    fn host_range(&self, offset: u64, len: usize, align: usize) -> Result<u64, MemError> {
        let addr = self.range(offset, len)?;
        if self.kind != Kind::Host {
            return Err(MemError::NotHost { addr });
        }
        if !addr.is_multiple_of(align as u64) {
            return Err(MemError::Misaligned { addr, align });
        }
        Ok(addr)
    }

    /// The 32-bit word at `offset`. Host memory only.
    #[inline]
    pub fn atomic_u32(&self, offset: u64) -> Result<&AtomicU32, MemError> {
        let addr = self.host_range(offset, 4, 4)?;
        // SAFETY: in bounds, aligned, host memory that lives as long as `self`; atomics tolerate
        // any concurrent access by others.
        Ok(unsafe { AtomicU32::from_ptr(addr as *mut u32) })
    }

    /// The 64-bit word at `offset`. Host memory only.
    #[inline]
    pub fn atomic_u64(&self, offset: u64) -> Result<&AtomicU64, MemError> {
        let addr = self.host_range(offset, 8, 8)?;
        // SAFETY: in bounds, aligned, host memory that lives as long as `self`; atomics tolerate
        // any concurrent access by others.
        Ok(unsafe { AtomicU64::from_ptr(addr as *mut u64) })
    }

    /// The byte at `offset`. Host memory only.
    #[inline]
    pub fn atomic_u8(&self, offset: u64) -> Result<&AtomicU8, MemError> {
        let addr = self.host_range(offset, 1, 1)?;
        // SAFETY: in bounds host memory that lives as long as `self`.
        Ok(unsafe { AtomicU8::from_ptr(addr as *mut u8) })
    }

    /// One 64-byte block at a 64-byte aligned `offset`, read as eight words in address order.
    /// Each word is single-copy atomic; the first has acquire order.
    #[inline]
    pub fn load_block(&self, offset: u64) -> Result<[u64; 8], MemError> {
        let addr = self.host_range(offset, 64, 64)?;
        let mut out = [0u64; 8];
        for (i, word) in out.iter_mut().enumerate() {
            // SAFETY: in bounds and aligned, as checked for the whole block; host memory.
            let cell = unsafe { AtomicU64::from_ptr((addr as *mut u64).wrapping_add(i)) };
            *word = cell.load(if i == 0 { Ordering::Acquire } else { Ordering::Relaxed });
        }
        Ok(out)
    }

    /// Copies bytes out of host memory.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MemError> {
        let addr = self.host_range(offset, out.len(), 1)?;
        host_copy(out.as_mut_ptr() as u64, addr, out.len());
        Ok(())
    }

    /// Copies bytes into host memory.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemError> {
        let addr = self.host_range(offset, data.len(), 1)?;
        host_write(addr, data);
        Ok(())
    }

    /// Sets bytes of host memory.
    pub fn fill(&self, offset: u64, len: usize, byte: u8) -> Result<(), MemError> {
        let addr = self.host_range(offset, len, 1)?;
        // SAFETY: in bounds host memory; writers elsewhere race only on values, as with any RDMA.
        unsafe { std::ptr::write_bytes(addr as *mut u8, byte, len) };
        Ok(())
    }
}

/// As [`host_copy`], from bytes that nobody else writes: they may lie in read-only memory, from
/// which nothing may be loaded with acquire order.
#[inline]
fn host_write(dst: u64, data: &[u8]) {
    let eight = data.try_into().map(u64::from_ne_bytes);
    let four = data.try_into().map(u32::from_ne_bytes);
    match (eight, four) {
        (Ok(value), _) if dst.is_multiple_of(8) => {
            // SAFETY: the callers checked 8 bytes at `dst`; aligned.
            unsafe { AtomicU64::from_ptr(dst as *mut u64) }.store(value, Ordering::Release);
        }
        (_, Ok(value)) if dst.is_multiple_of(4) => {
            // SAFETY: the callers checked 4 bytes at `dst`; aligned.
            unsafe { AtomicU32::from_ptr(dst as *mut u32) }.store(value, Ordering::Release);
        }
        _ => host_copy(dst, data.as_ptr() as u64, data.len()),
    }
}

/// Moves `len` bytes between checked host addresses. A 4- or 8-byte move to a naturally aligned
/// place is one release store, so that a poller never sees a torn flag.
#[inline]
pub(crate) fn host_copy(dst: u64, src: u64, len: usize) {
    if len == 8 && dst.is_multiple_of(8) {
        let value = if src.is_multiple_of(8) {
            // SAFETY: the callers checked 8 bytes at `src`; aligned.
            unsafe { AtomicU64::from_ptr(src as *mut u64) }.load(Ordering::Acquire)
        } else {
            // SAFETY: the callers checked 8 bytes at `src`; only values can tear.
            unsafe { std::ptr::read_unaligned(src as *const u64) }
        };
        // SAFETY: the callers checked 8 bytes at `dst`; aligned.
        unsafe { AtomicU64::from_ptr(dst as *mut u64) }.store(value, Ordering::Release);
    } else if len == 4 && dst.is_multiple_of(4) {
        let value = if src.is_multiple_of(4) {
            // SAFETY: the callers checked 4 bytes at `src`; aligned.
            unsafe { AtomicU32::from_ptr(src as *mut u32) }.load(Ordering::Acquire)
        } else {
            // SAFETY: the callers checked 4 bytes at `src`; only values can tear.
            unsafe { std::ptr::read_unaligned(src as *const u32) }
        };
        // SAFETY: the callers checked 4 bytes at `dst`; aligned.
        unsafe { AtomicU32::from_ptr(dst as *mut u32) }.store(value, Ordering::Release);
    } else {
        // SAFETY: the callers checked both ranges; `copy` allows overlap. Others may touch the bytes
        // meanwhile, as with any RDMA; no reference is made and only values can tear.
        unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, len) };
        // Orders the bytes before whatever announces them (CQE owner byte, a later flag).
        std::sync::atomic::fence(Ordering::Release);
    }
}
