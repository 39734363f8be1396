//! Extended queue pairs: work requests are written into the send queue one by one, without a list
//! between, and posted together.

use crate::cq::{is_soft_roce, not_offered};
use crate::{ExtraError, Offer};
use bitflags::bitflags;
use nix::errno::Errno;
use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use thiserror::Error;
use warpverbs_rdma::{Data, Op, Remote, SendFlags, Sge};
use warpverbs_verbs::call::{check, object};
use warpverbs_verbs::{CallError, Pd, Qp, QpOptions, VerbsError, sys};

bitflags! {
    /// Operations of a QP, by the bits of `enum ibv_qp_create_send_ops_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SendOps: u64 {
        /// [`Op::Send`].
        const SEND = sys::IBV_QP_EX_WITH_SEND as u64;
        /// [`Op::SendImm`].
        const SEND_IMM = sys::IBV_QP_EX_WITH_SEND_WITH_IMM as u64;
        /// [`Op::SendInvalidate`].
        const SEND_INV = sys::IBV_QP_EX_WITH_SEND_WITH_INV as u64;
        /// [`Op::Write`].
        const WRITE = sys::IBV_QP_EX_WITH_RDMA_WRITE as u64;
        /// [`Op::WriteImm`].
        const WRITE_IMM = sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM as u64;
        /// [`Op::Read`].
        const READ = sys::IBV_QP_EX_WITH_RDMA_READ as u64;
        /// [`Op::FetchAdd`].
        const FETCH_ADD = sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD as u64;
        /// [`Op::CompareSwap`].
        const CMP_SWAP = sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP as u64;
    }
}

impl fmt::Display for SendOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

impl From<Op> for SendOps {
    fn from(op: Op) -> Self {
        match op {
            Op::Send => Self::SEND,
            Op::SendImm(_) => Self::SEND_IMM,
            Op::SendInvalidate(_) => Self::SEND_INV,
            Op::Write(_) => Self::WRITE,
            Op::WriteImm(..) => Self::WRITE_IMM,
            Op::Read(_) => Self::READ,
            Op::FetchAdd { .. } => Self::FETCH_ADD,
            Op::CompareSwap { .. } => Self::CMP_SWAP,
        }
    }
}

/// A work request does not fit its batch, which is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The QP was made for others.
    #[error("the QP was made for {made_for}, not for {asked}")]
    Operation {
        /// The operation.
        asked: SendOps,
        /// The QP's operations.
        made_for: SendOps,
    },
    /// More than the send queue takes in one request.
    #[error("{needed} entries are needed, the QP was made for {max}")]
    Sges {
        /// Entries of the request.
        needed: usize,
        /// [`QpCaps::max_send_sge`](warpverbs_verbs::QpCaps::max_send_sge).
        max: u32,
    },
    /// More than the send queue takes in one request.
    #[error("{needed} bytes of inline data are needed, the QP was made for {max}")]
    Inline {
        /// Bytes of the request.
        needed: usize,
        /// [`QpCaps::max_inline`](warpverbs_verbs::QpCaps::max_inline).
        max: u32,
    },
    /// Only SENDs and WRITEs carry inline data.
    #[error("{0} takes no inline data")]
    NotInline(SendOps),
    /// The driver of Linux's soft-RoCE, before rdma-core 64, counts the first entry's bytes for each.
    #[error("soft-RoCE's driver miscounts entries of different lengths in a batch")]
    UnequalSges,
}

