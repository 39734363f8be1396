//! Pointers of the caller. Only the caller can make values of these types, and by the interface each is
//! null or as its type says, for as long as the call lasts; here they become values that Rust checks.

use crate::call::{Code, Failure};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;

fn null(what: &str) -> Failure {
    Failure::invalid(format!("{what} is null"))
}

/// A string that ends with a zero byte.
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The string, which must be there.
    pub(crate) fn get(&self, what: &str) -> Result<&str, Failure> {
        self.maybe(what)?.ok_or_else(|| null(what))
    }

    /// The string, if there is one.
    pub(crate) fn maybe(&self, what: &str) -> Result<Option<&str>, Failure> {
        if self.0.is_null() {
            return Ok(None);
        }
        // SAFETY: not null, so it is a string that lasts as long as the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        let text = text.to_str().map_err(|error| Failure::invalid(format!("{what}: {error}")))?;
        Ok(Some(text))
    }
}

/// Bytes, whose number is another parameter.
#[repr(transparent)]
pub(crate) struct Data(*const c_void);

impl Data {
    /// `len` bytes. Without any, the pointer may be null.
    pub(crate) fn get(&self, len: usize, what: &str) -> Result<&[u8], Failure> {
        if len == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(Failure::invalid(format!("{what} is null, expected {len} bytes")));
        }
        if isize::try_from(len).is_err() {
            return Err(Failure::invalid(format!("{what}: {len} bytes are more than can be")));
        }
        // SAFETY: not null, so there are `len` bytes, fewer than half of the address space.
        Ok(unsafe { slice::from_raw_parts(self.0.cast(), len) })
    }

    /// As [`Data::get`]; null is none, whatever their number is said to be.
    pub(crate) fn get_if_there(&self, len: usize, what: &str) -> Result<&[u8], Failure> {
        if self.0.is_null() { Ok(&[]) } else { self.get(len, what) }
    }
}

/// Numbers of blocks, whose count is another parameter.
#[repr(transparent)]
pub(crate) struct Indices(*const c_int);

impl Indices {
    /// `count` numbers, none of which is negative.
    pub(crate) fn get(&self, count: usize, what: &str) -> Result<Vec<u32>, Failure> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Failure::invalid(format!("{what} is null, expected {count} numbers")));
        }
        if count > warpverbs_nixl::MOST_DESCRIPTORS {
            let most = warpverbs_nixl::MOST_DESCRIPTORS;
            return Err(Failure::invalid(format!("{what}: {count} numbers, at most {most}")));
        }
        // SAFETY: not null, so there are `count` numbers, and not too many for a slice.
        let all = unsafe { slice::from_raw_parts(self.0, count) };
        let check = |(at, index): (usize, &c_int)| {
            u32::try_from(*index).map_err(|_| {
                Failure::invalid(format!("{what}: number {at} is {index}, expected 0 or more"))
            })
        };
        all.iter().enumerate().map(check).collect()
    }
}

/// A structure of the caller's, to be read. All of its bit patterns are values.
#[repr(transparent)]
pub(crate) struct In<T: Copy>(*const T);

impl<T: Copy> In<T> {
    pub(crate) fn get(&self, what: &str) -> Result<T, Failure> {
        if self.0.is_null() {
            return Err(null(what));
        }
        // SAFETY: not null, so it points to such a structure.
        Ok(unsafe { self.0.read() })
    }
}

/// A place of the caller's for a result.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

/// A place that is there.
pub(crate) struct Place<'a, T>(&'a Out<T>);

impl<T> Out<T> {
    /// The place, to be looked at before anything is done that would have to be undone.
    pub(crate) fn place(&self, what: &str) -> Result<Place<'_, T>, Failure> {
        if self.0.is_null() { Err(null(what)) } else { Ok(Place(self)) }
    }
}

impl<T> Place<'_, T> {
    pub(crate) fn set(self, value: T) {
        // SAFETY: not null, so there is room for such a value; what is there needs no drop.
        unsafe { self.0.0.write(value) };
    }
}

/// Bytes that the caller frees with `free`.
pub(crate) fn given(bytes: &[u8]) -> Result<*mut c_void, Failure> {
    // SAFETY: no condition; of no bytes there is at least one, so that null means failure.
    let memory = unsafe { libc::malloc(bytes.len().max(1)) };
    if memory.is_null() {
        return Err(Failure::new(Code::BACKEND, format!("no memory for {} bytes", bytes.len())));
    }
    // SAFETY: as many bytes were just allocated there, which nothing else knows of.
    unsafe { memory.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(memory)
}
