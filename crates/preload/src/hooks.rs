//! The functions that take the place of the C library's.
//!
//! Each looks whether the call is about a device of ours, and passes it on otherwise. Calls that
//! this library itself makes, on the same thread, are passed on too. `warpverbs_consume` is in no
//! other library: programs that know of this one find it by `dlsym`.

use crate::dv::placed;
use crate::faults;
use crate::files;
use crate::inside::inside;
use crate::nic;
use crate::paths::with_moved;
use crate::process;
use crate::real::{Real, next};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use warpverbs_uverbs::VERBS_IOCTL;

/// Major and first minor number of the devices.
const MAJOR: u32 = 231;
const MINOR: u32 = 192;
/// `NETLINK_RDMA`: what libibverbs asks for devices before it looks into sysfs.
const NETLINK_RDMA: c_int = 20;

fn fail(errno: c_int) -> c_int {
    // SAFETY: the address of this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; nothing else uses it now.
    unsafe { *place = errno };
    -1
}

/// The answer of `work`, if it gives one: not within a call of ours, and not if it panics.
pub(crate) fn ours<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    inside(|| catch_unwind(AssertUnwindSafe(work)).ok().flatten()).flatten()
}

/// Number of the device with this path.
///
/// # Safety
/// `path` is null or ends with a zero byte.
unsafe fn device(path: *const c_char) -> Option<u32> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller says that it ends.
    let path = unsafe { CStr::from_ptr(path) };
    ours(|| files::index_of(path.to_bytes()))
}

fn describe(index: u32, stat: &mut libc::stat) {
    stat.st_mode = libc::S_IFCHR | 0o666;
    stat.st_rdev = libc::makedev(MAJOR, MINOR + index);
}

/// `int warpverbs_consume(int on)`: from now on, the process' devices complete what doorbell records
/// announce without reading or moving it, or (`on` = 0) execute it again: see
/// [`SoftNic::consume_only`](warpverbs_nic::SoftNic::consume_only). For measuring posters. Returns
/// the number of devices that were opened so far, or -1 if one has failed.
#[unsafe(no_mangle)]
pub extern "C" fn warpverbs_consume(on: c_int) -> c_int {
    ours(|| nic::consume_only(on != 0).ok()).and_then(|n| c_int::try_from(n).ok()).unwrap_or(-1)
}

/// Opens a device of ours, or has `real` open another file.
///
/// # Safety
/// As for the C library's `open`, of which `real` is a form.
unsafe fn open_by(
    real: unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    // SAFETY: a path, as the caller says.
    if let Some(index) = unsafe { device(path) } {
        return ours(|| Some(files::open(index, flags))).map_or(-1, |r| r.unwrap_or_else(fail));
    }
    // SAFETY: the caller's arguments, and a path that lives during the call.
    let call = |path| unsafe { real(path, flags, mode) };
    // SAFETY: a path, as the caller says.
    unsafe { with_moved(path, call) }
}

/// # Safety
/// As for the C library's `open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_by(Real::get().open, path, flags, mode) }
}

/// # Safety
/// As for the C library's `open64`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open_by(Real::get().open64, path, flags, mode) }
}

/// # Safety
/// As for the C library's `close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if process::is_owner()
        && let Some(closed) = inside(|| files::close(fd))
    {
        return closed.map_or_else(fail, |()| 0);
    }
    // SAFETY: the caller's argument.
    unsafe { (Real::get().close)(fd) }
}

/// # Safety
/// As for the C library's `close_range`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags == 0
        && process::is_owner()
        && let Some(closed) = inside(|| files::close_range(first, last))
    {
        return closed.map_or_else(fail, |()| 0);
    }
    // The system call itself: before 2.34 the C library has no function for it.
    // SAFETY: takes numbers.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int }
}

/// # Safety
/// As for the C library's `closefrom`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: takes numbers.
    if unsafe { close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0) } != 0 {
        // SAFETY: the C library's function of this name has this type.
        let real: unsafe extern "C" fn(c_int) = unsafe { transmute(next(c"closefrom")) };
        // SAFETY: the caller's argument.
        unsafe { real(first) }
    }
}

/// # Safety
/// As for the C library's `ioctl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == VERBS_IOCTL
        && let Some(answer) = inside(|| {
            let ask = || files::ioctl(fd, request, argument as u64);
            // SAFETY: as the caller says.
            let answer = || unsafe { placed(argument, ask) };
            catch_unwind(AssertUnwindSafe(answer)).unwrap_or(Some(Err(libc::EIO)))
        })
        .flatten()
    {
        return answer.map_or_else(fail, |()| 0);
    }
    // SAFETY: the caller's arguments.
    unsafe { (Real::get().ioctl)(fd, request, argument) }
}

