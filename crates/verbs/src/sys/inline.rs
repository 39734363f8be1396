//! Functions that the header defines inline: those of an open device's table, and of its extension.
//!
//! Providers fill `ibv_context.ops`. A provider of the last decade also places its context inside a
//! `verbs_context`, whose fields grow towards lower addresses; `sz` tells how far down they reach.

use super::api::Api;
use super::bindings::*;
use libc::{EINVAL, ENOSYS, EOPNOTSUPP};
use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::null;

/// `IBV_ACCESS_OPTIONAL_RANGE`: flags that a kernel which does not know them may leave out.
pub const IBV_ACCESS_OPTIONAL_RANGE: u32 =
    ((IB_UVERBS_ACCESS_OPTIONAL_LAST << 1) - 1) & !(IB_UVERBS_ACCESS_OPTIONAL_FIRST - 1);

/// The function `$op` of the extension of `$context`, if the provider has it (`verbs_get_ctx_op`).
macro_rules! extension_op {
    ($context:expr, $op:ident) => {{
        let offset = std::mem::offset_of!($crate::sys::verbs_context, $op);
        // SAFETY: a live context, says the caller of the function that uses this; the offset is
        // that of the field whose type the last argument tells.
        unsafe {
            $crate::sys::extension_field($context, offset, |whole: &$crate::sys::verbs_context| {
                &whole.$op
            })
        }
        .flatten()
    }};
}
pub(crate) use extension_op;

/// A field of the extension around `context`, if the provider's extension reaches down to it.
///
/// # Safety
/// `context` is live, `offset` that of the field that `_kind` names.
pub unsafe fn extension_field<T: Copy>(
    context: *mut ibv_context,
    offset: usize,
    _kind: fn(&verbs_context) -> &T,
) -> Option<T> {
    // SAFETY: live, says the caller.
    let abi = unsafe { (*context).abi_compat };
    if abi as usize != usize::MAX {
        return None;
    }
    // Not by way of a pointer to the whole, whose first fields may not be there.
    let at = |offset: usize| {
        context.cast::<u8>().wrapping_sub(offset_of!(verbs_context, context) - offset)
    };
    // SAFETY: `abi_compat` says that the context is the last field of a `verbs_context`, and `sz`
    // stands immediately before it in every version.
    let size = unsafe { at(offset_of!(verbs_context, sz)).cast::<usize>().read() };
    // SAFETY: the extension has this many bytes, so it reaches down to the field.
    (size >= size_of::<verbs_context>() - offset).then(|| unsafe { at(offset).cast::<T>().read() })
}

/// Port attributes, all of them where the provider knows them.
///
/// # Safety
/// `context` is live, `attr` writable.
pub unsafe fn ibv_query_port_ex(
    api: &Api,
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    if let Some(op) = extension_op!(context, query_port) {
        // SAFETY: forwarded to the caller.
        return unsafe { op(context, port, attr, size_of::<ibv_port_attr>()) };
    }
    // SAFETY: writable, says the caller.
    unsafe { attr.write_bytes(0, 1) };
    // SAFETY: forwarded; the old structure is a prefix of the new one.
    unsafe { (api.ibv_query_port)(context, port, attr.cast()) }
}

/// Device attributes; only the classic ones where the provider knows no more.
///
/// # Safety
/// `context` is live, `attr` writable.
pub unsafe fn ibv_query_device_ex(
    api: &Api,
    context: *mut ibv_context,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    if let Some(op) = extension_op!(context, query_device_ex) {
        // SAFETY: forwarded to the caller; a null input means "nothing beyond".
        let code = unsafe { op(context, null(), attr, size_of::<ibv_device_attr_ex>()) };
        if code != EOPNOTSUPP && code != ENOSYS {
            return code;
        }
    }
    // SAFETY: writable, says the caller.
    unsafe { attr.write_bytes(0, 1) };
    // SAFETY: forwarded to the caller; the classic attributes are its first field.
    unsafe { (api.ibv_query_device)(context, attr.cast()) }
}

/// Registers `[addr, addr + len)` under the addresses from `iova`.
///
/// # Safety
/// As `ibv_reg_mr`.
pub unsafe fn ibv_reg_mr_any(
    api: &Api,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    access: u32,
) -> *mut ibv_mr {
    match api.ibv_reg_mr_iova2 {
        Some(reg) if access & IBV_ACCESS_OPTIONAL_RANGE != 0 => {
            // SAFETY: forwarded to the caller.
            unsafe { reg(pd, addr, len, addr as u64, access) }
        }
        // An older library does not know the optional flags, which may be left out.
        _ => {
            let access = access & !IBV_ACCESS_OPTIONAL_RANGE;
            // SAFETY: forwarded to the caller.
            unsafe { (api.ibv_reg_mr)(pd, addr, len, access as c_int) }
        }
    }
}

/// Changes a CQ's moderation.
///
/// # Safety
/// `cq` is live, `attr` readable.
pub unsafe fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: live, says the caller.
    let context = unsafe { (*cq).context };
    match extension_op!(context, modify_cq) {
        // SAFETY: forwarded to the caller.
        Some(op) => unsafe { op(cq, attr) },
        None => EOPNOTSUPP,
    }
}

/// A function of the device's table, read through the object as the header does; a missing one is
/// `EINVAL`, where C code would crash.
macro_rules! context_op {
    ($object:expr, $op:ident) => {{
        // SAFETY: a live object, says the caller of the function that uses this.
        let context = unsafe { (*$object).context };
        // SAFETY: an object's context is live while the object is.
        unsafe { (*context).ops.$op }
    }};
}

/// Posts a list of sends.
///
/// # Safety
/// `qp` is live; `wr` begins a list of live requests whose entries are readable.
#[inline]
pub unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    match context_op!(qp, post_send) {
        // SAFETY: forwarded to the caller.
        Some(op) => unsafe { op(qp, wr, bad) },
        None => EINVAL,
    }
}

/// Posts a list of receives.
///
/// # Safety
/// As [`ibv_post_send`].
#[inline]
pub unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    match context_op!(qp, post_recv) {
        // SAFETY: forwarded to the caller.
        Some(op) => unsafe { op(qp, wr, bad) },
        None => EINVAL,
    }
}

/// Posts a list of receives to a shared queue.
///
/// # Safety
/// As [`ibv_post_send`].
#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    match context_op!(srq, post_srq_recv) {
        // SAFETY: forwarded to the caller.
        Some(op) => unsafe { op(srq, wr, bad) },
        None => EINVAL,
    }
}

/// Takes up to `count` completions; below zero is an error.
///
/// # Safety
/// `cq` is live, `wc` has room for `count`.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    match context_op!(cq, poll_cq) {
        // SAFETY: forwarded to the caller.
        Some(op) => unsafe { op(cq, count, wc) },
        None => -EINVAL,
    }
}

/// Asks for an event at the next completion.
///
/// # Safety
/// `cq` is live.
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    match context_op!(cq, req_notify_cq) {
        // SAFETY: forwarded to the caller.
        Some(op) => unsafe { op(cq, solicited_only) },
        None => EINVAL,
    }
}
