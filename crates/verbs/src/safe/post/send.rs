//! Lists of sends.

use super::chain::Chain;
use super::{ListError, PostError};
use crate::sys;
use std::ffi::c_int;
use std::fmt;
use warpverbs_rdma::{Data, Op, Remote, SendFlags, Sge};

/// Sends to be posted together.
pub struct SendList {
    chain: Chain<sys::ibv_send_wr>,
    inline: Box<[u8]>,
    inline_used: usize,
}

impl fmt::Debug for SendList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendList({} of {} requests)", self.len(), self.capacity())
    }
}

impl SendList {
    /// Room for `requests`, with `sges` entries and `inline` bytes for all of them together. A
    /// request with inline data takes one entry.
    pub fn new(requests: usize, sges: usize, inline: usize) -> Self {
        let chain = Chain::new(requests, sges);
        Self { chain, inline: vec![0; inline].into(), inline_used: 0 }
    }

    /// Appends a request; `id` comes back with its completion. Inlined, so that a caller that has just
    /// matched on the operation does not match again.
    #[inline(always)]
    pub fn push(
        &mut self,
        id: u64,
        op: Op,
        data: Data<'_>,
        flags: SendFlags,
    ) -> Result<(), ListError> {
        self.chain.room()?;
        let (wr, inline) = match data {
            Data::Sges(sges) => (self.chain.push(id, sges)?, 0),
            Data::Inline(bytes) => {
                let sge = self.copy(bytes)?;
                let wr = self.chain.push(id, &[sge])?;
                self.inline_used += bytes.len();
                (wr, sys::IBV_SEND_INLINE)
            }
        };
        wr.send_flags = flags.bits() | inline;
        encode(wr, op);
        Ok(())
    }

    /// An entry for inline data, which become the list's own once the entry is.
    #[inline(never)]
    fn copy(&mut self, bytes: &[u8]) -> Result<Sge, ListError> {
        let (capacity, needed) = (self.inline.len(), bytes.len());
        let left = capacity - self.inline_used;
        if needed > left {
            return Err(ListError::Inline { needed, left, capacity });
        }
        let place = &mut self.inline[self.inline_used..][..needed];
        place.copy_from_slice(bytes);
        // The provider copies from there when the list is posted.
        Ok(Sge::new(place.as_ptr() as u64, needed as u32, 0))
    }

    /// Requests in the list.
    pub fn len(&self) -> usize {
        self.chain.requests().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests it has room for.
    pub fn capacity(&self) -> usize {
        self.chain.capacity()
    }

    /// Identifier of the request at `index`, from 0.
    pub fn id(&self, index: usize) -> Option<u64> {
        self.chain.requests().get(index).map(|wr| wr.wr_id)
    }

    /// Sets [`SendFlags::SIGNALED`] on the last request, so that its completion tells of all.
    pub fn signal_last(&mut self) {
        if let Some(wr) = self.chain.last_mut() {
            wr.send_flags |= sys::IBV_SEND_SIGNALED;
        }
    }

    /// Empties the list.
    pub fn clear(&mut self) {
        self.chain.clear();
        self.inline_used = 0;
    }

    #[inline]
    pub(in crate::safe) fn post(
        &mut self,
        call: &'static str,
        post: impl FnOnce(*mut sys::ibv_send_wr, &mut *mut sys::ibv_send_wr) -> c_int,
    ) -> Result<(), PostError> {
        self.chain.post(call, post)
    }
}

#[inline(always)]
fn encode(wr: &mut sys::ibv_send_wr, op: Op) {
    let (opcode, remote) = match op {
        Op::Send => (sys::IBV_WR_SEND, None),
        Op::SendImm(imm) => {
            wr.__bindgen_anon_1.imm_data = imm.to_be();
            (sys::IBV_WR_SEND_WITH_IMM, None)
        }
        Op::SendInvalidate(rkey) => {
            wr.__bindgen_anon_1.invalidate_rkey = rkey.0;
            (sys::IBV_WR_SEND_WITH_INV, None)
        }
        Op::Write(remote) => (sys::IBV_WR_RDMA_WRITE, Some(remote)),
        Op::WriteImm(remote, imm) => {
            wr.__bindgen_anon_1.imm_data = imm.to_be();
            (sys::IBV_WR_RDMA_WRITE_WITH_IMM, Some(remote))
        }
        Op::Read(remote) => (sys::IBV_WR_RDMA_READ, Some(remote)),
        Op::FetchAdd { remote, add } => {
            wr.wr.atomic = atomic(remote, add, 0);
            (sys::IBV_WR_ATOMIC_FETCH_AND_ADD, None)
        }
        Op::CompareSwap { remote, compare, swap } => {
            wr.wr.atomic = atomic(remote, compare, swap);
            (sys::IBV_WR_ATOMIC_CMP_AND_SWP, None)
        }
    };
    wr.opcode = opcode;
    if let Some(Remote { addr, rkey }) = remote {
        wr.wr.rdma =
            sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: addr, rkey: rkey.0 };
    }
}

