//! A kernel translation unit in every form it may be run in. Values of these types are generated
//! by `warpverbs-kernel-build`; nobody writes them by hand.

use crate::KernelPtr;
use crate::pointer::Keep;
use core::ffi::c_void;

/// One `.cu` file: its source with all project includes in place, and its host-compiled entries.
#[derive(Debug)]
pub struct Image {
    /// File stem, for messages and for the compile cache.
    pub name: &'static str,
    /// Source with `#include "warpverbs/…"` expanded; what NVRTC is given.
    pub source: &'static str,
    /// Every `__global__` function in the file.
    pub entries: &'static [Entry],
}

/// One `__global__` function.
#[derive(Debug)]
pub struct Entry {
    /// Its name; declared `extern "C"`, so this is also the symbol in the device image.
    pub name: &'static str,
    /// Size in bytes of each parameter, in order.
    pub params: &'static [usize],
    /// The host-compiled function behind a trampoline that takes an array of pointers to the
    /// parameters, as `cuLaunchKernel` does. Must be called on a SIMT lane.
    pub host: unsafe extern "C" fn(*const *const c_void),
}

/// Parameters of one launch, copied by value, and what their addresses need to stay valid. A
/// device holds this until the kernel has ended, or for ever if it cannot end it.
#[derive(Clone, Debug, Default)]
pub struct KernelArgs {
    bytes: Vec<[u64; 2]>,
    keep: Vec<Keep>,
}

impl KernelArgs {
    /// No parameters yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a parameter of at most 16 bytes.
    pub fn push(&mut self, value: &[u8]) {
        assert!(value.len() <= 16, "kernel parameters are at most 16 bytes, got {}", value.len());
        let mut padded = [0u8; 16];
        padded[..value.len()].copy_from_slice(value);
        let (lo, hi) = padded.split_at(8);
        let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap_or_default());
        self.bytes.push([word(lo), word(hi)]);
    }

    /// Appends a pointer, and keeps alive what it keeps alive.
    pub fn push_ptr(&mut self, pointer: &KernelPtr) {
        self.push(&pointer.addr().to_le_bytes());
        self.keep.extend_from_slice(pointer.keep());
    }

    /// Pointers to the parameters; valid while `self` is neither moved nor changed.
    pub fn pointers(&self) -> Vec<*const c_void> {
        self.bytes.iter().map(|p| p.as_ptr().cast()).collect()
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A kernel with its arguments: what the generated launchers implement.
///
/// # Safety
/// `args` must yield exactly the parameters of `entry`, in order and size, and every address among
/// them must stay valid for what the kernel does with it until the launch has ended.
pub unsafe trait Kernel {
    /// The translation unit.
    fn image(&self) -> &'static Image;
    /// Which of its functions.
    fn entry(&self) -> &'static Entry;
    /// The parameters.
    fn args(&self) -> KernelArgs;
}
