//! The C library's functions that ours stand in front of.

use crate::process::Once;
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::mem;

/// The functions behind ours.
#[allow(missing_docs)]
pub(crate) struct Real {
    pub(crate) open: unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int,
    pub(crate) open64: unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int,
    pub(crate) close: unsafe extern "C" fn(c_int) -> c_int,
    pub(crate) fcntl: unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int,
    pub(crate) ioctl: unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int,
    pub(crate) stat: unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int,
    pub(crate) fstat: unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int,
    pub(crate) access: unsafe extern "C" fn(*const c_char, c_int) -> c_int,
    pub(crate) socket: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int,
    pub(crate) sigaction: Sigaction,
    pub(crate) signal: unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t,
}

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// The next definition of `name` after this library's. Without it the program cannot go on.
pub(crate) fn next(name: &CStr) -> *mut c_void {
    // SAFETY: `name` ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        eprintln!("warpverbs: the C library has no {name:?}; glibc 2.33 or newer is needed");
        std::process::abort();
    }
    found
}

impl Real {
    /// The functions, looked up once.
    pub(crate) fn get() -> &'static Self {
        static REAL: Once<Real> = Once::new();
        REAL.get(|| {
            macro_rules! function {
                ($name:literal, $ty:ty) => {
                    // SAFETY: the C library's function of this name has this type; the variadic
                    // ones take their third argument as if it were declared.
                    unsafe { mem::transmute::<*mut c_void, $ty>(next($name)) }
                };
            }
            type Open = unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int;
            Self {
                open: function!(c"open", Open),
                open64: function!(c"open64", Open),
                close: function!(c"close", unsafe extern "C" fn(c_int) -> c_int),
                fcntl: function!(
                    c"fcntl",
                    unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int
                ),
                ioctl: function!(
                    c"ioctl",
                    unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int
                ),
                stat: function!(
                    c"stat",
                    unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int
                ),
                fstat: function!(c"fstat", unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int),
                access: function!(c"access", unsafe extern "C" fn(*const c_char, c_int) -> c_int),
                socket: function!(c"socket", unsafe extern "C" fn(c_int, c_int, c_int) -> c_int),
                sigaction: function!(c"sigaction", Sigaction),
                signal: function!(
                    c"signal",
                    unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t
                ),
            }
        })
    }
}
