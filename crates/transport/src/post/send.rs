//! Send work requests.

use super::host::Patience;
use super::poster::Poster;
use super::work::Posted;
use crate::QueueKind;
use crate::SendFlags;
use crate::config::MAX_SEND_SGES;
use crate::{Error, LocalRegion, RemoteRegion, UsageError, WaitError};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedFetchAdd};
use warpverbs_mlx5::num::{Lkey, MAX_MESSAGE, Rkey, WQEBB, WqeIndex};
use warpverbs_mlx5::wqe::{self, Position, Sge, WqeBuilder};

/// Bytes of the largest send work request of the host's: four WQEBBs.
type Bytes = [u8; 4 * WQEBB];

impl Poster<'_> {
    /// SEND: the peer's next receive gets the bytes of `local`, in order.
    #[doc(alias = "PostSend")]
    pub fn post_send(
        &self,
        local: impl AsRef<[LocalRegion]>,
        flags: SendFlags,
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        self.post(with_sges(WqeBuilder::send(buf, *at), local.as_ref(), None)?, flags)
    }

    /// SEND with an immediate.
    pub fn post_send_imm(
        &self,
        local: impl AsRef<[LocalRegion]>,
        imm: u32,
        flags: SendFlags,
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        self.post(with_sges(WqeBuilder::send_imm(buf, *at, imm), local.as_ref(), None)?, flags)
    }

    /// SEND that makes the peer's NIC invalidate the peer's key `rkey`.
    pub fn post_send_inval(
        &self,
        local: impl AsRef<[LocalRegion]>,
        rkey: u32,
        flags: SendFlags,
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        let wqe = WqeBuilder::send_inval(buf, *at, Rkey(rkey));
        self.post(with_sges(wqe, local.as_ref(), None)?, flags)
    }

    /// SEND of bytes that are copied into the work request; they may change right after.
    pub fn post_send_inline(&self, data: &[u8], flags: SendFlags) -> Result<Posted, Error> {
        self.check_inline(data)?;
        let (buf, at) = &mut self.blank();
        self.post(WqeBuilder::send(buf, *at).inline(data), flags)
    }

    /// RDMA WRITE of `local`, in order, to the beginning of `remote`.
    #[doc(alias = "PostWrite")]
    #[inline]
    pub fn post_write(
        &self,
        local: impl AsRef<[LocalRegion]>,
        remote: RemoteRegion,
        flags: SendFlags,
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        let wqe = WqeBuilder::write(buf, *at, start(remote));
        self.post(with_sges(wqe, local.as_ref(), Some(remote))?, flags)
    }

    /// RDMA WRITE that also consumes a receive of the peer and hands it `imm`.
    pub fn post_write_imm(
        &self,
        local: impl AsRef<[LocalRegion]>,
        remote: RemoteRegion,
        imm: u32,
        flags: SendFlags,
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        let wqe = WqeBuilder::write_imm(buf, *at, start(remote), imm);
        self.post(with_sges(wqe, local.as_ref(), Some(remote))?, flags)
    }

    /// RDMA WRITE of bytes that are copied into the work request; they may change right after.
    #[doc(alias = "PostWriteInline")]
    pub fn post_write_inline(
        &self,
        data: &[u8],
        remote: RemoteRegion,
        flags: SendFlags,
    ) -> Result<Posted, Error> {
        self.check_inline(data)?;
        fits(data.len() as u64, remote)?;
        let (buf, at) = &mut self.blank();
        self.post(WqeBuilder::write(buf, *at, start(remote)).inline(data), flags)
    }

    /// RDMA READ from the beginning of `remote` into `local`, in order.
    #[doc(alias = "PostRead")]
    pub fn post_read(
        &self,
        local: impl AsRef<[LocalRegion]>,
        remote: RemoteRegion,
        flags: SendFlags,
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        let wqe = WqeBuilder::read(buf, *at, start(remote));
        self.post(with_sges(wqe, local.as_ref(), Some(remote))?, flags)
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
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        let (result, remote) = words(result, remote, 8)?;
        self.post(WqeBuilder::fetch_add(buf, *at, remote, add, result), flags)
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
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        let (result, remote) = words(result, remote, 8)?;
        self.post(WqeBuilder::compare_swap(buf, *at, remote, compare, swap, result), flags)
    }

    /// Masked fetch-and-add on 4 or 8 bytes; a 4-byte old value arrives big-endian.
    pub fn post_masked_fetch_add(
        &self,
        result: LocalRegion,
        remote: RemoteRegion,
        operands: MaskedFetchAdd,
        flags: SendFlags,
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        let (result, remote) = words(result, remote, operands.size().into())?;
        self.post(WqeBuilder::masked_fetch_add(buf, *at, remote, operands, result), flags)
    }

    /// Masked compare-and-swap on 4 or 8 bytes; a 4-byte old value arrives big-endian.
    pub fn post_masked_compare_swap(
        &self,
        result: LocalRegion,
        remote: RemoteRegion,
        operands: MaskedCompareSwap,
        flags: SendFlags,
    ) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        let (result, remote) = words(result, remote, operands.size().into())?;
        self.post(WqeBuilder::masked_compare_swap(buf, *at, remote, operands, result), flags)
    }

    /// Does nothing, and completes after all earlier work.
    pub fn post_nop(&self, flags: SendFlags) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        self.post(WqeBuilder::nop(buf, *at), flags)
    }

    /// Takes back a key of this side that was registered with
    /// [`Access::INVALIDATE`](crate::Access::INVALIDATE).
    pub fn post_local_inval(&self, rkey: u32, flags: SendFlags) -> Result<Posted, Error> {
        let (buf, at) = &mut self.blank();
        self.post(WqeBuilder::local_inval(buf, *at, Rkey(rkey)), flags)
    }

    /// Adds to the 8 bytes at the start of `remote` and waits for their old value.
    pub fn fetch_add(&self, remote: RemoteRegion, add: u64) -> Result<u64, Error> {
        self.fetch(|result| self.post_fetch_add(result, remote, add, SendFlags::SIGNALED))
    }

    /// Stores `swap` to the 8 bytes at the start of `remote` if they hold `compare`, and waits for
    /// their old value.
    pub fn compare_swap(
        &self,
        remote: RemoteRegion,
        compare: u64,
        swap: u64,
    ) -> Result<u64, Error> {
        let flags = SendFlags::SIGNALED;
        self.fetch(|result| self.post_compare_swap(result, remote, compare, swap, flags))
    }

    /// Lends `post` a scratch slot for a result and waits for it.
    fn fetch(&self, post: impl FnOnce(LocalRegion) -> Result<Posted, Error>) -> Result<u64, Error> {
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

    fn take_scratch(&self) -> Result<u32, Error> {
        let mut patience = Patience::new(self.timeout);
        let free = &self.q.scratch_free[0];
        loop {
            let slots = free.load(Relaxed);
            let without_lowest = slots & slots.wrapping_sub(1);
            let taken = free.compare_exchange_weak(slots, without_lowest, AcqRel, Relaxed);
            if slots != 0 && taken.is_ok() {
                return Ok(slots.trailing_zeros());
            }
            if slots == 0 {
                self.q.check_abort()?;
            }
            if slots == 0 && !patience.pause() {
                let (qpn, after) = (self.q.qpn.get(), self.timeout);
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

    /// A buffer for a work request, and a place in the ring; [`Poster::post`] puts in the index.
    #[inline]
    fn blank(&self) -> (Bytes, Position) {
        ([0; 4 * WQEBB], Position { qpn: self.q.qpn, index: WqeIndex(0) })
    }

    /// Posts what was built, as soon as there is room.
    #[inline]
    fn post(&self, wqe: WqeBuilder<'_>, flags: SendFlags) -> Result<Posted, Error> {
        let q = self.q;
        let wqe = wqe.finish().map_err(UsageError::from)?;
        if self.peer.load(Acquire) == 0 {
            return Err(UsageError::NotConnected { qpn: q.qpn.get() }.into());
        }
        q.check()?;
        self.when_room(QueueKind::Send, || q.try_post(wqe, flags))
    }
}

#[inline]
fn start(remote: RemoteRegion) -> wqe::Remote {
    wqe::Remote { addr: remote.addr(), rkey: Rkey(remote.rkey()) }
}

fn fits(local: u64, remote: RemoteRegion) -> Result<(), UsageError> {
    match local <= remote.len() {
        true => Ok(()),
        false => Err(UsageError::LengthMismatch { local, remote: remote.len() }),
    }
}

#[inline]
fn with_sges<'b>(
    mut wqe: WqeBuilder<'b>,
    local: &[LocalRegion],
    remote: Option<RemoteRegion>,
) -> Result<WqeBuilder<'b>, UsageError> {
    if local.len() > MAX_SEND_SGES {
        return Err(UsageError::TooManySges { count: local.len(), max: MAX_SEND_SGES });
    }
    let mut bytes = 0u64;
    for part in local.iter().filter(|part| !part.is_empty()) {
        bytes = bytes.saturating_add(part.len());
        wqe = wqe.sge(sge(part)?);
    }
    if bytes > MAX_MESSAGE {
        return Err(UsageError::TooLong { bytes, max: MAX_MESSAGE });
    }
    remote.map_or(Ok(()), |remote| fits(bytes, remote))?;
    Ok(wqe)
}

/// One piece of local memory of at most `MAX_MESSAGE` bytes.
#[inline]
pub(super) fn sge(part: &LocalRegion) -> Result<Sge, UsageError> {
    match part.len() {
        bytes if bytes > MAX_MESSAGE => Err(UsageError::TooLong { bytes, max: MAX_MESSAGE }),
        len => Ok(Sge { addr: part.addr(), len: len as u32, lkey: Lkey(part.lkey()) }),
    }
}

/// Both ends of an atomic on `size` bytes.
fn words(
    result: LocalRegion,
    remote: RemoteRegion,
    size: u64,
) -> Result<(wqe::Local, wqe::Remote), UsageError> {
    if remote.len() < size || !remote.addr().is_multiple_of(size) {
        let (addr, len) = (remote.addr(), remote.len());
        return Err(UsageError::AtomicWord { addr, len, size });
    }
    if result.len() < size {
        let (addr, len) = (result.addr(), result.len());
        return Err(UsageError::AtomicWord { addr, len, size });
    }
    let local = wqe::Local { addr: result.addr(), lkey: Lkey(result.lkey()) };
    Ok((local, start(remote)))
}
