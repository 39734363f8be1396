//! Completion channels and asynchronous events. Reading blocks unless the descriptor does not;
//! an empty one that does not is `EAGAIN`.

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

/// The next asynchronous event.
///
/// # Safety
/// `context` is live. The event must be acknowledged with [`ack_async_event`].
pub unsafe fn get_async_event(
    api: &Api,
    context: NonNull<sys::ibv_context>,
) -> Result<sys::ibv_async_event, CallError> {
    let mut event = sys::zeroed();
    // SAFETY: forwarded to the caller; a live local.
    let code = unsafe { (api.ibv_get_async_event)(context.as_ptr(), &mut event) };
    check("ibv_get_async_event", code).map(|()| event)
}

/// Acknowledges an event; the object it names may be destroyed from then on.
///
/// # Safety
/// `event` is of [`get_async_event`], acknowledged once.
pub unsafe fn ack_async_event(api: &Api, event: &mut sys::ibv_async_event) {
    // SAFETY: forwarded to the caller.
    unsafe { (api.ibv_ack_async_event)(event) }
}
