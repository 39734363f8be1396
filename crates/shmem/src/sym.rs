//! A place in the heap, the same on every rank.

use crate::ShmemError;
use std::fmt;
use std::marker::PhantomData;
use warpverbs_gpu::Element;

/// `len` elements at the same offset of every rank's heap. Plain data: refused by another heap, and by
/// its own once it was given back, also if something else lies there by then. Kernels know of offsets
/// alone.
pub struct Sym<T> {
    pub(crate) heap: u64,
    /// Of the allocation; a part has that of its whole.
    pub(crate) serial: u64,
    offset: u64,
    len: u64,
    _elements: PhantomData<fn() -> T>,
}

impl<T: Element> Sym<T> {
    pub(crate) fn new(heap: u64, serial: u64, offset: u64, len: u64) -> Self {
        Self { heap, serial, offset, len, _elements: PhantomData }
    }

    /// Bytes from the heap's start.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.len * size_of::<T>() as u64
    }

    /// `len` elements from element `first` on. [`Heap::free`](crate::Heap::free) takes wholes alone.
    ///
    /// # Errors
    /// [`ShmemError::Outside`].
    pub fn slice(&self, first: u64, len: u64) -> Result<Self, ShmemError> {
        match first.checked_add(len) {
            Some(end) if end <= self.len => {
                let offset = self.offset + first * size_of::<T>() as u64;
                Ok(Self::new(self.heap, self.serial, offset, len))
            }
            _ => Err(ShmemError::Outside { offset: first, len, size: self.len }),
        }
    }
}

impl<T> Clone for Sym<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Sym<T> {}

impl<T> PartialEq for Sym<T> {
    fn eq(&self, other: &Self) -> bool {
        let parts = |place: &Self| (place.heap, place.serial, place.offset, place.len);
        parts(self) == parts(other)
    }
}

impl<T> Eq for Sym<T> {}

impl<T> fmt::Debug for Sym<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sym({} at {:#x})", self.len, self.offset)
    }
}