/// An RC queue pair that takes batches.
///
/// ```no_run
/// # use warpverbs_verbs::{Data, Op, Pd, QpOptions, Remote, SendFlags};
/// # use warpverbs_verbs_extra::{ExtendedQp, ExtraError, SendOps};
/// # fn main() -> Result<(), ExtraError> {
/// # let (pd, options, remote): (Pd, QpOptions, Remote) = todo!();
/// let mut qp = ExtendedQp::new(&pd, &options, SendOps::WRITE | SendOps::SEND)?;
/// // … `qp.qp()` is connected as any other …
/// let mut batch = qp.start()?;
/// batch.push(1, Op::Write(remote), Data::Inline(b"data"), SendFlags::empty())?;
/// batch.push(2, Op::Send, Data::Sges(&[]), SendFlags::SIGNALED)?;
/// batch.post()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ExtendedQp {
    // Destroyed on drop, unless a batch was forgotten.
    qp: ManuallyDrop<Qp>,
    ptr: NonNull<sys::ibv_qp_ex>,
    ops: SendOps,
    /// The driver does not count entries of different lengths.
    equal_sges: bool,
    /// The driver's lock is held: by a [`Batch`], or for ever by one that was forgotten.
    held: bool,
}

// SAFETY: as `Qp`; a `Batch`, which is bound to its thread, borrows it.
unsafe impl Send for ExtendedQp {}
// SAFETY: shared, only `qp` is used, which is `Sync`.
unsafe impl Sync for ExtendedQp {}

impl Drop for ExtendedQp {
    fn drop(&mut self) {
        if self.held {
            return tracing::error!(qp = ?*self.qp, "its batch was forgotten, so it is never destroyed");
        }
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.qp) }
    }
}

impl ExtendedQp {
    /// A QP in the state RESET, for these operations. A refusal names those that the device has not.
    pub fn new(pd: &Pd, options: &QpOptions, ops: SendOps) -> Result<Self, ExtraError> {
        let made = Self::make(pd, options, ops).and_then(|qp| {
            let ptr = extended(&qp).ok_or(CallError::absent("ibv_qp_to_qp_ex"))?;
            Ok((qp, ptr))
        });
        let (qp, ptr) = made.map_err(|error| match &error {
            VerbsError::Call(call) if not_offered(call.errno) => refusal(pd, options, ops, error),
            _ => error.into(),
        })?;
        let equal_sges = is_soft_roce(pd.context())?;
        Ok(Self { qp: ManuallyDrop::new(qp), ptr, ops, equal_sges, held: false })
    }

    fn make(pd: &Pd, options: &QpOptions, ops: SendOps) -> Result<Qp, VerbsError> {
        let call = "ibv_create_qp_ex";
        let create = |attr: &mut sys::ibv_qp_init_attr| {
            let create =
                extension_op!(pd.context(), create_qp_ex).ok_or(CallError::absent(call))?;
            let mut extended: sys::ibv_qp_init_attr_ex = sys::zeroed();
            (extended.send_cq, extended.recv_cq) = (attr.send_cq, attr.recv_cq);
            (extended.srq, extended.cap) = (attr.srq, attr.cap);
            (extended.qp_type, extended.sq_sig_all) = (attr.qp_type, attr.sq_sig_all);
            (extended.pd, extended.send_ops_flags) = (pd.ptr().as_ptr(), ops.bits());
            extended.comp_mask = sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            // SAFETY: live objects of one context.
            let made = unsafe { create(pd.context().ptr().as_ptr(), &mut extended) };
            attr.cap = extended.cap;
            object(call, made)
        };
        // SAFETY: an RC QP of this domain and these attributes, for nobody else.
        unsafe { Qp::made_by(pd, options, create) }
    }

    /// For transitions, receives, and lists of sends.
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// The operations that batches may have.
    pub fn ops(&self) -> SendOps {
        self.ops
    }

    /// Begins a batch, which holds the send queue's lock in the driver until it is posted or
    /// dropped: other threads wait that post here. One that is forgotten keeps the lock; the next
    /// fails with `EDEADLK`.
    pub fn start(&mut self) -> Result<Batch<'_>, CallError> {
        if self.held {
            return Err(CallError { call: "ibv_wr_start", errno: Errno::EDEADLK });
        }
        self.held = true;
        // There is no batch.
        call_own!(self.ptr.as_ptr(), wr_start());
        Ok(Batch { qp: self, len: 0, _own_thread: PhantomData })
    }
}

