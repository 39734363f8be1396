//! The C library's functions that ours stand in front of.

use crate::process::Once;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::mem::transmute;

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

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $answer:ty = $c:literal;)*) => {
        /// The functions behind ours.
        pub(crate) struct Real {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $answer,)*
        }

        impl Real {
            /// The functions, looked up once.
            pub(crate) fn get() -> &'static Self {
                static REAL: Once<Real> = Once::new();
                REAL.get(|| Self {
                    // SAFETY: the C library's function of this name has this type; the variadic
                    // ones take their third argument as if it were declared.
                    $($name: unsafe {
                        transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) -> $answer,
                        >(next($c))
                    },)*
                })
            }
        }
    };
}

functions! {
    open: fn(*const c_char, c_int, libc::mode_t) -> c_int = c"open";
    open64: fn(*const c_char, c_int, libc::mode_t) -> c_int = c"open64";
    close: fn(c_int) -> c_int = c"close";
    fcntl: fn(c_int, c_int, *mut c_void) -> c_int = c"fcntl";
    ioctl: fn(c_int, c_ulong, *mut c_void) -> c_int = c"ioctl";
    stat: fn(*const c_char, *mut libc::stat) -> c_int = c"stat";
    fstat: fn(c_int, *mut libc::stat) -> c_int = c"fstat";
    statx: fn(c_int, *const c_char, c_int, c_uint, *mut libc::statx) -> c_int = c"statx";
    access: fn(*const c_char, c_int) -> c_int = c"access";
    socket: fn(c_int, c_int, c_int) -> c_int = c"socket";
    sigaction: fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int = c"sigaction";
    signal: fn(c_int, libc::sighandler_t) -> libc::sighandler_t = c"signal";
}
