//! Addresses handed to kernels, with what keeps them valid.

use crate::args::{ArgBytes, Element, Holds, KernelArg};
use crate::buffer::Keep;
use crate::{Buffer, Gpu, GpuError, Place, Stop};
use std::fmt;
use std::marker::PhantomData;
use warpverbs_layout::{NicFormat, StopRecord};
use warpverbs_mem::MemError;

/// A pointer parameter of a kernel, `T*` in C++: elements inside a [`Buffer`], which it keeps alive.
/// The launch holds it until the kernel has ended.
pub struct KernelPtr<T> {
    addr: u64,
    len: u64,
    holds: Holds,
    _points_to: PhantomData<fn() -> T>,
}

impl<T: Element> KernelPtr<T> {
    /// All of `buffer`.
    pub fn new(buffer: &Buffer) -> Self {
        Self::part(buffer, 0, buffer.len())
    }

    /// `len` bytes at byte `offset` of `buffer`.
    pub fn at(buffer: &Buffer, offset: u64, len: usize) -> Result<Self, MemError> {
        buffer.region().range(offset, len)?;
        Ok(Self::part(buffer, offset, len))
    }

    fn part(buffer: &Buffer, offset: u64, len: usize) -> Self {
        let holds = Holds::of(buffer);
        let len = (len / size_of::<T>()) as u64;
        Self { addr: buffer.kernel_addr() + offset, len, holds, _points_to: PhantomData }
    }
}

impl<T: KernelArg> KernelPtr<T> {
    /// Copies structures into memory of `gpu` that kernels alone read. Memory that the pointers
    /// among their members point to is kept alive as well; each must point to one element or more.
    pub fn upload(gpu: &dyn Gpu, items: &[T]) -> Result<Self, GpuError> {
        let mut bytes = vec![0; T::SIZE * items.len()];
        let mut holds = Holds::NONE;
        for (i, item) in items.iter().enumerate() {
            item.check().map_err(|expected| GpuError::BadElement { index: i, expected })?;
            item.write(&mut ArgBytes::new(&mut bytes, &mut holds), i * T::SIZE);
        }
        let buffer = gpu.alloc(bytes.len().max(1), Place::Device)?;
        gpu.write(&buffer, 0, &bytes)?;
        holds.add(&Holds::of(&buffer));
        let (addr, len) = (buffer.kernel_addr(), items.len() as u64);
        Ok(Self { addr, len, holds, _points_to: PhantomData })
    }
}

impl Stop {
    /// For the kernel. The launch keeps the record, also when this is gone.
    pub fn record(&self) -> KernelPtr<StopRecord> {
        KernelPtr::new(self.buffer()).keeping(self.keep())
    }
}

impl<T> KernelPtr<T> {
    /// One `T` at the start of `buffer`, which is more than plain data.
    ///
    /// # Safety
    /// The buffer must hold a `T` as device code expects it, unchanged for as long as this pointer,
    /// a clone or a launch lives. Memory that its addresses refer to must live as long as `keep`,
    /// and must be named by [`KernelPtr::reaching`] unless it is host memory of this process.
    pub unsafe fn from_buffer(buffer: &Buffer, keep: Keep) -> Self {
        let mut holds = Holds::of(buffer);
        holds.keep.push(keep);
        Self { addr: buffer.kernel_addr(), len: 1, holds, _points_to: PhantomData }
    }

    /// Says that the bytes point into `buffer` as well, and keeps it alive.
    pub fn reaching(mut self, buffer: &Buffer) -> Self {
        self.holds.add(&Holds::of(buffer));
        self
    }

    /// Says that queue pairs behind it have this format. A launch takes the kernel that was compiled for
    /// it; of kernels that look at the format of each queue pair by themselves there is one alone.
    pub fn with_queues_of(mut self, format: NicFormat) -> Self {
        self.holds.formats |= 1 << format as u8;
        self
    }

    /// Says that the bytes point to what `other` points to as well, and keeps it alive.
    pub fn reaching_all_of<U>(mut self, other: &KernelPtr<U>) -> Self {
        self.holds.add(&other.holds);
        self
    }

    /// Keeps `more` alive as well: what the bytes themselves point to.
    pub fn keeping(mut self, more: Keep) -> Self {
        self.holds.keep.push(more);
        self
    }

    /// The address as the kernel sees it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// How many whole elements lie behind it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether not even one element lies behind it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the address is a multiple of what `T` needs.
    pub fn is_aligned(&self) -> bool {
        self.addr.is_multiple_of(align_of::<T>() as u64)
    }
}

impl<T> Clone for KernelPtr<T> {
    fn clone(&self) -> Self {
        Self { holds: self.holds.clone(), ..*self }
    }
}

impl<T: Element> From<&Buffer> for KernelPtr<T> {
    fn from(buffer: &Buffer) -> Self {
        Self::new(buffer)
    }
}

impl<T> fmt::Debug for KernelPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelPtr({:#x}, {} elements)", self.addr, self.len)
    }
}

// SAFETY: the address of the pointer, which keeps the memory alive.
unsafe impl<T> KernelArg for KernelPtr<T> {
    const SIZE: usize = 8;
    const ALIGN: usize = 8;

    fn write(&self, out: &mut ArgBytes<'_>, offset: usize) {
        out.pointer(offset, self.addr, &self.holds);
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.is_empty() {
            return Err("a pointer to one element or more");
        }
        if self.is_aligned() { Ok(()) } else { Err("an aligned pointer") }
    }
}