fn atomic(
    remote: Remote,
    compare_add: u64,
    swap: u64,
) -> sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
    let Remote { addr: remote_addr, rkey } = remote;
    sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey: rkey.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CallError;
    use nix::errno::Errno;
    use std::ptr::null_mut;

    const REMOTE: Remote = Remote::new(0x1000, 7);

    #[test]
    fn requests_are_chained_with_their_entries_and_inline_bytes() {
        let mut list = SendList::new(3, 4, 16);
        let sges = [Sge::new(0x10, 1, 2), Sge::new(0x20, 3, 4)];
        list.push(1, Op::Send, Data::Sges(&sges), SendFlags::FENCE).unwrap();
        list.push(2, Op::WriteImm(REMOTE, 0xabcd), Data::Inline(b"hello"), SendFlags::empty())
            .unwrap();
        list.push(3, Op::Read(REMOTE), Data::Sges(&sges[1..]), SendFlags::SIGNALED).unwrap();
        let mut seen = Vec::new();
        list.post("ibv_post_send", |first, _| {
            let mut wr = first;
            while !wr.is_null() {
                // SAFETY: a chain of live requests.
                let now = unsafe { *wr };
                // SAFETY: each has its entries.
                let sges = unsafe { std::slice::from_raw_parts(now.sg_list, now.num_sge as usize) };
                seen.push((now, sges.to_vec()));
                wr = now.next;
            }
            0
        })
        .unwrap();
        assert_eq!(seen.iter().map(|(wr, _)| wr.wr_id).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(seen.iter().map(|(_, s)| s.len()).collect::<Vec<_>>(), [2, 1, 1]);
        assert_eq!((seen[0].1[1].addr, seen[2].1[0].lkey), (0x20, 4));
        assert_eq!(seen[1].0.send_flags, sys::IBV_SEND_INLINE);
        // SAFETY: bytes of the list's own.
        let bytes = unsafe { std::slice::from_raw_parts(seen[1].1[0].addr as *const u8, 5) };
        assert_eq!(bytes, b"hello");
        // SAFETY: the field of this operation.
        let imm = unsafe { seen[1].0.__bindgen_anon_1.imm_data };
        // SAFETY: as above.
        let rdma = unsafe { seen[1].0.wr.rdma };
        assert_eq!((u32::from_be(imm), rdma.remote_addr, rdma.rkey), (0xabcd, 0x1000, 7));
    }

    #[test]
    fn flags_have_the_values_of_the_header() {
        assert_eq!(SendFlags::FENCE.bits(), sys::IBV_SEND_FENCE);
        assert_eq!(SendFlags::SIGNALED.bits(), sys::IBV_SEND_SIGNALED);
        assert_eq!(SendFlags::SOLICITED.bits(), sys::IBV_SEND_SOLICITED);
    }

    #[test]
    fn what_does_not_fit_leaves_the_list_as_it_was() {
        let mut list = SendList::new(2, 2, 4);
        let sges = [Sge::new(0, 1, 0); 3];
        let flags = SendFlags::empty();
        let refused = list.push(1, Op::Send, Data::Sges(&sges), flags);
        assert_eq!(refused, Err(ListError::Sges { needed: 3, left: 2, capacity: 2 }));
        let refused = list.push(1, Op::Send, Data::Inline(b"12345"), flags);
        assert_eq!(refused, Err(ListError::Inline { needed: 5, left: 4, capacity: 4 }));
        assert!(list.is_empty());
        for id in 0..2 {
            list.push(id, Op::Send, Data::Inline(b"12"), flags).unwrap();
        }
        let refused = list.push(2, Op::Send, Data::Sges(&[]), flags);
        assert_eq!(refused, Err(ListError::Full { capacity: 2 }));
        list.clear();
        list.push(9, Op::Send, Data::Inline(b"1234"), flags).unwrap();
        assert_eq!((list.len(), list.id(0), list.id(1)), (1, Some(9), None));
    }

    #[test]
    fn a_failure_tells_how_many_were_posted() {
        let mut list = SendList::new(4, 0, 0);
        for id in 0..3 {
            list.push(id, Op::Send, Data::Sges(&[]), SendFlags::empty()).unwrap();
        }
        let source = CallError { call: "ibv_post_send", errno: Errno::ENOMEM };
        let mut posted = |place: fn(*mut sys::ibv_send_wr) -> *mut sys::ibv_send_wr| {
            list.post(source.call, |first, bad| {
                *bad = place(first);
                source.errno as c_int
            })
        };
        let refused = |posted| Err(PostError { source, posted, total: 3 });
        assert_eq!(posted(|first| first.wrapping_add(2)), refused(2));
        assert_eq!(posted(|first| first), refused(0));
        assert_eq!(posted(|_| null_mut()), refused(0));
    }
}
