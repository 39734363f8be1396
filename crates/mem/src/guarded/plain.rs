//! Plain accesses: the memory stays mapped.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words that are loaded, stored and changed as a whole.
pub(crate) trait Word: Copy + Eq {
    /// # Safety
    /// `at` is the aligned address of a word of host memory; likewise below.
    unsafe fn load(at: u64, order: Ordering) -> Option<Self>;
    /// # Safety
    /// As above.
    unsafe fn store(self, at: u64, order: Ordering) -> Option<()>;
    /// # Safety
    /// As above.
    unsafe fn update(at: u64, change: impl Fn(Self) -> Self) -> Option<Self>;
}

macro_rules! word {
    ($($ty:ty: $atomic:ty),*) => {$(
        impl Word for $ty {
            #[inline(always)]
            unsafe fn load(at: u64, order: Ordering) -> Option<Self> {
                // SAFETY: the caller has the word; atomics tolerate any concurrent access.
                Some(unsafe { <$atomic>::from_ptr(at as *mut $ty) }.load(order))
            }

            #[inline(always)]
            unsafe fn store(self, at: u64, order: Ordering) -> Option<()> {
                // SAFETY: the caller has the word; atomics tolerate any concurrent access.
                unsafe { <$atomic>::from_ptr(at as *mut $ty) }.store(self, order);
                Some(())
            }

            #[inline]
            unsafe fn update(at: u64, change: impl Fn(Self) -> Self) -> Option<Self> {
                // SAFETY: the caller has the word; atomics tolerate any concurrent access.
                let word = unsafe { <$atomic>::from_ptr(at as *mut $ty) };
                let change = |old| Some(change(old));
                let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
                Some(old.unwrap_or_else(|old| old))
            }
        }
    )*};
}
word!(u32: AtomicU32, u64: AtomicU64);

// The bytes are read and written at the same time by GPUs, kernels on other threads and peers. A
// plain copy by the compiler would be a data race: it could assume that nobody else writes, read a
// byte twice, or use the destination for values of its own. The C library's functions are called
// through pointers that the compiler cannot see through. To the language they are foreign code that
// touches each byte by accesses of its own, as a device does: values may be torn, and nothing else.
type Move = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
type Set = unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;

/// Copies; the ranges may overlap.
///
/// # Safety
/// Both are addresses of `len` bytes of host memory.
#[inline]
pub(crate) unsafe fn copy(dst: u64, src: u64, len: usize) -> Option<()> {
    let function: Move = black_box(libc::memmove);
    // SAFETY: the caller has both ranges; memmove allows overlap.
    unsafe { function(dst as *mut c_void, src as *const c_void, len) };
    Some(())
}

/// Sets bytes to a value.
///
/// # Safety
/// `dst` is the address of `len` bytes of host memory.
#[inline]
pub(crate) unsafe fn set(dst: u64, byte: u8, len: usize) -> Option<()> {
    let function: Set = black_box(libc::memset);
    // SAFETY: the caller has the range.
    unsafe { function(dst as *mut c_void, c_int::from(byte), len) };
    Some(())
}

#[cfg(feature = "fault-guard")]
pub(super) fn resume_at(_: usize) -> Option<usize> {
    None
}
