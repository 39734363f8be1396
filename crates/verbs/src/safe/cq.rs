//! Completion queues.

use super::owned::Destroy;
use super::{Completion, Context, Owned, Uses, VerbsError, completion, error::in_range};
use crate::call::{check, object};
use crate::{CallError, sys};
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
    pub(super) events: Option<(super::CompChannel, u32)>,
}

impl CqOptions {
    /// At least `entries` entries.
    pub fn new(entries: u32) -> Self {
        Self { entries, events: None }
    }
}

/// The arguments of a call that makes a CQ.
#[derive(Clone, Copy, Debug)]
pub struct CqParts {
    /// Entries, at least.
    pub entries: c_int,
    /// Comes back with the CQ's events.
    pub user: *mut c_void,
    /// Where it reports; null for nowhere.
    pub channel: *mut sys::ibv_comp_channel,
    /// The interrupt by which it reports.
    pub vector: c_int,
}

/// A completion queue. Cloning shares it.
#[derive(Clone)]
pub struct Cq {
    inner: Arc<Inner>,
}

struct Inner {
    // Before the channel that it reports to.
    cq: Owned<sys::ibv_cq, Context, Uses>,
    channel: Option<super::CompChannel>,
    id: u32,
    /// Polled and resized by its maker alone.
    foreign: bool,
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cq({}, {} entries)", self.id(), self.capacity())
    }
}

/// How libibverbs destroys a CQ.
fn destroy(context: &Context) -> Destroy<sys::ibv_cq> {
    ("ibv_destroy_cq", context.api().ibv_destroy_cq)
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
        let (create, raw) = (context.api().ibv_create_cq, context.ptr().as_ptr());
        let by_verbs = (destroy(context), None);
        Self::make(context, options, false, by_verbs, |parts| {
            let CqParts { entries, user, channel, vector } = parts;
            // SAFETY: a live context and, if any, a live channel of the same.
            let cq = unsafe { create(raw, entries, user, channel, vector) };
            object("ibv_create_cq", cq)
        })
    }

    /// A CQ that `create` makes by another call of the library's. It is destroyed as any other;
    /// [`poll`](Self::poll) and [`resize`](Self::resize) are refused.
    ///
    /// # Safety
    /// `create` makes a CQ of `context` from these parts, whose channel is live, and leaves it to
    /// this object. Nobody polls it at the time of its last drop.
    pub unsafe fn made_by(
        context: &Context,
        options: &CqOptions,
        create: impl FnOnce(CqParts) -> Result<NonNull<sys::ibv_cq>, CallError>,
    ) -> Result<Self, VerbsError> {
        Self::make(context, options, true, (destroy(context), None), create)
    }

    /// A CQ that a vendor's library makes and destroys, over what it uses.
    ///
    /// # Safety
    /// As for [`made_by`](Self::made_by), and the function destroys such a CQ.
    pub(crate) unsafe fn of_vendor(
        context: &Context,
        options: &CqOptions,
        by: (Destroy<sys::ibv_cq>, Uses),
        create: impl FnOnce(CqParts) -> Result<NonNull<sys::ibv_cq>, CallError>,
    ) -> Result<Self, VerbsError> {
        Self::make(context, options, true, by, create)
    }

    fn make(
        context: &Context,
        options: &CqOptions,
        foreign: bool,
        (destroy, uses): (Destroy<sys::ibv_cq>, Uses),
        create: impl FnOnce(CqParts) -> Result<NonNull<sys::ibv_cq>, CallError>,
    ) -> Result<Self, VerbsError> {
        in_range("number of CQ entries", options.entries.into(), 1, c_int::MAX as u64)?;
        let (channel, vector) = options.channel_and_vector(context)?;
        let id = next_id();
        let (entries, user) = (options.entries as c_int, id as usize as *mut c_void);
        let ptr = create(CqParts { entries, user, channel, vector })?;
        // SAFETY: made above, for this object; QPs that complete in it hold it.
        let cq = unsafe { Owned::new(ptr, destroy, context.clone(), uses) };
        let channel = options.events.as_ref().map(|(channel, _)| channel.clone());
        Ok(Self { inner: Arc::new(Inner { cq, channel, id, foreign }) })
    }

    /// Its number in this process, which events name.
    pub fn id(&self) -> u32 {
        self.inner.id
    }

    /// Entries it has room for.
    pub fn capacity(&self) -> u32 {
        // SAFETY: a live CQ; no reference is made to what a resize writes.
        let entries = unsafe { (*self.ptr().as_ptr()).cqe };
        u32::try_from(entries).unwrap_or(0)
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        self.inner.cq.parent()
    }

    /// Where it reports.
    pub fn channel(&self) -> Option<&super::CompChannel> {
        self.inner.channel.as_ref()
    }

    /// The library's object, which lives as long as this one.
    pub fn ptr(&self) -> NonNull<sys::ibv_cq> {
        self.inner.cq.ptr()
    }

    /// Takes completions, oldest first, into the beginning of `out`; returns how many there were.
    /// An error says that the CQ is broken, not that there is nothing; one of
    /// [`made_by`](Self::made_by) is polled by its maker, and `EINVAL` here.
    #[inline]
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, CallError> {
        if self.inner.foreign {
            return Err(CallError { call: "ibv_poll_cq", errno: Errno::EINVAL });
        }
        let out = completion::as_raw(out);
        let room = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        // SAFETY: a live CQ, and `out` has room.
        let found = unsafe { sys::ibv_poll_cq(self.ptr().as_ptr(), room, out.as_mut_ptr()) };
        // Below zero are codes of the provider's own, not error numbers.
        usize::try_from(found).map_err(|_| CallError { call: "ibv_poll_cq", errno: Errno::EIO })
    }

    /// Gives it another number of entries, not below the number of completions in it. One of
    /// [`made_by`](Self::made_by) is resized by its maker, and `EINVAL` here.
    pub fn resize(&self, entries: u32) -> Result<(), VerbsError> {
        if self.inner.foreign {
            return Err(CallError { call: "ibv_resize_cq", errno: Errno::EINVAL }.into());
        }
        in_range("number of CQ entries", entries.into(), 1, c_int::MAX as u64)?;
        let resize = self.context().api().ibv_resize_cq;
        // SAFETY: a live CQ.
        let code = unsafe { resize(self.ptr().as_ptr(), entries as c_int) };
        Ok(check("ibv_resize_cq", code)?)
    }
}
