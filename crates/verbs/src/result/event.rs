//! Asynchronous events. Reading waits unless the descriptor is non-blocking; one that is and has
//! nothing to read is `EAGAIN`.

use super::{CallError, check};
use crate::sys::{self, Api};
use std::ptr::NonNull;

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
