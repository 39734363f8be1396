//! Completion channels: waiting for a CQ without polling it.

use super::{Context, Cq, CqOptions, VerbsError, error::in_range, wait};
use crate::{result, sys};
use std::ffi::c_int;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

/// Where CQs that were armed report that there is something to poll. Cloning shares it.
#[derive(Clone)]
pub struct CompChannel {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    ptr: NonNull<sys::ibv_comp_channel>,
}

// SAFETY: libibverbs allows the use of a channel from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above, at the same time too.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the CQs that report here held the channel and are gone.
        if let Err(error) = unsafe { result::destroy_comp_channel(self.context.api(), self.ptr) } {
            tracing::warn!(device = self.context.device().name(), %error, "channel not destroyed");
        }
    }
}

impl fmt::Debug for CompChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompChannel({})", self.context().device().name())
    }
}

/// A CQ has something to poll. It reports once; [`Cq::arm`](super::Cq::arm) it again before the
/// poll that finds it empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqEvent {
    /// [`Cq::id`](super::Cq::id) of the CQ.
    pub cq: u32,
}

impl CompChannel {
    /// A new channel of `context`.
    pub fn new(context: &Context) -> Result<Self, VerbsError> {
        // SAFETY: a live context.
        let ptr = unsafe { result::create_comp_channel(context.api(), context.ptr()) }?;
        let channel = Self { inner: Arc::new(Inner { context: context.clone(), ptr }) };
        wait::set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    /// The next event, if one comes before `timeout` is over.
    pub fn wait(&self, timeout: Duration) -> Result<Option<CqEvent>, VerbsError> {
        let api = self.inner.context.api();
        wait::wait_for(self.fd(), timeout, || {
            // SAFETY: a live channel; acknowledged below.
            let (cq, user) = unsafe { result::get_cq_event(api, self.inner.ptr) }?;
            // At once, because destroying a CQ waits for it.
            // SAFETY: one event of this CQ, which is not destroyed before it is acknowledged.
            unsafe { result::ack_cq_events(api, cq, 1) };
            Ok(CqEvent { cq: user as usize as u32 })
        })
    }

    /// Readable when there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel.
        let fd = unsafe { self.inner.ptr.as_ref() }.fd;
        // SAFETY: the channel's descriptor, open as long as it is.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

impl CqOptions {
    /// When it is armed, the CQ reports to `channel`, by the interrupt `vector` below
    /// [`Context::comp_vectors`].
    pub fn channel(self, channel: &CompChannel, vector: u32) -> Self {
        Self { events: Some((channel.clone(), vector)), ..self }
    }

    pub(super) fn channel_and_vector(
        &self,
        context: &Context,
    ) -> Result<(*mut sys::ibv_comp_channel, c_int), VerbsError> {
        let Some((channel, vector)) = &self.events else { return Ok((null_mut(), 0)) };
        let vectors = u64::from(context.comp_vectors());
        in_range("completion vector", (*vector).into(), 0, vectors.saturating_sub(1))?;
        match channel.context() == context {
            true => Ok((channel.inner.ptr.as_ptr(), *vector as c_int)),
            false => Err(VerbsError::OtherContext { object: "completion channel" }),
        }
    }
}

impl Cq {
    /// Asks for one event at the next completion, or at the next that its sender marked as
    /// solicited or that failed. Completions that are there already do not count: poll once more.
    pub fn arm(&self, solicited_only: bool) -> Result<(), VerbsError> {
        // SAFETY: a live CQ.
        Ok(unsafe { result::req_notify_cq(self.ptr(), solicited_only) }?)
    }

    /// One event for `count` completions, or when the first of them is `micros` old.
    pub fn moderate(&self, count: u16, micros: u16) -> Result<(), VerbsError> {
        // SAFETY: a live CQ.
        Ok(unsafe { result::moderate_cq(self.ptr(), count, micros) }?)
    }
}
