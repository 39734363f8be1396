//! The results of calls. libibverbs and libmlx5 report failures in three ways: a null pointer with
//! `errno` set, a positive error number, or −1 with `errno` set. Here all three are a [`CallError`].

use nix::errno::Errno;
use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The function.
    pub call: &'static str,
    /// The error number it reported.
    pub errno: Errno,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, self.errno)
    }
}

impl std::error::Error for CallError {}

impl CallError {
    fn last(call: &'static str) -> Self {
        Self { call, errno: Errno::last() }
    }

    /// This library is too old to have the function, or the provider does not have it.
    pub fn absent(call: &'static str) -> Self {
        Self { call, errno: Errno::EOPNOTSUPP }
    }
}

/// The result of a call that returns 0, an error number, or −1 with `errno` set.
#[inline]
pub fn check(call: &'static str, code: c_int) -> Result<(), CallError> {
    if code == 0 { Ok(()) } else { Err(failure(call, code)) }
}

#[cold]
fn failure(call: &'static str, code: c_int) -> CallError {
    match code {
        -1 => CallError::last(call),
        code => CallError { call, errno: Errno::from_raw(code.saturating_abs()) },
    }
}

/// The result of a call that returns a pointer, null if `errno` is set.
pub fn object<T>(call: &'static str, pointer: *mut T) -> Result<NonNull<T>, CallError> {
    NonNull::new(pointer).ok_or_else(|| CallError::last(call))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_fail_is_understood() {
        assert_eq!(check("f", 0), Ok(()));
        assert_eq!(check("f", 22), Err(CallError { call: "f", errno: Errno::EINVAL }));
        assert_eq!(check("f", -22), Err(CallError { call: "f", errno: Errno::EINVAL }));
        Errno::ENOMEM.set();
        let last = CallError { call: "f", errno: Errno::ENOMEM };
        assert_eq!(check("f", -1), Err(last));
        assert_eq!(object::<u8>("f", std::ptr::null_mut()), Err(last));
        assert_eq!(last.to_string(), "f failed: ENOMEM: Out of memory");
    }
}
