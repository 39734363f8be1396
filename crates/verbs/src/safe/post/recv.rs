//! Lists of receives.

use super::chain::Chain;
use super::{ListError, PostError};
use crate::sys;
use std::ffi::c_int;
use std::fmt;
use warpverbs_rdma::Sge;

/// Receives to be posted together.
pub struct RecvList(Chain<sys::ibv_recv_wr>);

impl fmt::Debug for RecvList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvList({} of {} requests)", self.len(), self.capacity())
    }
}

impl RecvList {
    /// Room for `requests`, with `sges` entries for all of them together.
    pub fn new(requests: usize, sges: usize) -> Self {
        Self(Chain::new(requests, sges))
    }

    /// Appends a receive; `id` comes back with its completion.
    #[inline]
    pub fn push(&mut self, id: u64, sges: &[Sge]) -> Result<(), ListError> {
        self.0.push(id, sges).map(drop)
    }

    /// Receives in the list.
    pub fn len(&self) -> usize {
        self.0.requests().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Receives it has room for.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Empties the list.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    #[inline]
    pub(in crate::safe) fn post(
        &mut self,
        call: &'static str,
        post: impl FnOnce(*mut sys::ibv_recv_wr, &mut *mut sys::ibv_recv_wr) -> c_int,
    ) -> Result<(), PostError> {
        self.0.post(call, post)
    }
}
