//! Shared receive queues.

use super::{Context, Owned, Pd, PostError, RecvList, VerbsError, cq, error::in_range};
use crate::call::{check, object};
use crate::sys;
use std::ffi::{c_int, c_void};
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
    srq: Owned<sys::ibv_srq, Pd>,
    id: u32,
    options: SrqOptions,
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
        let api = pd.context().api();
        // SAFETY: a live domain.
        let ptr = unsafe { (api.ibv_create_srq)(pd.ptr().as_ptr(), &mut attr) };
        let ptr = object("ibv_create_srq", ptr)?;
        let destroy = ("ibv_destroy_srq", api.ibv_destroy_srq);
        // SAFETY: made above; QPs that receive from it hold it.
        let srq = unsafe { Owned::new(ptr, destroy, pd.clone(), ()) };
        let options = SrqOptions { max_wr: attr.attr.max_wr, max_sge: attr.attr.max_sge };
        Ok(Self { inner: Arc::new(Inner { srq, id, options }) })
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
        self.inner.srq.parent().context()
    }

    pub(super) fn ptr(&self) -> NonNull<sys::ibv_srq> {
        self.inner.srq.ptr()
    }

    /// Posts all receives of `list`, which may then be used again.
    #[inline]
    pub fn post_recv(&self, list: &mut RecvList) -> Result<(), PostError> {
        let srq = self.ptr().as_ptr();
        let call = "ibv_post_srq_recv";
        // SAFETY: a live queue, and a chain of the list's own.
        list.post(call, |first, bad| unsafe { sys::ibv_post_srq_recv(srq, first, bad) })
    }

    /// Asks for [`AsyncEvent::SrqLimit`](warpverbs_rdma::AsyncEvent::SrqLimit), once, when fewer than `limit`
    /// receives are left; 0 asks for none.
    pub fn set_limit(&self, limit: u32) -> Result<(), VerbsError> {
        let mut attr: sys::ibv_srq_attr = sys::zeroed();
        attr.srq_limit = limit;
        let (modify, mask) = (self.context().api().ibv_modify_srq, sys::IBV_SRQ_LIMIT as c_int);
        // SAFETY: a live queue.
        let code = unsafe { modify(self.ptr().as_ptr(), &mut attr, mask) };
        Ok(check("ibv_modify_srq", code)?)
    }

    /// The limit that is set; 0 for none.
    pub fn limit(&self) -> Result<u32, VerbsError> {
        let (query, mut attr) = (self.context().api().ibv_query_srq, sys::zeroed());
        // SAFETY: a live queue and a live local.
        check("ibv_query_srq", unsafe { query(self.ptr().as_ptr(), &mut attr) })?;
        Ok(attr.srq_limit)
    }
}
