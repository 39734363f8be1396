//! Completion channels: waiting for a CQ without polling it.

use super::{Context, VerbsError, wait};
use crate::{result, sys};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
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

    pub(super) fn ptr(&self) -> NonNull<sys::ibv_comp_channel> {
        self.inner.ptr
    }
}
