//! Places of the heap that are given out, and the calls that every rank makes in the same order.

use crate::agreement::History;
use crate::{Allocation, Allocator, ShmemError, Sym};
use std::panic::Location;
use warpverbs_gpu::Element;

/// The places of one rank, which are those of all ranks as long as their calls are the same.
pub(crate) struct Places {
    heap: u64,
    allocator: Allocator,
    history: History,
}

impl Places {
    pub(crate) fn new(heap: u64, allocator: Allocator) -> Self {
        Self { heap, allocator, history: History::default() }
    }

    /// As [`Heap::alloc_aligned`](crate::Heap::alloc_aligned), called at `site`.
    pub(crate) fn alloc<T: Element>(
        &mut self,
        len: u64,
        align: u64,
        site: &Location<'_>,
    ) -> Result<Sym<T>, ShmemError> {
        let bytes = len.saturating_mul(size_of::<T>() as u64);
        let given = self.allocator.alloc(bytes, align.max(align_of::<T>() as u64));
        // A call that failed counts as well: it must fail on all ranks.
        self.note(format!("alloc {bytes} bytes, align {align}"), site);
        let given = given?;
        Ok(Sym::new(self.heap, given.serial, given.offset, len))
    }

    /// As [`Heap::free`](crate::Heap::free), called at `site`.
    pub(crate) fn free<T: Element>(
        &mut self,
        place: Sym<T>,
        site: &Location<'_>,
    ) -> Result<(), ShmemError> {
        self.of_this_heap(&place)?;
        let (serial, offset, len) = (place.serial, place.offset(), place.bytes());
        self.note(format!("free {len} bytes at {offset:#x}"), site);
        Ok(self.allocator.free(Allocation { serial, offset, len })?)
    }

    fn of_this_heap<T: Element>(&self, place: &Sym<T>) -> Result<(), ShmemError> {
        match place.heap == self.heap {
            true => Ok(()),
            false => Err(ShmemError::OtherHeap { offset: place.offset() }),
        }
    }

    /// It was given out by this heap, and not taken back.
    pub(crate) fn check<T: Element>(&self, place: &Sym<T>) -> Result<(), ShmemError> {
        self.of_this_heap(place)?;
        self.allocator.check(place.serial, place.offset())?;
        Ok(())
    }

    /// The heap has `size` bytes now.
    pub(crate) fn grow(&mut self, size: u64) {
        self.allocator.grow(size);
    }

    /// Bytes that are not given out, and places that are.
    pub(crate) fn room(&self) -> (u64, usize) {
        (self.allocator.free_bytes(), self.allocator.count())
    }

    /// Another call that every rank makes.
    pub(crate) fn note(&mut self, what: String, site: &Location<'_>) {
        self.history.add(what, site);
    }

    /// The calls so far, for the other ranks.
    pub(crate) fn history(&self) -> History {
        self.history.clone()
    }

    /// Compares the calls of all ranks.
    pub(crate) fn agree<'a>(
        &mut self,
        all: impl IntoIterator<Item = (u32, &'a History)>,
    ) -> Result<(), ShmemError> {
        let mut all = all.into_iter();
        let Some((rank, first)) = all.next() else { return Ok(()) };
        for (other, theirs) in all {
            if let Some([call, other_call]) = first.difference(theirs) {
                return Err(ShmemError::Order { rank, call, other, other_call });
            }
        }
        self.history.agreed();
        Ok(())
    }
}
