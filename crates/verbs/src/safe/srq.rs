//! Shared receive queues.

use super::{Context, Pd, PostError, RecvList, VerbsError, cq, error::in_range};
use crate::{result, sys};
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// How a shared receive queue is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqOptions {
    /// Receives, at least.
    pub max_wr: u32,
    /// Entries of one, at least.
    pub max_sge: u32,
}

/// Receives that several QPs take from. Cloning shares it.
#[derive(Clone)]
pub struct Srq {
    inner: Arc<Inner>,
}

struct Inner {
    pd: Pd,
    ptr: NonNull<sys::ibv_srq>,
    id: u32,
    options: SrqOptions,
}

// SAFETY: libibverbs allows the use of a shared queue from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above, at the same time too: providers lock it.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the QPs that receive from it held it and are gone.
        if let Err(error) = unsafe { result::destroy_srq(self.pd.context().api(), self.ptr) } {
            tracing::warn!(%error, "SRQ not destroyed");
        }
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Srq({})", self.id())
    }
}

impl Srq {
    /// A shared queue of `pd`.
    pub fn new(pd: &Pd, options: SrqOptions) -> Result<Self, VerbsError> {
        in_range("receives of an SRQ", options.max_wr.into(), 1, i32::MAX as u64)?;
        let id = cq::next_id();
        let mut attr: sys::ibv_srq_init_attr = sys::zeroed();
        attr.srq_context = id as usize as *mut c_void;
        (attr.attr.max_wr, attr.attr.max_sge) = (options.max_wr, options.max_sge);
        // SAFETY: a live domain.
        let ptr = unsafe { result::create_srq(pd.context().api(), pd.ptr(), &mut attr) }?;
        let options = SrqOptions { max_wr: attr.attr.max_wr, max_sge: attr.attr.max_sge };
        Ok(Self { inner: Arc::new(Inner { pd: pd.clone(), ptr, id, options }) })
    }

    /// Its number in this process, which events name.
    pub fn id(&self) -> u32 {
        self.inner.id
    }

    /// The room it has.
    pub fn room(&self) -> SrqOptions {
        self.inner.options
    }

    pub(super) fn context(&self) -> &Context {
        self.inner.pd.context()
    }

    pub(super) fn ptr(&self) -> NonNull<sys::ibv_srq> {
        self.inner.ptr
    }

    /// Posts all receives of `list`, which may then be used again.
    #[inline]
    pub fn post_recv(&self, list: &mut RecvList) -> Result<(), PostError> {
        // SAFETY: a live queue, and a chain of the list's own.
        list.post(|first| unsafe { result::post_srq_recv(self.inner.ptr, first) })
    }

    /// Asks for [`AsyncEvent::SrqLimit`](warpverbs_rdma::AsyncEvent::SrqLimit), once, when fewer than `limit`
    /// receives are left; 0 asks for none.
    pub fn set_limit(&self, limit: u32) -> Result<(), VerbsError> {
        let mut attr: sys::ibv_srq_attr = sys::zeroed();
        attr.srq_limit = limit;
        let (api, mask) = (self.context().api(), sys::IBV_SRQ_LIMIT);
        // SAFETY: a live queue.
        Ok(unsafe { result::modify_srq(api, self.inner.ptr, &mut attr, mask) }?)
    }

    /// The limit that is set; 0 for none.
    pub fn limit(&self) -> Result<u32, VerbsError> {
        // SAFETY: a live queue.
        Ok(unsafe { result::query_srq(self.context().api(), self.inner.ptr) }?.srq_limit)
    }
}
