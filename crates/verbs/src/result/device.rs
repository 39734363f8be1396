//! Devices, contexts, and what can be asked of them.

use super::{CallError, check, object};
use crate::sys::{self, Api};
use nix::errno::Errno;
use std::ptr::NonNull;

/// The devices there are: an array of the library's, and its length.
pub fn get_device_list(api: &Api) -> Result<(NonNull<*mut sys::ibv_device>, usize), CallError> {
    let mut count = 0;
    // SAFETY: the pointer is to a live local.
    let list = unsafe { (api.ibv_get_device_list)(&mut count) };
    let list = object("ibv_get_device_list", list)?;
    Ok((list, usize::try_from(count).unwrap_or(0)))
}

/// Gives the array back; devices that are open stay.
///
/// # Safety
/// `list` is of [`get_device_list`], given back once, and none of its devices is used after.
pub unsafe fn free_device_list(api: &Api, list: NonNull<*mut sys::ibv_device>) {
    // SAFETY: forwarded to the caller.
    unsafe { (api.ibv_free_device_list)(list.as_ptr()) }
}

/// Opens a device.
///
/// # Safety
/// `device` is of a list that was not given back.
pub unsafe fn open_device(
    api: &Api,
    device: NonNull<sys::ibv_device>,
) -> Result<NonNull<sys::ibv_context>, CallError> {
    // SAFETY: forwarded to the caller.
    let context = unsafe { (api.ibv_open_device)(device.as_ptr()) };
    object("ibv_open_device", context)
}

/// Closes a context.
///
/// # Safety
/// `context` is live, and nothing made from it is used after.
pub unsafe fn close_device(api: &Api, context: NonNull<sys::ibv_context>) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_close_device", unsafe { (api.ibv_close_device)(context.as_ptr()) })
}

/// The attributes of a device.
///
/// # Safety
/// `context` is live.
pub unsafe fn query_device(
    api: &Api,
    context: NonNull<sys::ibv_context>,
) -> Result<sys::ibv_device_attr_ex, CallError> {
    let mut attr = sys::zeroed();
    // SAFETY: a live context, says the caller, and a live local.
    let code = unsafe { sys::ibv_query_device_ex(api, context.as_ptr(), &mut attr) };
    check("ibv_query_device", code).map(|()| attr)
}

/// The state of port `port`, from 1.
///
/// # Safety
/// `context` is live.
pub unsafe fn query_port(
    api: &Api,
    context: NonNull<sys::ibv_context>,
    port: u8,
) -> Result<sys::ibv_port_attr, CallError> {
    let mut attr = sys::zeroed();
    // SAFETY: a live context, says the caller, and a live local.
    let code = unsafe { sys::ibv_query_port_ex(api, context.as_ptr(), port, &mut attr) };
    check("ibv_query_port", code).map(|()| attr)
}

/// Entry `index` of a port's GID table, without its type.
///
/// # Safety
/// `context` is live.
pub unsafe fn query_gid(
    api: &Api,
    context: NonNull<sys::ibv_context>,
    port: u8,
    index: i32,
) -> Result<sys::ibv_gid, CallError> {
    let mut gid = sys::zeroed();
    // SAFETY: a live context, says the caller, and a live local.
    let code = unsafe { (api.ibv_query_gid)(context.as_ptr(), port, index, &mut gid) };
    check("ibv_query_gid", code).map(|()| gid)
}

/// All entries in use of the GID tables of all ports, `max` at most, with their types. Needs
/// rdma-core 33.
///
/// # Safety
/// `context` is live.
pub unsafe fn query_gid_table(
    api: &Api,
    context: NonNull<sys::ibv_context>,
    max: usize,
) -> Result<Vec<sys::ibv_gid_entry>, CallError> {
    const CALL: &str = "ibv_query_gid_table";
    let query = api._ibv_query_gid_table.ok_or(CallError::absent(CALL))?;
    let mut entries = vec![sys::zeroed::<sys::ibv_gid_entry>(); max];
    let size = size_of::<sys::ibv_gid_entry>();
    // SAFETY: a live context, says the caller; room for `max` entries of `size` bytes.
    let found = unsafe { query(context.as_ptr(), entries.as_mut_ptr(), max, 0, size) };
    match usize::try_from(found) {
        Ok(found) => {
            entries.truncate(found);
            Ok(entries)
        }
        Err(_) => {
            Err(CallError { call: CALL, errno: Errno::from_raw(found.unsigned_abs() as i32) })
        }
    }
}

/// Entry `index` of a port's table of partition keys.
///
/// # Safety
/// `context` is live.
pub unsafe fn query_pkey(
    api: &Api,
    context: NonNull<sys::ibv_context>,
    port: u8,
    index: u16,
) -> Result<u16, CallError> {
    let mut pkey = 0;
    // SAFETY: a live context, says the caller, and a live local.
    let code = unsafe { (api.ibv_query_pkey)(context.as_ptr(), port, index.into(), &mut pkey) };
    check("ibv_query_pkey", code).map(|()| u16::from_be(pkey))
}
