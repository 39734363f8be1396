//! Completion channels: waiting for a CQ without polling it.

use super::{Context, Cq, CqOptions, Owned, VerbsError, error::in_range, wait};
use crate::call::{check, object};
use crate::sys;
use std::ffi::c_int;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

/// Where CQs that were armed report that there is something to poll. Cloning shares it.
#[derive(Clone)]
pub struct CompChannel {
    inner: Arc<Owned<sys::ibv_comp_channel, Context>>,
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
        let (call, api) = ("ibv_create_comp_channel", context.api());
        // SAFETY: a live context.
        let ptr = object(call, unsafe { (api.ibv_create_comp_channel)(context.ptr().as_ptr()) })?;
        let destroy = ("ibv_destroy_comp_channel", api.ibv_destroy_comp_channel);
        // SAFETY: made above; CQs that report to the channel hold it.
        let inner = unsafe { Owned::new(ptr, destroy, context.clone(), ()) };
        let channel = Self { inner: Arc::new(inner) };
        wait::set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    /// The next event, if one comes before `timeout` is over.
    pub fn wait(&self, timeout: Duration) -> Result<Option<CqEvent>, VerbsError> {
        let (api, channel) = (self.context().api(), self.inner.ptr().as_ptr());
        wait::wait_for(self.fd(), timeout, || {
            let (mut cq, mut user) = (null_mut(), null_mut());
            // SAFETY: a live channel and two live locals; acknowledged below.
            let code = unsafe { (api.ibv_get_cq_event)(channel, &mut cq, &mut user) };
            check("ibv_get_cq_event", code)?;
            // At once, because destroying a CQ waits for it.
            // SAFETY: one event of this CQ, which is not destroyed before it is acknowledged.
            unsafe { (api.ibv_ack_cq_events)(cq, 1) };
            Ok(CqEvent { cq: user as usize as u32 })
        })
    }

    /// Readable when there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel.
        let fd = unsafe { self.inner.ptr().as_ref() }.fd;
        // SAFETY: the channel's descriptor, open as long as it is.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        self.inner.parent()
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
            true => Ok((channel.inner.ptr().as_ptr(), *vector as c_int)),
            false => Err(VerbsError::OtherContext { object: "completion channel" }),
        }
    }
}

impl Cq {
    /// Asks for one event at the next completion, or at the next that its sender marked as
    /// solicited or that failed. Completions that are there already do not count: poll once more.
    pub fn arm(&self, solicited_only: bool) -> Result<(), VerbsError> {
        // SAFETY: a live CQ.
        let code = unsafe { sys::ibv_req_notify_cq(self.ptr().as_ptr(), solicited_only.into()) };
        Ok(check("ibv_req_notify_cq", code)?)
    }

    /// One event for `count` completions, or when the first of them is `micros` old.
    pub fn moderate(&self, count: u16, micros: u16) -> Result<(), VerbsError> {
        let mut attr: sys::ibv_modify_cq_attr = sys::zeroed();
        attr.attr_mask = sys::IBV_CQ_ATTR_MODERATE;
        attr.moderate = sys::ibv_moderate_cq { cq_count: count, cq_period: micros };
        // SAFETY: a live CQ; the attributes are a live local.
        let code = unsafe { sys::ibv_modify_cq(self.ptr().as_ptr(), &mut attr) };
        Ok(check("ibv_modify_cq", code)?)
    }
}
