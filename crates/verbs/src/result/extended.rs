//! Extended CQs and QPs: polling and posting in steps.

use super::{CallError, check, object};
use crate::sys::{self, Api};
use nix::errno::Errno;
use std::ffi::c_int;
use std::ptr::NonNull;

/// A CQ with extended attributes.
///
/// # Safety
/// `context` is live, and so are the pointers in `attr`.
pub unsafe fn create_cq_ex(
    context: NonNull<sys::ibv_context>,
    attr: &mut sys::ibv_cq_init_attr_ex,
) -> Result<NonNull<sys::ibv_cq_ex>, CallError> {
    // SAFETY: forwarded to the caller.
    object("ibv_create_cq_ex", unsafe { sys::ibv_create_cq_ex(context.as_ptr(), attr) })
}

/// A QP with extended attributes.
///
/// # Safety
/// `context` and the objects in `attr` are live.
pub unsafe fn create_qp_ex(
    api: &Api,
    context: NonNull<sys::ibv_context>,
    attr: &mut sys::ibv_qp_init_attr_ex,
) -> Result<NonNull<sys::ibv_qp>, CallError> {
    // SAFETY: forwarded to the caller.
    object("ibv_create_qp_ex", unsafe { sys::ibv_create_qp_ex(api, context.as_ptr(), attr) })
}

/// The extended view of a QP that was made with operations for it.
///
/// # Safety
/// `qp` is live.
pub unsafe fn qp_to_qp_ex(
    api: &Api,
    qp: NonNull<sys::ibv_qp>,
) -> Result<NonNull<sys::ibv_qp_ex>, CallError> {
    const CALL: &str = "ibv_qp_to_qp_ex";
    let convert = api.ibv_qp_to_qp_ex.ok_or(CallError::absent(CALL))?;
    // SAFETY: forwarded to the caller.
    NonNull::new(unsafe { convert(qp.as_ptr()) }).ok_or(CallError::absent(CALL))
}

/// Begins to poll; whether there is a completion. If so, [`end_poll`] is due.
///
/// # Safety
/// `cq` is live and not being polled by this thread.
#[inline]
pub unsafe fn start_poll(cq: NonNull<sys::ibv_cq_ex>) -> Result<bool, CallError> {
    let mut attr: sys::ibv_poll_cq_attr = sys::zeroed();
    // SAFETY: forwarded to the caller; the attributes are a live local.
    found("ibv_start_poll", unsafe { sys::ibv_start_poll(cq.as_ptr(), &mut attr) })
}

/// Goes to the next completion; whether there is one.
///
/// # Safety
/// After [`start_poll`] found one and before [`end_poll`].
#[inline]
pub unsafe fn next_poll(cq: NonNull<sys::ibv_cq_ex>) -> Result<bool, CallError> {
    // SAFETY: forwarded to the caller.
    found("ibv_next_poll", unsafe { sys::ibv_next_poll(cq.as_ptr()) })
}

#[inline]
fn found(call: &'static str, code: c_int) -> Result<bool, CallError> {
    match check(call, code) {
        Err(CallError { errno: Errno::ENOENT, .. }) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// Ends what [`start_poll`] began.
///
/// # Safety
/// Once after it found something, on the same thread.
#[inline]
pub unsafe fn end_poll(cq: NonNull<sys::ibv_cq_ex>) {
    // SAFETY: forwarded to the caller.
    unsafe { sys::ibv_end_poll(cq.as_ptr()) }
}

/// Posts a batch of work requests, or nothing of it.
///
/// # Safety
/// Once after `ibv_wr_start`, on the same thread.
#[inline]
pub unsafe fn wr_complete(qp: NonNull<sys::ibv_qp_ex>) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_wr_complete", unsafe { sys::ibv_wr_complete(qp.as_ptr()) })
}
