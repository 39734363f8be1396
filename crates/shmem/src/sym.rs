//! A place in the heap, the same on every rank.

use crate::ShmemError;
use crate::layout::Signal;
use std::fmt;
use std::marker::PhantomData;
use warpverbs_gpu::Element;

/// `len` elements at the same offset of every rank's heap. Plain data: good as long as it is not
/// freed, and refused by another heap.
pub struct Sym<T> {
    pub(crate) heap: u64,
    offset: u64,
    len: u64,
    _elements: PhantomData<fn() -> T>,
}

impl<T: Element> Sym<T> {
    pub(crate) fn new(heap: u64, offset: u64, len: u64) -> Self {
        Self { heap, offset, len, _elements: PhantomData }
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

    /// `len` elements from element `first` on.
    ///
    /// # Errors
    /// [`ShmemError::Outside`].
    pub fn slice(&self, first: u64, len: u64) -> Result<Self, ShmemError> {
        match first.checked_add(len) {
            Some(end) if end <= self.len => {
                Ok(Self::new(self.heap, self.offset + first * size_of::<T>() as u64, len))
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
        (self.heap, self.offset, self.len) == (other.heap, other.offset, other.len)
    }
}

impl<T> Eq for Sym<T> {}

impl<T> fmt::Debug for Sym<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sym({} at {:#x})", self.len, self.offset)
    }
}

// SAFETY: two words without padding.
#[allow(unsafe_code)]
unsafe impl Element for Signal {}
