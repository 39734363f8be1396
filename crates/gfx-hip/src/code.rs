//! `hipError_t`.

use std::ffi::{CStr, c_char, c_int};

/// A result other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    InvalidValue = 1,
    OutOfMemory = 2,
    InvalidDevice = 101,
    InvalidImage = 200,
    InvalidHandle = 400,
    NotFound = 500,
    NotReady = 600,
    HostMemoryAlreadyRegistered = 712,
    HostMemoryNotRegistered = 713,
    LaunchFailure = 719,
}

pub(crate) type Answer<T = ()> = Result<T, Code>;

/// The result of a function of the library.
pub(crate) fn answer(result: Answer) -> c_int {
    result.map_or_else(|code| code as c_int, |()| 0)
}

fn name(code: c_int) -> &'static CStr {
    match code {
        0 => c"hipSuccess",
        1 => c"hipErrorInvalidValue",
        2 => c"hipErrorOutOfMemory",
        101 => c"hipErrorInvalidDevice",
        200 => c"hipErrorInvalidImage",
        400 => c"hipErrorInvalidHandle",
        500 => c"hipErrorNotFound",
        600 => c"hipErrorNotReady",
        712 => c"hipErrorHostMemoryAlreadyRegistered",
        713 => c"hipErrorHostMemoryNotRegistered",
        719 => c"hipErrorLaunchFailure",
        _ => c"hipErrorUnknown",
    }
}

/// `const char* hipGetErrorName(hipError_t)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorName(code: c_int) -> *const c_char {
    name(code).as_ptr()
}

/// Writes what a call gives back.
///
/// # Safety
/// `out` is null, which is refused, or to a writable `T`.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(Code::InvalidValue);
    }
    // SAFETY: the caller's obligation.
    unsafe { out.write(value) };
    Ok(())
}
