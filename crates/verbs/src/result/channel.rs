//! Completion channels. Reading waits unless the descriptor is non-blocking; one that is and has
//! nothing to read is `EAGAIN`.

use super::{CallError, check, object};
use crate::sys::{self, Api};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// A channel that CQs report to.
///
/// # Safety
/// `context` is live.
pub unsafe fn create_comp_channel(
    api: &Api,
    context: NonNull<sys::ibv_context>,
) -> Result<NonNull<sys::ibv_comp_channel>, CallError> {
    // SAFETY: forwarded to the caller.
    let channel = unsafe { (api.ibv_create_comp_channel)(context.as_ptr()) };
    object("ibv_create_comp_channel", channel)
}

/// Destroys a channel.
///
/// # Safety
/// `channel` is live, and not used after a success.
pub unsafe fn destroy_comp_channel(
    api: &Api,
    channel: NonNull<sys::ibv_comp_channel>,
) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    let code = unsafe { (api.ibv_destroy_comp_channel)(channel.as_ptr()) };
    check("ibv_destroy_comp_channel", code)
}

/// The next event: its CQ and what was given as `user` to [`create_cq`](super::create_cq).
///
/// # Safety
/// `channel` is live. The CQ must be acknowledged with [`ack_cq_events`].
pub unsafe fn get_cq_event(
    api: &Api,
    channel: NonNull<sys::ibv_comp_channel>,
) -> Result<(NonNull<sys::ibv_cq>, *mut c_void), CallError> {
    let (mut cq, mut user) = (null_mut(), null_mut());
    // SAFETY: forwarded to the caller; two live locals.
    let code = unsafe { (api.ibv_get_cq_event)(channel.as_ptr(), &mut cq, &mut user) };
    check("ibv_get_cq_event", code)?;
    Ok((object("ibv_get_cq_event", cq)?, user))
}

/// Acknowledges `count` events.
///
/// # Safety
/// `cq` came with as many events that were not acknowledged.
pub unsafe fn ack_cq_events(api: &Api, cq: NonNull<sys::ibv_cq>, count: u32) {
    // SAFETY: forwarded to the caller.
    unsafe { (api.ibv_ack_cq_events)(cq.as_ptr(), count) }
}

/// How many completions, or after how long, make one event.
///
/// # Safety
/// `cq` is live.
pub unsafe fn moderate_cq(
    cq: NonNull<sys::ibv_cq>,
    count: u16,
    micros: u16,
) -> Result<(), CallError> {
    let mut attr: sys::ibv_modify_cq_attr = sys::zeroed();
    attr.attr_mask = sys::IBV_CQ_ATTR_MODERATE;
    attr.moderate = sys::ibv_moderate_cq { cq_count: count, cq_period: micros };
    // SAFETY: forwarded to the caller; the attributes are a live local.
    check("ibv_modify_cq", unsafe { sys::ibv_modify_cq(cq.as_ptr(), &mut attr) })
}

/// Asks for an event at the next completion, or the next solicited one.
///
/// # Safety
/// `cq` is live.
pub unsafe fn req_notify_cq(
    cq: NonNull<sys::ibv_cq>,
    solicited_only: bool,
) -> Result<(), CallError> {
    // SAFETY: forwarded to the caller.
    let code = unsafe { sys::ibv_req_notify_cq(cq.as_ptr(), solicited_only.into()) };
    check("ibv_req_notify_cq", code)
}
