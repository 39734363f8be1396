//! Events of objects that firmware commands made.

use super::devx::{Devx, LIBRARY};
use super::error::Mlx5Error;
use super::object::Object;
use super::sys::{mlx5dv_devx_async_event_hdr, mlx5dv_devx_event_channel};
use crate::call::{check, object};
use crate::{CallError, LoadError, set_nonblocking};
use nix::errno::Errno;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

/// Bytes of an event of firmware, and its kind's place.
const EQE: usize = 64;
const EQE_KIND: usize = 1;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlx5Event {
    /// The subscriber's name for the object.
    pub cookie: u64,
    /// The firmware's number of the kind: 0x14 for the limit of a receive memory pool, and so on.
    pub kind: u8,
}

/// The result of a read: the header, and the event behind it.
#[repr(C, align(8))]
struct Message {
    header: mlx5dv_devx_async_event_hdr,
    eqe: [u8; EQE],
}

/// A descriptor from which the events of objects are read.
pub struct EventChannel {
    ptr: NonNull<mlx5dv_devx_event_channel>,
    devx: Devx,
}

// SAFETY: libmlx5 allows the use of a channel from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: as above, at the same time too: a subscription is one ioctl, and taking an event one read.
unsafe impl Sync for EventChannel {}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventChannel({:?})", self.devx)
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        if let Some(destroy) = self.devx.api().mlx5dv_devx_destroy_event_channel {
            // SAFETY: created, and given back once, here.
            unsafe { destroy(self.ptr.as_ptr()) }
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel.
        let fd = unsafe { self.ptr.as_ref() }.fd;
        // SAFETY: the channel's descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

/// libmlx5 is older than event channels.
fn missing(function: &'static str) -> Mlx5Error {
    let file = LIBRARY.to_owned();
    Mlx5Error::Load(LoadError::TooOld { file, symbol: function, version: "MLX5_1.11", needed: 25 })
}

impl EventChannel {
    /// Without subscriptions; reads do not wait.
    pub fn new(devx: &Devx) -> Result<Self, Mlx5Error> {
        let name = "mlx5dv_devx_create_event_channel";
        let create = devx.api().mlx5dv_devx_create_event_channel.ok_or_else(|| missing(name))?;
        // SAFETY: a live context.
        let ptr = unsafe { create(devx.context().ptr().as_ptr(), 0) };
        let channel = Self { ptr: object(name, ptr)?, devx: devx.clone() };
        set_nonblocking(channel.as_fd())?;
        Ok(channel)
    }

    /// From now on, events of these kinds of `object` are read here, with `cookie`. There are none
    /// after the object.
    pub fn subscribe(&self, object: &Object, kinds: &[u16], cookie: u64) -> Result<(), Mlx5Error> {
        let name = "mlx5dv_devx_subscribe_devx_event";
        let subscribe = self.devx.api().mlx5dv_devx_subscribe_devx_event;
        let subscribe = subscribe.ok_or_else(|| missing(name))?;
        let (channel, object) = (self.ptr.as_ptr(), object.ptr().as_ptr());
        let mut kinds = kinds.to_vec();
        let bytes = size_of_val(&*kinds) as u16;
        // SAFETY: a live channel and object of one context, and as many bytes as are said.
        let code = unsafe { subscribe(channel, object, bytes, kinds.as_mut_ptr(), cookie) };
        Ok(check(name, code)?)
    }

    /// Takes an event, if there is one.
    pub fn take(&self) -> Result<Option<Mlx5Event>, Mlx5Error> {
        let name = "mlx5dv_devx_get_event";
        let get = self.devx.api().mlx5dv_devx_get_event.ok_or_else(|| missing(name))?;
        let header = mlx5dv_devx_async_event_hdr { cookie: 0 };
        let mut message = Message { header, eqe: [0; EQE] };
        let at = (&raw mut message).cast();
        // SAFETY: a live channel, and room for as many bytes as are said.
        let read = unsafe { get(self.ptr.as_ptr(), at, size_of::<Message>()) };
        if read >= 0 {
            let (cookie, kind) = (message.header.cookie, message.eqe[EQE_KIND]);
            return Ok(Some(Mlx5Event { cookie, kind }));
        }
        match Errno::last() {
            Errno::EAGAIN | Errno::EINTR => Ok(None),
            errno => Err(CallError { call: name, errno }.into()),
        }
    }
}
