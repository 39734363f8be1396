//! An open device.

use super::{
    Device, DeviceAttr, GidChoice, GidEntry, PortAttr, Verbs, VerbsError, event, gid_table, wait,
};
use crate::{result, sys};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_rdma::AsyncEvent;

/// An open device. Cloning shares it; it closes when the last object made from it is gone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    ptr: NonNull<sys::ibv_context>,
}

// SAFETY: libibverbs allows the use of a context from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above, at the same time too.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: whatever was made from the context held it and is gone.
        if let Err(error) = unsafe { result::close_device(self.device.verbs().api(), self.ptr) } {
            tracing::warn!(device = self.device.name(), %error, "context not closed");
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.device().name())
    }
}

impl PartialEq for Context {
    /// Whether both are the same open device.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Context {}

impl Context {
    pub(super) fn open(device: &Device) -> Result<Self, VerbsError> {
        // SAFETY: the device holds its list.
        let ptr = unsafe { result::open_device(device.verbs().api(), device.ptr()) }
            .map_err(|error| VerbsError::not_opened(error, &device.node()))?;
        let context = Self { inner: Arc::new(Inner { device: device.clone(), ptr }) };
        wait::set_nonblocking(context.async_fd())?;
        Ok(context)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The library.
    pub fn verbs(&self) -> Verbs {
        self.inner.device.verbs()
    }

    /// The library's functions.
    pub fn api(&self) -> &'static sys::Api {
        self.verbs().api()
    }

    /// The library's object, which lives as long as this one.
    pub fn ptr(&self) -> NonNull<sys::ibv_context> {
        self.inner.ptr
    }

    /// Interrupts that completion channels can be spread over.
    pub fn comp_vectors(&self) -> u32 {
        // SAFETY: a live context.
        let vectors = unsafe { (*self.inner.ptr.as_ptr()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(0)
    }

    /// The attributes of the device.
    pub fn attr(&self) -> Result<DeviceAttr, VerbsError> {
        // SAFETY: a live context.
        let raw = unsafe { result::query_device(self.api(), self.inner.ptr) }?;
        Ok(DeviceAttr::from_raw(&raw))
    }

    /// The state of a port; ports are numbered from 1.
    pub fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        // SAFETY: a live context.
        let raw = unsafe { result::query_port(self.api(), self.inner.ptr, port) }?;
        Ok(PortAttr::from_raw(&raw))
    }

    /// The partition key at `index` of a port's table.
    pub fn pkey(&self, port: u8, index: u16) -> Result<u16, VerbsError> {
        // SAFETY: a live context.
        Ok(unsafe { result::query_pkey(self.api(), self.inner.ptr, port, index) }?)
    }

    /// A port's GIDs in use, by index.
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>, VerbsError> {
        gid_table::read(self, port)
    }

    /// The GID of a port that reaches most peers: RoCEv2 before RoCEv1, IPv4 before IPv6, global
    /// before link-local; on InfiniBand the first. Returns the reason of the choice too.
    pub fn choose_gid(&self, port: u8) -> Result<GidChoice, VerbsError> {
        GidChoice::best(self.device().name(), self.port(port)?.link_layer, port, &self.gids(port)?)
    }

    /// The next asynchronous event, if one comes before `timeout` is over.
    pub fn next_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>, VerbsError> {
        wait::wait_for(self.async_fd(), timeout, || {
            // SAFETY: a live context.
            unsafe { event::take(self.api(), self.inner.ptr) }
        })
    }

    /// Readable when there are asynchronous events.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live context.
        let fd = unsafe { (*self.inner.ptr.as_ptr()).async_fd };
        // SAFETY: a descriptor of the context's, open as long as it is.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}