/// The extended view of a QP, if it has what every batch needs.
fn extended(qp: &Qp) -> Option<NonNull<sys::ibv_qp_ex>> {
    let convert = qp.pd().context().api().ibv_qp_to_qp_ex?;
    // SAFETY: a live QP.
    let ptr = NonNull::new(unsafe { convert(qp.ptr().as_ptr()) })?;
    macro_rules! has {
        // SAFETY: a live QP, whose functions do not change; read as the pointers that they are.
        ($($function:ident)*) => { $(unsafe { (*ptr.as_ptr()).$function }.is_some())&&* };
    }
    has!(wr_start wr_complete wr_abort wr_set_sge wr_set_sge_list wr_set_inline_data).then_some(ptr)
}

/// Which operations the device does not have, or that it has no such QPs.
fn refusal(pd: &Pd, options: &QpOptions, ops: SendOps, error: VerbsError) -> ExtraError {
    let refused = |op: &SendOps| ExtendedQp::make(pd, options, *op).is_err();
    let alone = ops.iter().filter(refused).collect::<SendOps>();
    let what = match &error {
        VerbsError::Call(call) if call.call == "ibv_qp_to_qp_ex" => Offer::ExtendedQps,
        // No operation is refused alone, or plain QPs are as well: the operations are not at fault.
        _ if alone.is_empty() || Qp::new(pd, options).is_err() => return error.into(),
        _ if ExtendedQp::make(pd, options, SendOps::SEND).is_err() => Offer::ExtendedQps,
        _ => Offer::SendOps(alone),
    };
    what.lacks(pd.context())
}

/// Work requests being written; forgotten on drop, unless they were posted. Belongs to the thread
/// that made it, as locks do:
///
/// ```compile_fail,E0277
/// fn elsewhere(batch: warpverbs_verbs_extra::Batch<'_>) {
///     std::thread::scope(|scope| drop(scope.spawn(move || batch.post())));
/// }
/// ```
#[derive(Debug)]
pub struct Batch<'a> {
    qp: &'a mut ExtendedQp,
    len: usize,
    _own_thread: PhantomData<*mut ()>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.qp.held {
            // Begun by this batch on this thread, and not yet ended.
            call_own!(self.qp.ptr.as_ptr(), wr_abort());
            self.qp.held = false;
        }
    }
}

