//! CQs, QPs and SRQs: making, changing, posting, polling.

use super::{CallError, check, object};
use crate::sys::{self, Api};
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

/// A CQ of at least `entries` entries; `user` comes back with its events.
///
/// # Safety
/// `context` is live, `channel` null or live and of the same context.
pub unsafe fn create_cq(
    api: &Api,
    context: NonNull<sys::ibv_context>,
    entries: c_int,
    user: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    vector: c_int,
) -> Result<NonNull<sys::ibv_cq>, CallError> {
    // SAFETY: forwarded to the caller.
    let cq = unsafe { (api.ibv_create_cq)(context.as_ptr(), entries, user, channel, vector) };
    object("ibv_create_cq", cq)
}

/// Gives a CQ another size.
///
/// # Safety
/// `cq` is live.
pub unsafe fn resize_cq(
    api: &Api,
    cq: NonNull<sys::ibv_cq>,
    entries: c_int,
) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_resize_cq", unsafe { (api.ibv_resize_cq)(cq.as_ptr(), entries) })
}

/// Destroys a CQ. Waits until all its events were acknowledged.
///
/// # Safety
/// `cq` is live and not used after a success.
pub unsafe fn destroy_cq(api: &Api, cq: NonNull<sys::ibv_cq>) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_destroy_cq", unsafe { (api.ibv_destroy_cq)(cq.as_ptr()) })
}

/// Takes completions into `out`; how many there were.
///
/// # Safety
/// `cq` is live.
#[inline]
pub unsafe fn poll_cq(
    cq: NonNull<sys::ibv_cq>,
    out: &mut [sys::ibv_wc],
) -> Result<usize, CallError> {
    let room = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
    // SAFETY: forwarded to the caller; `out` has room.
    let found = unsafe { sys::ibv_poll_cq(cq.as_ptr(), room, out.as_mut_ptr()) };
    // Below zero are codes of the provider's own, not error numbers.
    usize::try_from(found).map_err(|_| CallError { call: "ibv_poll_cq", errno: Errno::EIO })
}

/// A QP; `attr` then tells what it has room for.
///
/// # Safety
/// `pd` and the objects in `attr` are live and of one context.
pub unsafe fn create_qp(
    api: &Api,
    pd: NonNull<sys::ibv_pd>,
    attr: &mut sys::ibv_qp_init_attr,
) -> Result<NonNull<sys::ibv_qp>, CallError> {
    // SAFETY: forwarded to the caller.
    object("ibv_create_qp", unsafe { (api.ibv_create_qp)(pd.as_ptr(), attr) })
}

/// Sets the attributes named by `mask`.
///
/// # Safety
/// `qp` is live.
pub unsafe fn modify_qp(
    api: &Api,
    qp: NonNull<sys::ibv_qp>,
    attr: &mut sys::ibv_qp_attr,
    mask: u32,
) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_modify_qp", unsafe { (api.ibv_modify_qp)(qp.as_ptr(), attr, mask as c_int) })
}

/// The attributes named by `mask`, at least.
///
/// # Safety
/// `qp` is live.
pub unsafe fn query_qp(
    api: &Api,
    qp: NonNull<sys::ibv_qp>,
    mask: u32,
) -> Result<(sys::ibv_qp_attr, sys::ibv_qp_init_attr), CallError> {
    let (mut attr, mut init) = (sys::zeroed(), sys::zeroed());
    // SAFETY: forwarded to the caller; two live locals.
    let code = unsafe { (api.ibv_query_qp)(qp.as_ptr(), &mut attr, mask as c_int, &mut init) };
    check("ibv_query_qp", code).map(|()| (attr, init))
}

/// Destroys a QP. Waits until all its events were acknowledged.
///
/// # Safety
/// `qp` is live and not used after a success.
pub unsafe fn destroy_qp(api: &Api, qp: NonNull<sys::ibv_qp>) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_destroy_qp", unsafe { (api.ibv_destroy_qp)(qp.as_ptr()) })
}

/// Posts a list of sends. On failure, also the first request that was not posted.
///
/// # Safety
/// `qp` is live; `first` begins a list of live requests with live entries.
#[inline]
pub unsafe fn post_send(
    qp: NonNull<sys::ibv_qp>,
    first: *mut sys::ibv_send_wr,
) -> Result<(), (CallError, *mut sys::ibv_send_wr)> {
    let mut bad = null_mut();
    // SAFETY: forwarded to the caller.
    let code = unsafe { sys::ibv_post_send(qp.as_ptr(), first, &mut bad) };
    check("ibv_post_send", code).map_err(|error| (error, bad))
}

/// Posts a list of receives. On failure, also the first request that was not posted.
///
/// # Safety
/// As [`post_send`].
#[inline]
pub unsafe fn post_recv(
    qp: NonNull<sys::ibv_qp>,
    first: *mut sys::ibv_recv_wr,
) -> Result<(), (CallError, *mut sys::ibv_recv_wr)> {
    let mut bad = null_mut();
    // SAFETY: forwarded to the caller.
    let code = unsafe { sys::ibv_post_recv(qp.as_ptr(), first, &mut bad) };
    check("ibv_post_recv", code).map_err(|error| (error, bad))
}

/// As [`post_recv`], to a shared queue.
///
/// # Safety
/// As [`post_send`].
#[inline]
pub unsafe fn post_srq_recv(
    srq: NonNull<sys::ibv_srq>,
    first: *mut sys::ibv_recv_wr,
) -> Result<(), (CallError, *mut sys::ibv_recv_wr)> {
    let mut bad = null_mut();
    // SAFETY: forwarded to the caller.
    let code = unsafe { sys::ibv_post_srq_recv(srq.as_ptr(), first, &mut bad) };
    check("ibv_post_srq_recv", code).map_err(|error| (error, bad))
}

/// A shared receive queue; `attr` then tells what it has room for.
///
/// # Safety
/// `pd` is live.
pub unsafe fn create_srq(
    api: &Api,
    pd: NonNull<sys::ibv_pd>,
    attr: &mut sys::ibv_srq_init_attr,
) -> Result<NonNull<sys::ibv_srq>, CallError> {
    // SAFETY: forwarded to the caller.
    object("ibv_create_srq", unsafe { (api.ibv_create_srq)(pd.as_ptr(), attr) })
}

/// Sets the attributes named by `mask`.
///
/// # Safety
/// `srq` is live.
pub unsafe fn modify_srq(
    api: &Api,
    srq: NonNull<sys::ibv_srq>,
    attr: &mut sys::ibv_srq_attr,
    mask: u32,
) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_modify_srq", unsafe { (api.ibv_modify_srq)(srq.as_ptr(), attr, mask as c_int) })
}

/// A shared queue's attributes.
///
/// # Safety
/// `srq` is live.
pub unsafe fn query_srq(
    api: &Api,
    srq: NonNull<sys::ibv_srq>,
) -> Result<sys::ibv_srq_attr, CallError> {
    let mut attr = sys::zeroed();
    // SAFETY: forwarded to the caller; a live local.
    check("ibv_query_srq", unsafe { (api.ibv_query_srq)(srq.as_ptr(), &mut attr) })?;
    Ok(attr)
}

/// Destroys a shared queue.
///
/// # Safety
/// `srq` is live and not used after a success.
pub unsafe fn destroy_srq(api: &Api, srq: NonNull<sys::ibv_srq>) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    check("ibv_destroy_srq", unsafe { (api.ibv_destroy_srq)(srq.as_ptr()) })
}
