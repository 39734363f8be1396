//! Completion queues.

use super::{CompChannel, Completion, Context, VerbsError, completion, error::in_range};
use crate::{CallError, result, sys};
use nix::errno::Errno;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How a CQ is made.
#[derive(Clone, Debug)]
pub struct CqOptions {
    /// Entries, at least.
    pub entries: u32,
    /// Where it reports when it was armed.
    pub channel: Option<CompChannel>,
    /// Interrupt of the channel, below [`Context::comp_vectors`].
    pub vector: u32,
}

/// A completion queue. Cloning shares it.
#[derive(Clone)]
pub struct Cq {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    channel: Option<CompChannel>,
    ptr: NonNull<sys::ibv_cq>,
    id: u32,
    /// Polled by its [`ExtendedCq`](super::ExtendedCq) alone.
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
        Self::with(context, &CqOptions { entries, channel: None, vector: 0 })
    }

    /// A CQ made as `options` say.
    pub fn with(context: &Context, options: &CqOptions) -> Result<Self, VerbsError> {
        let (api, raw) = (context.api(), context.ptr());
        let (entries, vector) = (options.entries as c_int, options.vector as c_int);
        Self::make(context, options, false, |user, channel| {
            // SAFETY: a live context and, if any, a live channel of the same.
            unsafe { result::create_cq(api, raw, entries, user, channel, vector) }
        })
    }

    /// Checks `options`, then has a CQ made with this user value and channel.
    pub(super) fn make(
        context: &Context,
        options: &CqOptions,
        extended: bool,
        create: impl FnOnce(
            *mut c_void,
            *mut sys::ibv_comp_channel,
        ) -> Result<NonNull<sys::ibv_cq>, CallError>,
    ) -> Result<Self, VerbsError> {
        in_range("number of CQ entries", options.entries.into(), 1, c_int::MAX as u64)?;
        let vectors = u64::from(context.comp_vectors());
        in_range("completion vector", options.vector.into(), 0, vectors.saturating_sub(1))?;
        let id = next_id();
        let channel = match &options.channel {
            Some(channel) if channel.context() != context => {
                return Err(VerbsError::OtherContext { object: "completion channel" });
            }
            Some(channel) => channel.ptr().as_ptr(),
            None => null_mut(),
        };
        let ptr = create(id as usize as *mut c_void, channel)?;
        let (context, channel) = (context.clone(), options.channel.clone());
        Ok(Self { inner: Arc::new(Inner { context, channel, ptr, id, extended }) })
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
    pub fn channel(&self) -> Option<&CompChannel> {
        self.inner.channel.as_ref()
    }

    pub(super) fn ptr(&self) -> NonNull<sys::ibv_cq> {
        self.inner.ptr
    }

    /// Takes completions, oldest first, into the beginning of `out`; returns how many there were.
    /// An error says that the CQ is broken, not that there is nothing; that of an
    /// [`ExtendedCq`](super::ExtendedCq) is not polled in this way, which is `EINVAL`.
    #[inline]
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, CallError> {
        if self.inner.extended {
            return Err(CallError { call: "ibv_poll_cq", errno: Errno::EINVAL });
        }
        // SAFETY: a live CQ.
        unsafe { result::poll_cq(self.inner.ptr, completion::as_raw(out)) }
    }

    /// Asks for one event at the next completion, or at the next that its sender marked as
    /// solicited or that failed. Completions that are there already do not count: poll once more.
    pub fn arm(&self, solicited_only: bool) -> Result<(), VerbsError> {
        // SAFETY: a live CQ.
        Ok(unsafe { result::req_notify_cq(self.inner.ptr, solicited_only) }?)
    }

    /// Gives it another number of entries, not below the number of completions in it. That of an
    /// extended CQ is resized by [`ExtendedCq::resize`](super::ExtendedCq::resize), else `EINVAL`.
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

    /// One event for `count` completions, or when the first of them is `micros` old.
    pub fn moderate(&self, count: u16, micros: u16) -> Result<(), VerbsError> {
        // SAFETY: a live CQ.
        Ok(unsafe { result::moderate_cq(self.ptr(), count, micros) }?)
    }
}