impl Batch<'_> {
    /// Appends a request; `id` comes back with its completion. A send queue without
    /// room is an error of [`post`](Self::post).
    #[inline]
    pub fn push(
        &mut self,
        id: u64,
        op: Op,
        data: Data<'_>,
        flags: SendFlags,
    ) -> Result<(), BatchError> {
        self.check(op.into(), data)?;
        let inline = match data {
            Data::Inline(bytes) if !bytes.is_empty() => sys::IBV_SEND_INLINE,
            _ => 0,
        };
        let ptr = self.qp.ptr.as_ptr();
        // SAFETY: a live QP, whose lock this batch holds.
        unsafe { (*ptr).wr_id = id };
        // Most drivers know inline data by the call that sets them; soft-RoCE's wants the flag too.
        // SAFETY: as above.
        unsafe { (*ptr).wr_flags = flags.bits() | inline };
        // A driver that grants an operation and then has no function for it has begun nothing.
        let made_for = self.qp.ops;
        self.begin(op).ok_or(BatchError::Operation { asked: op.into(), made_for })?;
        self.set(data);
        self.len += 1;
        Ok(())
    }

    fn check(&self, op: SendOps, data: Data<'_>) -> Result<(), BatchError> {
        let (caps, made_for) = (self.qp.qp.caps(), self.qp.ops);
        if !made_for.contains(op) {
            return Err(BatchError::Operation { asked: op, made_for });
        }
        let takes_inline = SendOps::SEND
            | SendOps::SEND_IMM
            | SendOps::SEND_INV
            | SendOps::WRITE
            | SendOps::WRITE_IMM;
        match data {
            Data::Sges([]) | Data::Inline([]) => Ok(()),
            Data::Sges(sges) if sges.len() > caps.max_send_sge as usize => {
                Err(BatchError::Sges { needed: sges.len(), max: caps.max_send_sge })
            }
            Data::Sges(sges) => {
                let unequal = sges.iter().any(|sge| sge.len != sges[0].len);
                if self.qp.equal_sges && unequal { Err(BatchError::UnequalSges) } else { Ok(()) }
            }
            Data::Inline(_) if !takes_inline.contains(op) => Err(BatchError::NotInline(op)),
            Data::Inline(bytes) if bytes.len() > caps.max_inline as usize => {
                Err(BatchError::Inline { needed: bytes.len(), max: caps.max_inline })
            }
            Data::Inline(_) => Ok(()),
        }
    }

    /// Writes the request, less its data.
    #[inline]
    fn begin(&mut self, op: Op) -> Option<()> {
        let qp = self.qp.ptr.as_ptr();
        // One call each, inside the batch; their arguments are numbers, which the device checks.
        match op {
            Op::Send => call_own!(qp, wr_send()),
            Op::SendImm(imm) => call_own!(qp, wr_send_imm(imm.to_be())),
            Op::SendInvalidate(rkey) => call_own!(qp, wr_send_inv(rkey.0)),
            Op::Write(Remote { addr, rkey }) => call_own!(qp, wr_rdma_write(rkey.0, addr)),
            Op::WriteImm(Remote { addr, rkey }, imm) => {
                call_own!(qp, wr_rdma_write_imm(rkey.0, addr, imm.to_be()))
            }
            Op::Read(Remote { addr, rkey }) => call_own!(qp, wr_rdma_read(rkey.0, addr)),
            Op::FetchAdd { remote: Remote { addr, rkey }, add } => {
                call_own!(qp, wr_atomic_fetch_add(rkey.0, addr, add))
            }
            Op::CompareSwap { remote: Remote { addr, rkey }, compare, swap } => {
                call_own!(qp, wr_atomic_cmp_swp(rkey.0, addr, compare, swap))
            }
        }
    }

    /// Gives the request begun last its data, which may be none.
    #[inline]
    fn set(&mut self, data: Data<'_>) {
        let qp = self.qp.ptr.as_ptr();
        // All of these functions are there: `new` has looked. A request was begun.
        let _ = match data {
            Data::Sges([sge]) => {
                call_own!(qp, wr_set_sge(sge.lkey.0, sge.addr, sge.len))
            }
            Data::Inline(bytes) if !bytes.is_empty() => {
                let at = bytes.as_ptr().cast_mut().cast();
                // The driver copies from these bytes now.
                call_own!(qp, wr_set_inline_data(at, bytes.len()))
            }
            Data::Sges(sges) => self.set_list(sges),
            Data::Inline(_) => self.set_list(&[]),
        };
    }

    fn set_list(&mut self, sges: &[Sge]) -> Option<()> {
        // The driver copies these entries now, and `Sge` has the layout of `ibv_sge`, which `SendList`
        // asserts.
        let list = sges.as_ptr().cast();
        call_own!(self.qp.ptr.as_ptr(), wr_set_sge_list(sges.len(), list))
    }

    /// Requests in the batch.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Posts all requests. If that fails, none of them was posted: `ENOMEM` as a rule if the send
    /// queue is full (soft-RoCE says `ENOSPC`).
    #[inline]
    pub fn post(self) -> Result<(), CallError> {
        if self.is_empty() {
            return Ok(());
        }
        self.qp.held = false;
        // Begun by this batch on this thread; `held` says that it has ended.
        let code = call_own!(self.qp.ptr.as_ptr(), wr_complete());
        check("ibv_wr_complete", code.unwrap_or(Errno::EINVAL as c_int))
    }
}
