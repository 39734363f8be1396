//! Devices before they are opened.

use super::{Context, Verbs, VerbsError};
use crate::call::object;
use crate::sys;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// The library's list, given back when the last of its devices is dropped.
struct List {
    verbs: Verbs,
    first: NonNull<*mut sys::ibv_device>,
}

// SAFETY: a list and its devices are not changed after they were made.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: each device of the list holds it, so none is in use any more.
        unsafe { (self.verbs.api().ibv_free_device_list)(self.first.as_ptr()) }
    }
}

/// The kind of transport that a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// InfiniBand or RoCE.
    Infiniband,
    /// iWARP.
    Iwarp,
    /// None of the standard ones, as EFA.
    Unspecified,
    /// A value that this crate does not know.
    Unknown(i32),
}

/// An RDMA device.
#[derive(Clone)]
pub struct Device {
    list: Arc<List>,
    ptr: NonNull<sys::ibv_device>,
    name: String,
}

// SAFETY: libibverbs allows the use of a device from any thread; ours is only read.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name)
    }
}

pub(super) fn list(verbs: Verbs) -> Result<Vec<Device>, VerbsError> {
    let mut count = 0;
    // SAFETY: the pointer is to a live local.
    let first = unsafe { (verbs.api().ibv_get_device_list)(&mut count) };
    let first = object("ibv_get_device_list", first)?;
    let count = usize::try_from(count).unwrap_or(0);
    let list = Arc::new(List { verbs, first });
    let mut devices = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: the list has `count` entries.
        let entry = unsafe { first.add(at) };
        // SAFETY: as above.
        let Some(ptr) = NonNull::new(unsafe { entry.read() }) else { break };
        // SAFETY: a device of a live list; the name lives as long.
        let name = unsafe { (verbs.api().ibv_get_device_name)(ptr.as_ptr()) };
        // SAFETY: a string of the device's, which the list keeps.
        let name = unsafe { text(name) };
        devices.push(Device { list: list.clone(), ptr, name });
    }
    Ok(devices)
}

/// # Safety
/// `text` is null or a string that lives during the call.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a live string, says the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Device {
    /// Its name, `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The library it comes from.
    pub fn verbs(&self) -> Verbs {
        self.list.verbs
    }

    /// Its globally unique identifier.
    pub fn guid(&self) -> u64 {
        // SAFETY: a device of a live list.
        u64::from_be(unsafe { (self.verbs().api().ibv_get_device_guid)(self.ptr.as_ptr()) })
    }

    /// Its kind of transport.
    pub fn transport(&self) -> Transport {
        // SAFETY: a device of a live list.
        match unsafe { self.ptr.as_ref() }.transport_type {
            sys::IBV_TRANSPORT_IB => Transport::Infiniband,
            sys::IBV_TRANSPORT_IWARP => Transport::Iwarp,
            sys::IBV_TRANSPORT_UNSPECIFIED => Transport::Unspecified,
            other => Transport::Unknown(other),
        }
    }

    /// Name of its node in `/dev/infiniband`, `uverbs0`.
    pub fn node(&self) -> String {
        // SAFETY: a device of a live list.
        let name = unsafe { self.ptr.as_ref() }.dev_name;
        // SAFETY: a live array that ends with 0.
        unsafe { text(name.as_ptr()) }
    }

    /// Its folder in sysfs, `/sys/class/infiniband/mlx5_0`.
    pub fn sysfs(&self) -> String {
        // SAFETY: a device of a live list.
        let path = unsafe { self.ptr.as_ref() }.ibdev_path;
        // SAFETY: a live array that ends with 0.
        unsafe { text(path.as_ptr()) }
    }

    /// Opens it.
    pub fn open(&self) -> Result<Context, VerbsError> {
        Context::open(self)
    }

    pub(crate) fn ptr(&self) -> NonNull<sys::ibv_device> {
        self.ptr
    }
}
