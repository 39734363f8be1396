//! Types that C++ and the scheduler share. Layouts as in `kernels/include/warpverbs/arch/simt.h`.

use core::ffi::{CStr, c_char};
use std::cell::Cell;
use std::fmt;

/// `wv_simt_lane`: identifiers of a lane and its last memory operation. Cells, because C++ writes
/// them while the scheduler holds a reference.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LaneAbi {
    pub(crate) lane: u32,
    pub(crate) warp: u32,
    pub(crate) thread: u32,
    pub(crate) block: u32,
    pub(crate) block_dim: u32,
    pub(crate) grid_dim: u32,
    pub(crate) lockstep: u32,
    pub(crate) line: Cell<u32>,
    pub(crate) op: Cell<u32>,
    pub(crate) file: Cell<*const c_char>,
    pub(crate) addr: Cell<u64>,
}

/// `wv_simt_tls`: one per thread.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Tls {
    /// Memory operations left until the lane must come back; at 0 it calls `wv_simt_switch`.
    pub(crate) countdown: Cell<u64>,
    /// The running lane; null while none runs.
    pub(crate) current: Cell<*const LaneAbi>,
}

const _: () = {
    assert!(size_of::<LaneAbi>() == 56 && align_of::<LaneAbi>() == 8);
    assert!(core::mem::offset_of!(LaneAbi, line) == 28);
    assert!(core::mem::offset_of!(LaneAbi, file) == 40);
    assert!(core::mem::offset_of!(LaneAbi, addr) == 48);
    assert!(size_of::<Tls>() == 16 && core::mem::offset_of!(Tls, current) == 8);
};

unsafe extern "C" {
    fn wv_simt_tls_here() -> *const Tls;
}

/// The calling thread's word. Not to be kept beyond the thread.
#[inline]
pub(crate) fn tls<'thread>() -> &'thread Tls {
    // SAFETY: the function has no preconditions.
    let here = unsafe { wv_simt_tls_here() };
    // SAFETY: a thread-local of this thread, of this layout, zero-initialised; only this thread
    // touches it, through cells.
    unsafe { &*here }
}

/// A place in device code. `file` is a string literal of the kernel's object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawSite {
    pub(crate) file: *const c_char,
    pub(crate) line: u32,
}

impl RawSite {
    pub(crate) const NONE: Self = Self { file: core::ptr::null(), line: 0 };

    /// The place in a form that outlives everything.
    pub(crate) fn resolve(self) -> Site {
        if self.file.is_null() {
            return Site { file: String::new(), line: self.line };
        }
        // SAFETY: a non-null `file` is `__FILE__`, a NUL-terminated literal in static storage.
        let name = unsafe { CStr::from_ptr(self.file) };
        Site { file: name.to_string_lossy().into_owned(), line: self.line }
    }
}

/// A place in device code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Source file as the compiler was given it; empty if unknown.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() {
            return f.write_str("an unknown place");
        }
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Kind of the last memory operation, as `wv::host::op`.
pub(crate) fn op_name(op: u32) -> &'static str {
    match op {
        1 => "load",
        2 => "store",
        3 => "update",
        4 => "fence",
        _ => "operation",
    }
}
