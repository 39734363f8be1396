//! An open device.

use super::{
    Device, DeviceAttr, GidChoice, GidEntry, Owned, PortAttr, Verbs, VerbsError, event, gid_table,
    wait,
};
use crate::call::{check, object};
use crate::{CallError, sys};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_rdma::AsyncEvent;

/// An open device. Cloning shares it; it closes when the last object made from it is gone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Owned<sys::ibv_context, Device>>,
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
        let api = device.verbs().api();
        // SAFETY: the device holds its list.
        let ptr = unsafe { (api.ibv_open_device)(device.ptr().as_ptr()) };
        let ptr = object("ibv_open_device", ptr)
            .map_err(|error| VerbsError::not_opened(error, &device.node()))?;
        let destroy = ("ibv_close_device", api.ibv_close_device);
        // SAFETY: made above; whatever is made from the context holds it.
        let inner = unsafe { Owned::new(ptr, destroy, device.clone(), ()) };
        let context = Self { inner: Arc::new(inner) };
        wait::set_nonblocking(context.async_fd())?;
        Ok(context)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.inner.parent()
    }

    /// The library.
    pub fn verbs(&self) -> Verbs {
        self.device().verbs()
    }

    /// The library's functions.
    pub fn api(&self) -> &'static sys::Api {
        self.verbs().api()
    }

    /// The library's object, which lives as long as this one.
    pub fn ptr(&self) -> NonNull<sys::ibv_context> {
        self.inner.ptr()
    }

    /// Interrupts that completion channels can be spread over.
    pub fn comp_vectors(&self) -> u32 {
        // SAFETY: a live context.
        let vectors = unsafe { (*self.ptr().as_ptr()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(0)
    }

    /// The attributes of the device.
    pub fn attr(&self) -> Result<DeviceAttr, VerbsError> {
        Ok(DeviceAttr::from_raw(&self.raw_attr()?))
    }

    /// The attributes as the library has them; only the classic ones where the provider knows no more.
    pub fn raw_attr(&self) -> Result<sys::ibv_device_attr_ex, CallError> {
        let mut raw = sys::zeroed();
        // SAFETY: a live context and a live local.
        let code = unsafe { sys::ibv_query_device_ex(self.api(), self.ptr().as_ptr(), &mut raw) };
        check("ibv_query_device", code).map(|()| raw)
    }

    /// The state of a port; ports are numbered from 1.
    pub fn port(&self, port: u8) -> Result<PortAttr, VerbsError> {
        let (api, context, mut raw) = (self.api(), self.ptr().as_ptr(), sys::zeroed());
        // SAFETY: a live context and a live local.
        check("ibv_query_port", unsafe { sys::ibv_query_port_ex(api, context, port, &mut raw) })?;
        Ok(PortAttr::from_raw(&raw))
    }

    /// The partition key at `index` of a port's table.
    pub fn pkey(&self, port: u8, index: u16) -> Result<u16, VerbsError> {
        let (query, context, mut pkey) = (self.api().ibv_query_pkey, self.ptr().as_ptr(), 0);
        // SAFETY: a live context and a live local.
        check("ibv_query_pkey", unsafe { query(context, port, index.into(), &mut pkey) })?;
        Ok(u16::from_be(pkey))
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
            unsafe { event::take(self.api(), self.ptr()) }
        })
    }

    /// Readable when there are asynchronous events.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live context.
        let fd = unsafe { (*self.ptr().as_ptr()).async_fd };
        // SAFETY: a descriptor of the context's, open as long as it is.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}