/// # Safety
/// As for the C library's `fcntl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let argument = match command {
        libc::F_SETFL => files::flags_of(fd, argument as c_int) as *mut c_void,
        _ => argument,
    };
    // SAFETY: the caller's arguments, or flags as its own.
    unsafe { (Real::get().fcntl)(fd, command, argument) }
}

/// # Safety
/// As for the C library's `fcntl64`, which is `fcntl` where files are of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fcntl(fd, command, argument) }
}

/// # Safety
/// As for the C library's `stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: a path, as the caller says.
    if let Some(index) = unsafe { device(path) } {
        // SAFETY: the caller gives room for a stat, any bytes of which are one.
        let out = unsafe { &mut *out };
        // SAFETY: a stat is numbers alone.
        *out = unsafe { std::mem::zeroed() };
        describe(index, out);
        return 0;
    }
    // SAFETY: the caller's arguments, and a path that lives during the call.
    let call = |path| unsafe { (Real::get().stat)(path, out) };
    // SAFETY: a path, as the caller says.
    unsafe { with_moved(path, call) }
}

/// # Safety
/// As for the C library's `stat64`, whose structure is that of `stat` where files are of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat64(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { stat(path, out) }
}

/// # Safety
/// As for the C library's `fstat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, out: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { (Real::get().fstat)(fd, out) };
    if result == 0 {
        // SAFETY: fstat has just filled it.
        let out = unsafe { &mut *out };
        if let Some(index) = files::device_of(fd, out) {
            describe(index, out);
        }
    }
    result
}

/// # Safety
/// As for the C library's `fstat64`, whose structure is that of `fstat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat64(fd: c_int, out: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fstat(fd, out) }
}

/// # Safety
/// As for the C library's `statx`, which Rust's standard library and coreutils call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut libc::statx,
) -> c_int {
    // SAFETY: a path, as the caller says.
    if let Some(index) = unsafe { device(path) } {
        // SAFETY: the caller gives room for a statx, any bytes of which are one.
        let out = unsafe { &mut *out };
        // SAFETY: a statx is numbers alone.
        *out = unsafe { std::mem::zeroed() };
        out.stx_mask = libc::STATX_TYPE | libc::STATX_MODE;
        out.stx_mode = (libc::S_IFCHR | 0o666) as u16;
        (out.stx_rdev_major, out.stx_rdev_minor) = (MAJOR, MINOR + index);
        return 0;
    }
    // SAFETY: the caller's arguments, and a path that lives during the call.
    let call = |path| unsafe { (Real::get().statx)(folder, path, flags, mask, out) };
    // SAFETY: a path, as the caller says.
    unsafe { with_moved(path, call) }
}

/// # Safety
/// As for the C library's `access`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: a path, as the caller says.
    if unsafe { device(path) }.is_some() {
        return if mode & libc::X_OK == 0 { 0 } else { fail(libc::EACCES) };
    }
    // SAFETY: the caller's arguments, and a path that lives during the call.
    let call = |path| unsafe { (Real::get().access)(path, mode) };
    // SAFETY: a path, as the caller says.
    unsafe { with_moved(path, call) }
}

/// # Safety
/// As for the C library's `socket`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // A kernel without RDMA says so; then libibverbs looks into sysfs.
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return fail(libc::EPROTONOSUPPORT);
    }
    // SAFETY: the caller's arguments.
    unsafe { (Real::get().socket)(domain, kind, protocol) }
}

/// # Safety
/// As for the C library's `sigaction`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's arguments.
    if let Some(answer) = unsafe { faults::sigaction(signal, new, old) } {
        return answer;
    }
    // SAFETY: the caller's arguments.
    unsafe { (Real::get().sigaction)(signal, new, old) }
}

/// # Safety
/// As for the C library's `signal`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: all zeros is a sigaction.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut old = new;
    new.sa_sigaction = handler;
    new.sa_flags = libc::SA_RESTART;
    // SAFETY: a sigaction, and room for one.
    match unsafe { faults::sigaction(signal, &new, &mut old) } {
        Some(0) => old.sa_sigaction,
        Some(_) => libc::SIG_ERR,
        // SAFETY: the caller's arguments.
        None => unsafe { (Real::get().signal)(signal, handler) },
    }
}
