//! Send work requests.

use super::backoff::Backoff;
use super::host::Path;
use super::poster::Poster;
use super::request::{Action, Request};
use super::work::Posted;
use crate::QueueKind;
use crate::SendFlags;
use crate::sges::{fits, pieces};
use crate::{LocalRegion, RemoteRegion, TransportError, UsageError, WaitError};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedFetchAdd};
use warpverbs_mlx5::num::WQEBB;
use warpverbs_rdma::{Data, Op, Remote, Rkey, Sge};

impl Poster<'_> {
    /// SEND: the peer's next receive gets the bytes of `local`, in order.
    #[doc(alias = "PostSend")]
    pub fn post_send(
        &self,
        local: impl AsRef<[LocalRegion]>,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let pieces = pieces(local.as_ref(), None)?;
        self.post(Action::Rdma(Op::Send), Data::Sges(&pieces), flags)
    }

    /// SEND with an immediate.
    pub fn post_send_imm(
        &self,
        local: impl AsRef<[LocalRegion]>,
        imm: u32,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let pieces = pieces(local.as_ref(), None)?;
        self.post(Action::Rdma(Op::SendImm(imm)), Data::Sges(&pieces), flags)
    }

    /// SEND that makes the peer's NIC invalidate the peer's key `rkey`.
    pub fn post_send_inval(
        &self,
        local: impl AsRef<[LocalRegion]>,
        rkey: u32,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let pieces = pieces(local.as_ref(), None)?;
        self.post(Action::Rdma(Op::SendInvalidate(Rkey(rkey))), Data::Sges(&pieces), flags)
    }

    /// SEND of bytes that are copied into the work request; they may change right after.
    pub fn post_send_inline(
        &self,
        data: &[u8],
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        self.check_inline(data)?;
        self.post(Action::Rdma(Op::Send), Data::Inline(data), flags)
    }

    /// RDMA WRITE of `local`, in order, to the beginning of `remote`.
    #[doc(alias = "PostWrite")]
    #[inline]
    pub fn post_write(
        &self,
        local: impl AsRef<[LocalRegion]>,
        remote: RemoteRegion,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let pieces = pieces(local.as_ref(), Some(remote))?;
        self.post(Action::Rdma(Op::Write(start(remote))), Data::Sges(&pieces), flags)
    }

    /// RDMA WRITE that also consumes a receive of the peer and hands it `imm`.
    pub fn post_write_imm(
        &self,
        local: impl AsRef<[LocalRegion]>,
        remote: RemoteRegion,
        imm: u32,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let pieces = pieces(local.as_ref(), Some(remote))?;
        self.post(Action::Rdma(Op::WriteImm(start(remote), imm)), Data::Sges(&pieces), flags)
    }

    /// RDMA WRITE of bytes that are copied into the work request; they may change right after.
    #[doc(alias = "PostWriteInline")]
    pub fn post_write_inline(
        &self,
        data: &[u8],
        remote: RemoteRegion,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        self.check_inline(data)?;
        fits(data.len() as u64, remote)?;
        self.post(Action::Rdma(Op::Write(start(remote))), Data::Inline(data), flags)
    }

    /// RDMA READ from the beginning of `remote` into `local`, in order.
    #[doc(alias = "PostRead")]
    pub fn post_read(
        &self,
        local: impl AsRef<[LocalRegion]>,
        remote: RemoteRegion,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let pieces = pieces(local.as_ref(), Some(remote))?;
        self.post(Action::Rdma(Op::Read(start(remote))), Data::Sges(&pieces), flags)
    }

    /// 8-byte fetch-and-add on the start of `remote`; its old value goes to the start of `result`,
    /// in host byte order.
    #[doc(alias = "PostAtomic")]
    pub fn post_fetch_add(
        &self,
        result: LocalRegion,
        remote: RemoteRegion,
        add: u64,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let (result, remote) = words(result, remote, 8)?;
        self.post(Action::Rdma(Op::FetchAdd { remote, add }), Data::Sges(&[result]), flags)
    }

    /// 8-byte compare-and-swap on the start of `remote`; its old value goes to the start of
    /// `result`, in host byte order.
    #[doc(alias = "PostAtomic")]
    pub fn post_compare_swap(
        &self,
        result: LocalRegion,
        remote: RemoteRegion,
        compare: u64,
        swap: u64,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let (result, remote) = words(result, remote, 8)?;
        let op = Op::CompareSwap { remote, compare, swap };
        self.post(Action::Rdma(op), Data::Sges(&[result]), flags)
    }

    /// Masked fetch-and-add on 4 or 8 bytes; a 4-byte old value arrives big-endian.
    pub fn post_masked_fetch_add(
        &self,
        result: LocalRegion,
        remote: RemoteRegion,
        operands: MaskedFetchAdd,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let (result, remote) = words(result, remote, operands.size().into())?;
        self.post(Action::MaskedFetchAdd(remote, operands), Data::Sges(&[result]), flags)
    }

    /// Masked compare-and-swap on 4 or 8 bytes; a 4-byte old value arrives big-endian.
    pub fn post_masked_compare_swap(
        &self,
        result: LocalRegion,
        remote: RemoteRegion,
        operands: MaskedCompareSwap,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let (result, remote) = words(result, remote, operands.size().into())?;
        self.post(Action::MaskedCompareSwap(remote, operands), Data::Sges(&[result]), flags)
    }

    /// Does nothing, and completes after all earlier work.
    pub fn post_nop(&self, flags: SendFlags) -> Result<Posted, TransportError> {
        self.post(Action::Nop, Data::Sges(&[]), flags)
    }

    /// Takes back a key of this side that was registered with
    /// [`Access::INVALIDATE`](crate::Access::INVALIDATE).
    pub fn post_local_inval(&self, rkey: u32, flags: SendFlags) -> Result<Posted, TransportError> {
        self.post(Action::LocalInvalidate(Rkey(rkey)), Data::Sges(&[]), flags)
    }

    /// Adds to the 8 bytes at the start of `remote` and waits for their old value.
    pub fn fetch_add(&self, remote: RemoteRegion, add: u64) -> Result<u64, TransportError> {
        self.fetch(|result| self.post_fetch_add(result, remote, add, SendFlags::SIGNALED))
    }

    /// Stores `swap` to the 8 bytes at the start of `remote` if they hold `compare`, and waits for
    /// their old value.
    pub fn compare_swap(
        &self,
        remote: RemoteRegion,
        compare: u64,
        swap: u64,
    ) -> Result<u64, TransportError> {
        let flags = SendFlags::SIGNALED;
        self.fetch(|result| self.post_compare_swap(result, remote, compare, swap, flags))
    }

    /// Lends `post` a scratch slot for a result and waits for it.
    fn fetch(
        &self,
        post: impl FnOnce(LocalRegion) -> Result<Posted, TransportError>,
    ) -> Result<u64, TransportError> {
        let (q, slot) = (self.q, self.take_scratch()?);
        let free = || q.scratch_free[0].fetch_or(1 << slot, Release);
        let addr = q.scratch.region().addr() + 8 * u64::from(slot);
        let posted = post(LocalRegion::new(addr, 8, q.scratch_lkey)).inspect_err(|_| {
            free();
        })?;
        // Not given back if the wait fails: the NIC may still write there.
        self.wait(posted)?;
        let value = q.scratch[slot as usize].load(Acquire);
        free();
        Ok(value)
    }

    fn take_scratch(&self) -> Result<u32, TransportError> {
        let mut backoff = Backoff::new(self.timeout);
        let free = &self.q.scratch_free[0];
        loop {
            let slots = free.load(Relaxed);
            let without_lowest = slots & slots.wrapping_sub(1);
            let taken = free.compare_exchange_weak(slots, without_lowest, AcqRel, Relaxed);
            if slots != 0 && taken.is_ok() {
                return Ok(slots.trailing_zeros());
            }
            if slots == 0 {
                self.q.words.check_abort()?;
            }
            if slots == 0 && !backoff.pause() {
                let (qpn, after) = (self.q.words.qpn.get(), self.timeout);
                return Err(WaitError::NoScratch { qpn, after }.into());
            }
        }
    }

    fn check_inline(&self, data: &[u8]) -> Result<(), UsageError> {
        match data.len() {
            bytes if (1..=self.q.inline_bytes).contains(&bytes) => Ok(()),
            bytes => Err(UsageError::Inline { bytes, max: self.q.inline_bytes }),
        }
    }

    /// Posts a work request as soon as there is room.
    #[inline]
    fn post(
        &self,
        action: Action,
        data: Data<'_>,
        flags: SendFlags,
    ) -> Result<Posted, TransportError> {
        let (q, request) = (self.q, Request { action, data, flags });
        if self.peer.load(Acquire) == 0 {
            return Err(UsageError::NotConnected { qpn: q.words.qpn.get() }.into());
        }
        q.check()?;
        match q.path() {
            Path::Rings(rings) => {
                let mut buf = [0; 4 * WQEBB];
                let wqe = rings.encode(&request, &mut buf, q.words.qpn)?;
                self.when_room(QueueKind::Send, || rings.try_post(&q.words.send, wqe, &request))
            }
            Path::Direct(direct) => {
                self.when_room(QueueKind::Send, || direct.try_post(&q.words, &request))
            }
        }
    }
}

#[inline]
fn start(remote: RemoteRegion) -> Remote {
    Remote::new(remote.addr(), remote.rkey())
}

/// Both ends of an atomic on `size` bytes.
fn words(
    result: LocalRegion,
    remote: RemoteRegion,
    size: u64,
) -> Result<(Sge, Remote), UsageError> {
    if remote.len() < size || !remote.addr().is_multiple_of(size) {
        let (addr, len) = (remote.addr(), remote.len());
        return Err(UsageError::AtomicWord { addr, len, size });
    }
    if result.len() < size {
        let (addr, len) = (result.addr(), result.len());
        return Err(UsageError::AtomicWord { addr, len, size });
    }
    Ok((Sge::new(result.addr(), size as u32, result.lkey()), start(remote)))
}
