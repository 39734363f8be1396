//! Calls of libibverbs by functions that a vendor's library would have, and what these share.
//!
//! CQs and QPs are made by libibverbs and its driver, so that they are whole for both: for their state, their
//! events and their end. Only what the driver says about their memory is replaced on the way to the device. The
//! driver's own rings, as small as they get, stay unused.

use super::objects::VerbsContext;
use crate::hooks::ours;
use crate::{bells, process};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use warpverbs_uverbs::schema::UHW_IN;

/// A method that makes an object, of any kind.
const CREATE: u16 = 0;
/// Attribute of a CQ's entries.
const ENTRIES: u16 = 1;

/// The memory of a new object, as the device is told in place of what the driver says.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The kind of object.
    pub(super) object: u16,
    /// The driver's part of the request: address and bytes.
    pub(super) request: (u64, u16),
    /// Entries of a CQ.
    pub(super) entries: Option<u32>,
}

thread_local! {
    /// Of the object that this thread is making.
    static PLACE: Cell<Option<Place>> = const { Cell::new(None) };
}

/// Has `make` make an object at this place: by one call of libibverbs on this thread.
pub(super) fn at<T>(place: Place, make: impl FnOnce() -> T) -> T {
    PLACE.set(Some(place));
    let made = make();
    PLACE.set(None);
    made
}

/// `struct ib_uverbs_ioctl_hdr`.
#[repr(C)]
struct Header {
    length: u16,
    object: u16,
    method: u16,
    count: u16,
    reserved: u64,
    driver: u32,
    reserved2: u32,
}

/// `struct ib_uverbs_attr`.
#[repr(C)]
struct Attr {
    id: u16,
    len: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

/// Has `ask` answer a call of the kernel's interface, with the place of the object in it that this thread is
/// making. Afterwards the call is as it was.
///
/// # Safety
/// `call` is what a program gives to the `ioctl` of the interface.
pub(crate) unsafe fn placed<T>(call: *mut c_void, ask: impl FnOnce() -> T) -> T {
    let Some(place) = PLACE.try_with(Cell::get).ok().flatten() else { return ask() };
    // SAFETY: as the caller says; a function of this module is making an object by libibverbs.
    let header = unsafe { &*call.cast::<Header>() };
    if (header.object, header.method) != (place.object, CREATE) {
        return ask();
    }
    let (first, count) = (call.wrapping_byte_add(size_of::<Header>()), header.count.into());
    let attrs = || {
        // SAFETY: the attributes that the header announces, which nobody else uses until the call returns.
        unsafe { std::slice::from_raw_parts_mut(first.cast::<Attr>(), count) }
    };
    let mut before = Vec::new();
    for (i, attr) in attrs().iter_mut().enumerate() {
        let new = match (attr.id, place.entries) {
            (UHW_IN, _) => (place.request.1, place.request.0),
            (ENTRIES, Some(entries)) => (attr.len, entries.into()),
            _ => continue,
        };
        before.push((i, attr.len, attr.data));
        (attr.len, attr.data) = new;
    }
    let answered = ask();
    for (i, len, data) in before {
        let attr = &mut attrs()[i];
        (attr.len, attr.data) = (len, data);
    }
    answered
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

/// Writes an answer.
///
/// # Safety
/// `out` is null, or has room for a `T`.
pub(super) unsafe fn put<T>(out: *mut T, value: T) -> Result<(), c_int> {
    if out.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller says.
    unsafe { out.write(value) };
    Ok(())
}

/// Where the driver has mapped the doorbell page of an open device.
pub(super) fn page_of(context: &VerbsContext) -> Result<u64, c_int> {
    let inode = process::status(context.fd).ok_or(libc::EBADF)?.st_ino;
    process::mapping_of(inode, bells::OFFSET).map(|page| page as u64).ok_or(libc::EINVAL)
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

    #[repr(C)]
    struct Message {
        header: Header,
        attrs: [Attr; 3],
    }

    #[test]
    fn the_place_of_an_object_is_told_and_the_call_is_as_before() {
        let attr = |id, len, data| Attr { id, len, flags: 1, reserved: 0, data };
        let mut message = Message {
            header: Header {
                length: 72,
                object: 3,
                method: CREATE,
                count: 3,
                reserved: 0,
                driver: 6,
                reserved2: 0,
            },
            attrs: [attr(0, 0, 0), attr(ENTRIES, 4, 63), attr(UHW_IN, 16, 0x7000)],
        };
        let call: *mut Message = &mut message;
        let seen = || {
            // SAFETY: a live value.
            let attrs = unsafe { &(*call).attrs };
            [1, 2].map(|i: usize| (attrs[i].len, attrs[i].data))
        };
        // SAFETY: a call with its attributes.
        let ask = || unsafe { placed(call.cast(), seen) };
        let before = [(4, 63), (16, 0x7000)];
        let place = |object| Place { object, request: (0x9000, 24), entries: Some(128) };
        assert_eq!(ask(), before, "nothing is being made");
        assert_eq!(at(place(4), ask), before, "another kind");
        assert_eq!(at(place(3), ask), [(4, 128), (24, 0x9000)]);
        assert_eq!((seen(), ask()), (before, before));
    }
}
