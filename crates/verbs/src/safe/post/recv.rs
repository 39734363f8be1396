//! Lists of receives.

use super::{ListError, PostError, Sge, failed, take_sges};
use crate::{CallError, sys};
use std::fmt;
use std::ptr::null_mut;

/// Receives to be posted together.
pub struct RecvList {
    wrs: Box<[sys::ibv_recv_wr]>,
    sges: Box<[sys::ibv_sge]>,
    len: usize,
    sges_used: usize,
}

// SAFETY: pointers in the list lead into the list, and only while it is being posted.
unsafe impl Send for RecvList {}
// SAFETY: as above; a shared list is only read.
unsafe impl Sync for RecvList {}

impl fmt::Debug for RecvList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvList({} of {} requests)", self.len, self.wrs.len())
    }
}

impl RecvList {
    /// Room for `requests`, with `sges` entries for all of them together.
    pub fn new(requests: usize, sges: usize) -> Self {
        Self {
            wrs: vec![sys::zeroed(); requests].into(),
            sges: vec![sys::zeroed(); sges].into(),
            len: 0,
            sges_used: 0,
        }
    }

    /// Appends a receive; `id` comes back with its completion.
    #[inline]
    pub fn push(&mut self, id: u64, sges: &[Sge]) -> Result<(), ListError> {
        let capacity = self.wrs.len();
        if self.len == capacity {
            return Err(ListError::Full { capacity });
        }
        self.sges_used = take_sges(&mut self.sges, self.sges_used, sges)?;
        let wr = &mut self.wrs[self.len];
        (wr.wr_id, wr.num_sge) = (id, sges.len() as i32);
        self.len += 1;
        Ok(())
    }

    /// Receives in the list.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Receives it has room for.
    pub fn capacity(&self) -> usize {
        self.wrs.len()
    }

    /// Empties the list.
    pub fn clear(&mut self) {
        (self.len, self.sges_used) = (0, 0);
    }

    /// Chains requests and entries, calls `post` with the first request, and tells how far it came.
    #[inline]
    pub(in crate::safe) fn post(
        &mut self,
        post: impl FnOnce(*mut sys::ibv_recv_wr) -> Result<(), (CallError, *mut sys::ibv_recv_wr)>,
    ) -> Result<(), PostError> {
        let Some(last) = self.len.checked_sub(1) else { return Ok(()) };
        let sges = self.sges.as_mut_ptr();
        let wrs = self.wrs.as_mut_ptr();
        let mut used = 0;
        for (at, wr) in self.wrs[..=last].iter_mut().enumerate() {
            wr.sg_list = sges.wrapping_add(used);
            used += wr.num_sge as usize;
            wr.next = if at == last { null_mut() } else { wrs.wrapping_add(at + 1) };
        }
        post(self.wrs.as_mut_ptr()).map_err(|(error, bad)| failed(error, bad, &self.wrs[..=last]))
    }
}
