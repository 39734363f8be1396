//! The common part of lists of sends and of receives: requests, their entries, and how both are
//! chained for one call.

use super::{ListError, PostError};
use crate::call::check;
use crate::{CallError, sys};
use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr::null_mut;
use warpverbs_rdma::Sge;

// Entries are handed to the library as they are.
const _: () = {
    assert!(size_of::<Sge>() == size_of::<sys::ibv_sge>());
    assert!(offset_of!(Sge, addr) == offset_of!(sys::ibv_sge, addr));
    assert!(offset_of!(Sge, len) == offset_of!(sys::ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(sys::ibv_sge, lkey));
};

/// A work request of libibverbs.
pub(super) trait Request: sys::Plain {
    fn id(&mut self) -> &mut u64;
    fn entries(&mut self) -> (&mut *mut sys::ibv_sge, &mut c_int);
    fn next(&mut self) -> &mut *mut Self;
}

macro_rules! request {
    ($($name:ident)*) => {$(
        impl Request for sys::$name {
            #[inline]
            fn id(&mut self) -> &mut u64 {
                &mut self.wr_id
            }

            #[inline]
            fn entries(&mut self) -> (&mut *mut sys::ibv_sge, &mut c_int) {
                (&mut self.sg_list, &mut self.num_sge)
            }

            #[inline]
            fn next(&mut self) -> &mut *mut Self {
                &mut self.next
            }
        }
    )*};
}

request! { ibv_send_wr ibv_recv_wr }

/// Room for requests and entries, filled from the beginning.
pub(super) struct Chain<W> {
    wrs: Box<[W]>,
    /// With the layout of the library's entries.
    sges: Box<[Sge]>,
    len: usize,
    sges_used: usize,
}

// SAFETY: pointers in the requests lead into the chain, and only while it is being posted.
unsafe impl<W> Send for Chain<W> {}
// SAFETY: as above; a shared chain is only read.
unsafe impl<W> Sync for Chain<W> {}

impl<W: Request> Chain<W> {
    pub(super) fn new(requests: usize, sges: usize) -> Self {
        let (wrs, sges) = (vec![sys::zeroed(); requests].into(), vec![Sge::default(); sges].into());
        Self { wrs, sges, len: 0, sges_used: 0 }
    }

    /// Whether there is a request left.
    #[inline]
    pub(super) fn room(&self) -> Result<(), ListError> {
        let capacity = self.wrs.len();
        if self.len < capacity { Ok(()) } else { Err(ListError::Full { capacity }) }
    }

    /// Appends a request with these entries; its other fields keep the values of an earlier request.
    #[inline(always)]
    pub(super) fn push(&mut self, id: u64, sges: &[Sge]) -> Result<&mut W, ListError> {
        self.room()?;
        let (capacity, needed) = (self.sges.len(), sges.len());
        let left = capacity - self.sges_used;
        if needed > left {
            return Err(ListError::Sges { needed, left, capacity });
        }
        match (sges, &mut self.sges[self.sges_used..]) {
            // Most requests have one entry.
            ([from], [to, ..]) => *to = *from,
            (from, to) => to[..needed].copy_from_slice(from),
        }
        self.sges_used += needed;
        self.len += 1;
        let wr = &mut self.wrs[self.len - 1];
        *wr.id() = id;
        *wr.entries().1 = needed as c_int;
        Ok(wr)
    }

    pub(super) fn requests(&self) -> &[W] {
        &self.wrs[..self.len]
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut W> {
        self.wrs[..self.len].last_mut()
    }

    pub(super) fn capacity(&self) -> usize {
        self.wrs.len()
    }

    pub(super) fn clear(&mut self) {
        (self.len, self.sges_used) = (0, 0);
    }

    /// Chains requests and entries, calls `post`, which is named `call`, with the first request and a
    /// place for the first that was not posted, and reports how many were posted.
    #[inline]
    pub(super) fn post(
        &mut self,
        call: &'static str,
        post: impl FnOnce(*mut W, &mut *mut W) -> c_int,
    ) -> Result<(), PostError> {
        let Some(last) = self.len.checked_sub(1) else { return Ok(()) };
        let mut sges = self.sges.as_mut_ptr().cast::<sys::ibv_sge>();
        let mut next = self.wrs.as_mut_ptr();
        for wr in &mut self.wrs[..=last] {
            let (list, count) = wr.entries();
            *list = sges;
            sges = sges.wrapping_add(*count as usize);
            next = next.wrapping_add(1);
            *wr.next() = next;
        }
        *self.wrs[last].next() = null_mut();
        let mut bad = null_mut();
        let code = post(self.wrs.as_mut_ptr(), &mut bad);
        check(call, code).map_err(|error| failed(error, bad, self.requests()))
    }
}

/// A call's failure as that of a list: `bad` is the first request that was not posted.
fn failed<W>(source: CallError, bad: *const W, list: &[W]) -> PostError {
    let offset = (bad as usize).wrapping_sub(list.as_ptr() as usize) / size_of::<W>();
    // A provider that names none of our requests has posted nothing that is known of.
    let posted = if offset < list.len() { offset } else { 0 };
    PostError { source, posted, total: list.len() }
}
