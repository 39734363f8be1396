//! `hipError_t`, and the shape of the functions that give one.

use std::ffi::{CStr, c_char, c_int};

macro_rules! codes {
    ($($code:ident = $number:literal,)*) => {
        /// A result other than success.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub(crate) enum Code {
            $($code = $number,)*
        }

        fn name(code: c_int) -> &'static str {
            match code {
                0 => "hipSuccess\0",
                $($number => concat!("hipError", stringify!($code), "\0"),)*
                _ => "hipErrorUnknown\0",
            }
        }
    };
}
codes! {
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

/// Failures of a library: its numbers, and the one for a null pointer.
pub(crate) trait Failure {
    const NULL: Self;
    fn number(self) -> c_int;
}

impl Failure for Code {
    const NULL: Code = Code::InvalidValue;
    fn number(self) -> c_int {
        self as c_int
    }
}

/// The result of a function of the library.
pub(crate) fn answer<E: Failure>(result: Result<(), E>) -> c_int {
    result.map_or_else(E::number, |()| 0)
}

/// Writes what a call gives back.
///
/// # Safety
/// `out` is null, which is refused, or to a writable `T`.
pub(crate) unsafe fn put<T, E: Failure>(out: *mut T, value: T) -> Result<(), E> {
    if out.is_null() {
        return Err(E::NULL);
    }
    // SAFETY: the caller's obligation.
    unsafe { out.write(value) };
    Ok(())
}

/// Functions that the library exports. `fn name(arguments) -> T { ... }` is C's `hipError_t name(T*, arguments)`, which writes
/// what the body gives, an `Answer<T>`; without `-> T` there is no such argument. A null pointer in its place is refused
/// before the body runs. In bodies, the caller has passed what the function of this name asks for.
macro_rules! exports {
    () => {};
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $out:ty $body:block $($rest:tt)*) => {
        $(#[$meta])*
        /// # Safety
        /// As the function of this name says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(out: *mut $out, $($arg: $type),*) -> std::ffi::c_int {
            let body = || -> Answer<$out> { $body };
            let done = if out.is_null() { Err(crate::code::Failure::NULL) } else { body() };
            // SAFETY: the caller's pointer.
            crate::code::answer(done.and_then(|value| unsafe { crate::code::put(out, value) }))
        }
        crate::code::exports! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$meta])*
        /// # Safety
        /// As the function of this name says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            let body = || -> Answer { $body };
            crate::code::answer(body())
        }
        crate::code::exports! { $($rest)* }
    };
}
pub(crate) use exports;

/// `const char* hipGetErrorName(hipError_t)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorName(code: c_int) -> *const c_char {
    CStr::from_bytes_with_nul(name(code).as_bytes()).unwrap_or_default().as_ptr()
}
