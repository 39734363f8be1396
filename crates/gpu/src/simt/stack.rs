//! Stacks for lanes, mapped in slabs, each with a guard page below it, reused for ever.

use corosensei::stack::{Stack, StackPointer};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use warpverbs_mem::MemError;

/// Stacks mapped at once: one system call for many lanes.
const SLAB_STACKS: usize = 64;
const PAGE: usize = 4096;
/// Stacks begin this much apart within a page, in turn: the hot ends of all of them would else
/// compete for the same few cache sets.
const STAGGER: usize = 256;

/// Distance of two stacks: the guard page, the stack, and a page for the stagger.
fn pitch(stack_bytes: usize) -> usize {
    stack_bytes + 2 * PAGE
}

#[derive(Debug)]
struct Slab {
    ptr: NonNull<core::ffi::c_void>,
    len: usize,
}

// SAFETY: the mapping has no thread affinity.
unsafe impl Send for Slab {}
// SAFETY: `&Slab` gives access to nothing.
unsafe impl Sync for Slab {}

impl Slab {
    fn map(stack_bytes: usize) -> Result<Self, MemError> {
        let pitch = pitch(stack_bytes);
        let len = pitch * SLAB_STACKS;
        let size = NonZeroUsize::new(len).unwrap_or(NonZeroUsize::MIN);
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_STACK;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let ptr = unsafe {
            mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)
        }
        .map_err(|errno| MemError::Map { len, errno })?;
        let slab = Self { ptr, len };
        for i in 0..SLAB_STACKS {
            let guard = slab.ptr.as_ptr().wrapping_byte_add(i * pitch);
            let guard = NonNull::new(guard).unwrap_or(slab.ptr);
            // SAFETY: one page inside the mapping just made, which nobody uses yet.
            unsafe { mprotect(guard, PAGE, ProtFlags::PROT_NONE) }
                .map_err(|errno| MemError::Map { len, errno })?;
        }
        Ok(slab)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and every `LaneStack` in it keeps it alive.
        let unmapped = unsafe { munmap(self.ptr, self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// One stack; keeps its slab mapped.
#[derive(Debug)]
pub(crate) struct LaneStack {
    base: StackPointer,
    limit: StackPointer,
    _slab: Arc<Slab>,
}

// SAFETY: `limit..base` lies in a slab that this value keeps mapped and nobody else uses; its
// lowest page is inaccessible, and above it there are at least `MIN_STACK_SIZE` bytes
// (`SimtConfig` insists on 16 KiB). Both ends are aligned to 256 bytes.
unsafe impl Stack for LaneStack {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

/// Free stacks of one size.
#[derive(Debug)]
pub(crate) struct StackPool {
    stack_bytes: usize,
    free: Mutex<Vec<LaneStack>>,
}

impl StackPool {
    /// `stack_bytes` is rounded up to whole pages; the guard page comes on top.
    pub(crate) fn new(stack_bytes: usize) -> Self {
        Self { stack_bytes: stack_bytes.next_multiple_of(PAGE), free: Mutex::new(Vec::new()) }
    }

    /// Takes `count` stacks, mapping what is missing.
    pub(crate) fn take(&self, count: usize) -> Result<Vec<LaneStack>, MemError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while free.len() < count {
            let slab = Arc::new(Slab::map(self.stack_bytes)?);
            let start = slab.ptr.as_ptr() as usize;
            let pitch = pitch(self.stack_bytes);
            free.extend((0..SLAB_STACKS).rev().filter_map(|i| {
                let limit = StackPointer::new(start + i * pitch)?;
                let base = limit.checked_add(pitch - i * STAGGER % PAGE)?;
                Some(LaneStack { base, limit, _slab: slab.clone() })
            }));
        }
        let keep = free.len() - count;
        Ok(free.split_off(keep))
    }

    /// Gives stacks back.
    pub(crate) fn give(&self, stacks: impl IntoIterator<Item = LaneStack>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(stacks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_disjoint_guarded_and_reused() {
        let pool = StackPool::new(20_000);
        let mut stacks = pool.take(130).unwrap();
        stacks.sort_by_key(|s| s.base);
        for pair in stacks.windows(2) {
            assert!(pair[0].base <= pair[1].limit);
        }
        for stack in &stacks {
            let usable = stack.base.get() - stack.limit.get() - PAGE;
            assert!((20_480..=20_480 + PAGE).contains(&usable), "{usable}");
            assert_eq!(stack.base.get() % corosensei::stack::STACK_ALIGNMENT, 0);
        }
        let first = stacks[0].base;
        pool.give(stacks);
        let again = pool.take(192).unwrap();
        assert!(again.iter().any(|s| s.base == first));
    }
}
