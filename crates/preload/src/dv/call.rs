//! Calls of the kernel's interface by functions that a vendor's library would have, and what these share.

use crate::files;
use crate::hooks::ours;
use crate::settings::Settings;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{from_mut, null_mut};
use warpverbs_uverbs::{HEADER_BYTES, VERBS_IOCTL};

/// A call of the kernel's interface.
#[repr(C)]
#[derive(Default)]
pub(super) struct Message {
    length: u16,
    object: u16,
    method: u16,
    count: u16,
    reserved: u64,
    driver: u32,
    reserved2: u32,
    attrs: [Attr; 12],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attr {
    id: u16,
    len: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

impl Message {
    pub(super) fn new(object: u16, method: u16) -> Self {
        Self { object, method, driver: Settings::get().driver.number(), ..Self::default() }
    }

    pub(super) fn with(mut self, id: u16, len: usize, data: u64) -> Self {
        /// The device has to know the attribute.
        const MANDATORY: u16 = 1;
        let at = usize::from(self.count);
        self.attrs[at] = Attr { id, len: len as u16, flags: MANDATORY, reserved: 0, data };
        self.count += 1;
        self
    }

    /// A handle: of an object that is named, or room for that of a new one.
    pub(super) fn handle(self, id: u16, handle: u32) -> Self {
        self.with(id, 0, handle.into())
    }

    /// A structure to be read, or to be filled.
    pub(super) fn at<T>(self, id: u16, place: *const T) -> Self {
        self.with(id, size_of::<T>(), place as u64)
    }

    /// Asks the device; the handle of the object that was made.
    pub(super) fn send(mut self, fd: c_int) -> Result<u32, c_int> {
        self.length = (HEADER_BYTES + usize::from(self.count) * size_of::<Attr>()) as u16;
        let answered = files::ioctl(fd, VERBS_IOCTL, from_mut(&mut self) as u64);
        answered.unwrap_or(Err(libc::EBADF))?;
        // The device has written it.
        // SAFETY: a member of a live value.
        Ok(unsafe { (&raw const self.attrs[0].data).read_volatile() } as u32)
    }
}

/// The result of a call, for a program that expects a pointer: null with `errno`.
pub(super) fn pointer<T>(work: impl FnOnce() -> Result<*mut T, c_int>) -> *mut T {
    match ours(|| Some(work())).unwrap_or(Err(libc::EIO)) {
        Ok(made) => made,
        Err(errno) => {
            nix::errno::Errno::from_raw(errno).set();
            null_mut()
        }
    }
}

/// The same, for one that expects 0 or an error number.
pub(super) fn code(work: impl FnOnce() -> Result<(), c_int>) -> c_int {
    ours(|| Some(work())).unwrap_or(Err(libc::EIO)).err().unwrap_or(0)
}

/// The value at `at`.
///
/// # Safety
/// Null, or a live `T` that nobody changes meanwhile.
pub(super) unsafe fn get<'a, T>(at: *const T) -> Result<&'a T, c_int> {
    // SAFETY: as the caller says.
    unsafe { at.as_ref() }.ok_or(libc::EINVAL)
}

/// A function of libibverbs for drivers, which takes an object and answers with an error number.
///
/// # Safety
/// `F` is its type.
pub(super) unsafe fn of_libibverbs<F: Copy>(name: &CStr) -> Result<F, c_int> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let library = c"libibverbs.so.1".as_ptr();
    // SAFETY: a name that ends.
    let library = unsafe { libc::dlopen(library, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return Err(libc::ENOSYS);
    }
    // SAFETY: a library that is loaded, and a name that ends.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the handle from above; whoever has a context has the library loaded.
    unsafe { libc::dlclose(library) };
    if found.is_null() {
        return Err(libc::ENOSYS);
    }
    // SAFETY: as the caller says; of the size of a pointer.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn a_call_has_the_kernels_layout() {
        assert_eq!((offset_of!(Message, attrs), size_of::<Attr>()), (HEADER_BYTES, 16));
        assert_eq!(offset_of!(Message, driver), 16);
    }
}
