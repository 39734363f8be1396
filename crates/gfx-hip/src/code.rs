//! `hipError_t` and `hiprtcResult`, and the shape of the functions that give one.

use std::ffi::{CStr, c_char, c_int};

/// Results other than success, and their names as the library gives them.
macro_rules! codes {
    ($what:ident, null pointer $null:ident, 0 $success:literal, $($code:ident $number:literal $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $what {
            $($code = $number,)*
        }

        impl crate::code::Failure for $what {
            const NULL: Self = Self::$null;
            fn number(self) -> std::ffi::c_int {
                self as std::ffi::c_int
            }
            fn name(number: std::ffi::c_int) -> Option<&'static std::ffi::CStr> {
                match number {
                    0 => Some($success),
                    $($number => Some($name),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use codes;

codes! {
    Code, null pointer InvalidValue, 0 c"hipSuccess",
    InvalidValue 1 c"hipErrorInvalidValue",
    OutOfMemory 2 c"hipErrorOutOfMemory",
    InvalidDevice 101 c"hipErrorInvalidDevice",
    InvalidImage 200 c"hipErrorInvalidImage",
    InvalidHandle 400 c"hipErrorInvalidHandle",
    NotFound 500 c"hipErrorNotFound",
    NotReady 600 c"hipErrorNotReady",
    HostMemoryAlreadyRegistered 712 c"hipErrorHostMemoryAlreadyRegistered",
    HostMemoryNotRegistered 713 c"hipErrorHostMemoryNotRegistered",
    LaunchFailure 719 c"hipErrorLaunchFailure",
}

pub(crate) type Answer<T = ()> = Result<T, Code>;

/// Failures of a library: its numbers, and the one for a null pointer.
pub(crate) trait Failure: Sized {
    const NULL: Self;
    fn number(self) -> c_int;
    fn name(number: c_int) -> Option<&'static CStr>;
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
    Code::name(code).unwrap_or(c"hipErrorUnknown").as_ptr()
}
