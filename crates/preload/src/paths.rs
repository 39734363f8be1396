//! Programs that read `/sys` themselves, whatever `SYSFS_PATH` says, find the devices there.

use crate::process::Once;
use crate::real::next;
use crate::settings::Settings;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;

/// Paths that are looked for elsewhere: this, all below it and below `/sys/class/infiniband_verbs`.
const CLASS: &[u8] = b"/sys/class/infiniband";

/// The path in our `sysfs` for one in the kernel's, if it is one of RDMA devices.
///
/// # Safety
/// `path` is null or ends with a zero byte.
unsafe fn moved(path: *const c_char) -> Option<CString> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller says that it ends.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let rest = path.strip_prefix(CLASS)?;
    rest.first().is_none_or(|next| b"/_".contains(next)).then_some(())?;
    let root = Settings::get().sysfs.as_ref()?;
    CString::new([root.as_slice(), b"/class/infiniband", rest].concat()).ok()
}

/// Calls `real` with the path in our `sysfs` that stands for `path`, or else with `path`.
///
/// # Safety
/// `path` is null or ends with a zero byte.
pub(crate) unsafe fn with_moved<T>(
    path: *const c_char,
    real: impl FnOnce(*const c_char) -> T,
) -> T {
    // SAFETY: as the caller says.
    let moved = unsafe { moved(path) };
    real(moved.as_ref().map_or(path, |moved| moved.as_ptr()))
}

/// Functions of the C library whose first argument is a path.
macro_rules! functions {
    ($($name:ident($($argument:ident: $ty:ty),*) -> $answer:ty = $c:literal;)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, $($argument: $ty),*) -> $answer {
            type Function = unsafe extern "C" fn(*const c_char, $($ty),*) -> $answer;
            static REAL: Once<Function> = Once::new();
            // SAFETY: the C library's function of this name has this type.
            let real = REAL.get(|| unsafe { transmute::<*mut c_void, Function>(next($c)) });
            // SAFETY: the caller's arguments, and a path that lives during the call.
            let call = |path| unsafe { real(path, $($argument),*) };
            // SAFETY: a path, as the caller says.
            unsafe { with_moved(path, call) }
        }
    )*};
}

type Filter = Option<unsafe extern "C" fn(*const libc::dirent) -> c_int>;
type Compare =
    Option<unsafe extern "C" fn(*mut *const libc::dirent, *mut *const libc::dirent) -> c_int>;

functions! {
    fopen(mode: *const c_char) -> *mut libc::FILE = c"fopen";
    fopen64(mode: *const c_char) -> *mut libc::FILE = c"fopen64";
    lstat(out: *mut libc::stat) -> c_int = c"lstat";
    lstat64(out: *mut libc::stat) -> c_int = c"lstat64";
    opendir() -> *mut libc::DIR = c"opendir";
    readlink(out: *mut c_char, len: usize) -> isize = c"readlink";
    realpath(out: *mut c_char) -> *mut c_char = c"realpath";
    scandir(
        list: *mut *mut *mut libc::dirent, filter: Filter, compare: Compare
    ) -> c_int = c"scandir";
}
