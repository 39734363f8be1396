//! Completion queues.

use super::{Completion, Context, VerbsError, completion, error::in_range};
use crate::{CallError, result, sys};
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How a CQ is made.
#[derive(Clone, Debug)]
pub struct CqOptions {
    pub(super) entries: u32,
    /// Where it reports when it was armed, and by which interrupt.
    #[cfg(feature = "channels")]
    pub(super) events: Option<(super::CompChannel, u32)>,
}

impl CqOptions {
    /// At least `entries` entries.
    pub fn new(entries: u32) -> Self {
        Self {
            entries,
            #[cfg(feature = "channels")]
            events: None,
        }
    }
}

#[cfg(not(feature = "channels"))]
impl CqOptions {
    /// No channel, and the first interrupt.
    fn channel_and_vector(
        &self,
        _: &Context,
    ) -> Result<(*mut sys::ibv_comp_channel, c_int), VerbsError> {
        Ok((std::ptr::null_mut(), 0))
    }
}

/// A completion queue. Cloning shares it.
#[derive(Clone)]
pub struct Cq {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    #[cfg(feature = "channels")]
    channel: Option<super::CompChannel>,
    ptr: NonNull<sys::ibv_cq>,
    id: u32,
    /// Polled by its `ExtendedCq` alone.
    extended: bool,
}

// SAFETY: libibverbs allows the use of a CQ from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above, at the same time too: providers lock it.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the QPs that complete here held the CQ and are gone; events are acknowledged as
        // soon as they are read.
        if let Err(error) = unsafe { result::destroy_cq(self.context.api(), self.ptr) } {
            tracing::warn!(device = self.context.device().name(), %error, "CQ not destroyed");
        }
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cq({}, {} entries)", self.id(), self.capacity())
    }
}

/// Numbers for objects that have none of their own, unique in this process, from 1.
pub(super) fn next_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Cq {
    /// A CQ of at least `entries` entries, to be polled.
    pub fn new(context: &Context, entries: u32) -> Result<Self, VerbsError> {
        Self::with(context, &CqOptions::new(entries))
    }

    /// A CQ made as `options` say.
    pub fn with(context: &Context, options: &CqOptions) -> Result<Self, VerbsError> {
        let (api, raw) = (context.api(), context.ptr());
        let entries = options.entries as c_int;
        Self::make(context, options, false, |user, channel, vector| {
            // SAFETY: a live context and, if any, a live channel of the same.
            unsafe { result::create_cq(api, raw, entries, user, channel, vector) }
        })
    }

    /// Checks `options`, then has a CQ made with this user value, channel and interrupt.
    pub(super) fn make(
        context: &Context,
        options: &CqOptions,
        extended: bool,
        create: impl FnOnce(
            *mut c_void,
            *mut sys::ibv_comp_channel,
            c_int,
        ) -> Result<NonNull<sys::ibv_cq>, CallError>,
    ) -> Result<Self, VerbsError> {
        in_range("number of CQ entries", options.entries.into(), 1, c_int::MAX as u64)?;
        let (channel, vector) = options.channel_and_vector(context)?;
        let id = next_id();
        let ptr = create(id as usize as *mut c_void, channel, vector)?;
        let inner = Inner {
            context: context.clone(),
            #[cfg(feature = "channels")]
            channel: options.events.as_ref().map(|(channel, _)| channel.clone()),
            ptr,
            id,
            extended,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its number in this process, which events name.
    pub fn id(&self) -> u32 {
        self.inner.id
    }

    /// Entries it has room for.
    pub fn capacity(&self) -> u32 {
        // SAFETY: a live CQ; no reference is made to what a resize writes.
        let entries = unsafe { (*self.inner.ptr.as_ptr()).cqe };
        u32::try_from(entries).unwrap_or(0)
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Where it reports.
    #[cfg(feature = "channels")]
    pub fn channel(&self) -> Option<&super::CompChannel> {
        self.inner.channel.as_ref()
    }

    pub(super) fn ptr(&self) -> NonNull<sys::ibv_cq> {
        self.inner.ptr
    }

    /// Takes completions, oldest first, into the beginning of `out`; returns how many there were.
    /// An error says that the CQ is broken, not that there is nothing; that of an
    /// `ExtendedCq` is not polled in this way, which is `EINVAL`.
    #[inline]
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, CallError> {
        if self.inner.extended {
            return Err(CallError { call: "ibv_poll_cq", errno: Errno::EINVAL });
        }
        // SAFETY: a live CQ.
        unsafe { result::poll_cq(self.inner.ptr, completion::as_raw(out)) }
    }

    /// Gives it another number of entries, not below the number of completions in it. That of an
    /// extended CQ is resized by `ExtendedCq::resize`, else `EINVAL`.
    pub fn resize(&self, entries: u32) -> Result<(), VerbsError> {
        if self.inner.extended {
            return Err(CallError { call: "ibv_resize_cq", errno: Errno::EINVAL }.into());
        }
        self.resize_any(entries)
    }

    pub(super) fn resize_any(&self, entries: u32) -> Result<(), VerbsError> {
        in_range("number of CQ entries", entries.into(), 1, c_int::MAX as u64)?;
        // SAFETY: a live CQ.
        Ok(unsafe { result::resize_cq(self.context().api(), self.ptr(), entries as c_int) }?)
    }
}
