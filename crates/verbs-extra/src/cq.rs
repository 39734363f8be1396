//! Extended completion queues: completions are looked at where they lie, field by field, with
//! fields that the classic completion has not.

use crate::{ExtraError, Offer};
use bitflags::bitflags;
use nix::errno::Errno;
use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::mem::forget;
use std::ptr::NonNull;
use warpverbs_verbs::call::{check, object};
use warpverbs_verbs::{
    CallError, Context, Cq, CqOptions, CqParts, Status, VerbsError, WcOpcode, sys,
};

bitflags! {
    /// Fields of a completion, by the bits of `enum ibv_create_cq_wc_flags`. Identifier, status,
    /// operation and the vendor's code are always there.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CompletionFields: u64 {
        /// [`Polled::byte_len`].
        const BYTE_LEN = sys::IBV_WC_EX_WITH_BYTE_LEN as u64;
        /// [`Polled::imm`] and [`Polled::invalidated_rkey`].
        const IMM = sys::IBV_WC_EX_WITH_IMM as u64;
        /// [`Polled::qpn`].
        const QPN = sys::IBV_WC_EX_WITH_QP_NUM as u64;
        /// [`Polled::peer_qpn`].
        const PEER_QPN = sys::IBV_WC_EX_WITH_SRC_QP as u64;
        /// [`Polled::timestamp`].
        const TIMESTAMP = sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP as u64;
        /// [`Polled::wallclock`].
        const WALLCLOCK = sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK as u64;
    }
}

impl CompletionFields {
    /// Those of a [`Completion`](warpverbs_verbs::Completion).
    pub const CLASSIC: Self = Self::BYTE_LEN.union(Self::IMM).union(Self::QPN);
}

impl fmt::Display for CompletionFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

/// A completion queue that is polled field by field.
///
/// ```no_run
/// # use warpverbs_verbs::{Context, CqOptions};
/// # use warpverbs_verbs_extra::{CompletionFields, ExtendedCq, ExtraError};
/// # fn main() -> Result<(), ExtraError> {
/// # let context: Context = todo!();
/// let options = CqOptions::new(256);
/// let fields = CompletionFields::CLASSIC | CompletionFields::TIMESTAMP;
/// let mut cq = ExtendedCq::new(&context, &options, fields)?;
/// // … QPs are made with `cq.cq()` …
/// let mut polling = cq.poll();
/// while let Some(completion) = polling.next()? {
///     println!("{} {} at {:?}", completion.id(), completion.status(), completion.timestamp());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ExtendedCq {
    cq: Cq,
    ptr: NonNull<sys::ibv_cq_ex>,
    fields: CompletionFields,
    /// One start and end for each completion.
    one_by_one: bool,
    /// The provider's lock is held: by a [`Polling`], or for ever by one that was forgotten.
    held: bool,
}

// SAFETY: as `Cq`; a `Polling`, which is bound to its thread, borrows it.
unsafe impl Send for ExtendedCq {}
// SAFETY: shared, it is only read.
unsafe impl Sync for ExtendedCq {}

impl Drop for ExtendedCq {
    fn drop(&mut self) {
        if self.held {
            tracing::error!(cq = ?self.cq, "its polling was forgotten, so it is never destroyed");
            forget(self.cq.clone());
        }
    }
}

/// Whether this is Linux's soft-RoCE, whose driver has faults that have to be worked around.
pub(crate) fn is_soft_roce(context: &Context) -> Result<bool, VerbsError> {
    Ok(context.attr()?.vendor_id == 0xff_ffff)
}

impl ExtendedCq {
    /// A CQ whose completions have these fields. A refusal names those that the device has not.
    pub fn new(
        context: &Context,
        options: &CqOptions,
        fields: CompletionFields,
    ) -> Result<Self, ExtraError> {
        let cq = Self::make(context, options, fields).map_err(|error| match &error {
            VerbsError::Call(call) if not_offered(call.errno) => {
                Self::refusal(context, options, fields, error)
            }
            _ => error.into(),
        })?;
        // `ibv_cq_ex_to_cq` the other way: the classic structure is the beginning of the extended.
        let ptr = cq.ptr().cast();
        // Its `next_poll` at the last completion consumes one too many (rdma-core before 55), or gives
        // the lock back twice (before 59).
        let one_by_one = is_soft_roce(context)?;
        Ok(Self { cq, ptr, fields, one_by_one, held: false })
    }

    fn make(
        context: &Context,
        options: &CqOptions,
        fields: CompletionFields,
    ) -> Result<Cq, VerbsError> {
        let call = "ibv_create_cq_ex";
        let create = |parts: CqParts| {
            let create = extension_op!(context, create_cq_ex).ok_or(CallError::absent(call))?;
            let mut attr: sys::ibv_cq_init_attr_ex = sys::zeroed();
            (attr.cqe, attr.comp_vector) = (parts.entries as u32, parts.vector as u32);
            (attr.cq_context, attr.channel) = (parts.user, parts.channel);
            attr.wc_flags = fields.bits();
            // SAFETY: a live context and, if any, a live channel of the same.
            object(call, unsafe { create(context.ptr().as_ptr(), &mut attr) }).map(NonNull::cast)
        };
        // SAFETY: a CQ of these parts, for nobody else. One that is polled is never dropped.
        unsafe { Cq::made_by(context, options, create) }
    }

    /// Which fields the device does not have, or that it has no such CQs.
    fn refusal(
        context: &Context,
        options: &CqOptions,
        fields: CompletionFields,
        error: VerbsError,
    ) -> ExtraError {
        let refused = |fields: CompletionFields| Self::make(context, options, fields).is_err();
        let alone = fields.iter().filter(|&field| refused(field)).collect::<CompletionFields>();
        let what = match refused(CompletionFields::empty()) {
            // Plain CQs are refused as well, so the fields are not at fault.
            true if Cq::with(context, options).is_err() => return error.into(),
            true => Offer::ExtendedCqs,
            false if alone.is_empty() => return error.into(),
            false => Offer::CompletionFields(alone),
        };
        what.lacks(context)
    }

    /// For QPs that are to complete here, and to wait for events. Its own `poll` refuses.
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// The fields of its completions.
    pub fn fields(&self) -> CompletionFields {
        self.fields
    }

    /// Looks at completions, one at a time, until the guard is dropped or there are none left.
    ///
    /// From the first completion on the guard holds the CQ's lock in the driver. Until it is
    /// dropped, this thread must not destroy a QP that completes here: it would wait for itself. A
    /// guard that is forgotten keeps the lock; polling then fails with `EDEADLK`.
    pub fn poll(&mut self) -> Polling<'_> {
        Polling { cq: self, begun: false, _own_thread: PhantomData }
    }

    /// As [`Cq::resize`].
    pub fn resize(&mut self, entries: u32) -> Result<(), VerbsError> {
        let count = c_int::try_from(entries).ok().filter(|&count| count > 0);
        let (what, value) = ("number of CQ entries", entries.into());
        let max = c_int::MAX as u64;
        let count = count.ok_or(VerbsError::OutOfRange { what, value, min: 1, max })?;
        let resize = self.cq.context().api().ibv_resize_cq;
        // SAFETY: a live CQ.
        Ok(check("ibv_resize_cq", unsafe { resize(self.cq.ptr().as_ptr(), count) })?)
    }
}

/// The error numbers with which drivers say that there is no such thing.
pub(crate) fn not_offered(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL)
}

/// Completions being looked at; ends on drop. Belongs to the thread that made it, as locks do.
#[derive(Debug)]
pub struct Polling<'a> {
    cq: &'a mut ExtendedCq,
    begun: bool,
    _own_thread: PhantomData<*mut ()>,
}

impl Polling<'_> {
    /// The next completion, oldest first; none if there are no more, and then the lock is given
    /// back and what came since can be asked for. An error says that the CQ is broken.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Polled<'_>>, CallError> {
        if self.cq.one_by_one {
            self.end();
        }
        let found = if self.begun {
            // A completion was found, and the poll has not ended.
            found("ibv_next_poll", call_own!(self.cq.ptr.as_ptr(), next_poll()))
        } else if self.cq.held {
            return Err(CallError { call: "ibv_start_poll", errno: Errno::EDEADLK });
        } else {
            let mut attr: sys::ibv_poll_cq_attr = sys::zeroed();
            // Nobody polls: this is the only guard, and has not begun.
            let code = call_own!(self.cq.ptr.as_ptr(), start_poll(&mut attr));
            let found = found("ibv_start_poll", code);
            self.begun = found == Ok(true);
            self.cq.held = self.begun;
            found
        };
        match found {
            Ok(true) => {
                Ok(Some(Polled { ptr: self.cq.ptr, fields: self.cq.fields, _poll: PhantomData }))
            }
            other => {
                self.end();
                other.map(|_| None)
            }
        }
    }

    fn end(&mut self) {
        if self.begun {
            // Begun by this guard on this thread, and not yet ended.
            call_own!(self.cq.ptr.as_ptr(), end_poll());
            (self.begun, self.cq.held) = (false, false);
        }
    }
}

/// Whether a step of a poll has found a completion.
#[inline]
fn found(call: &'static str, code: Option<c_int>) -> Result<bool, CallError> {
    match check(call, code.unwrap_or(Errno::EINVAL as c_int)) {
        Err(CallError { errno: Errno::ENOENT, .. }) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The completion that is being looked at. It cannot be kept:
///
/// ```compile_fail,E0499
/// # use warpverbs_verbs::CallError;
/// # use warpverbs_verbs_extra::Polling;
/// fn both(polling: &mut Polling<'_>) -> Result<bool, CallError> {
///     let (first, second) = (polling.next()?, polling.next()?);
///     Ok(first.is_some() && second.is_some())
/// }
/// ```
pub struct Polled<'a> {
    ptr: NonNull<sys::ibv_cq_ex>,
    fields: CompletionFields,
    _poll: PhantomData<&'a mut ()>,
}

/// A field that the CQ was made with.
macro_rules! field {
    ($self:ident, $field:ident, $read:ident) => {
        match $self.fields.contains(CompletionFields::$field) {
            // The poll is at a completion, as long as this value is borrowed from it.
            true => call_own!($self.ptr.as_ptr(), $read()),
            false => None,
        }
    };
}

impl Polled<'_> {
    /// The identifier of the work request.
    #[inline]
    pub fn id(&self) -> u64 {
        // SAFETY: the poll is at a completion, as long as this value is borrowed from it.
        unsafe { (*self.ptr.as_ptr()).wr_id }
    }

    /// How it ended. If badly, only this, the identifier, the QP and the vendor's code are valid.
    #[inline]
    pub fn status(&self) -> Status {
        // SAFETY: the poll is at a completion, as long as this value is borrowed from it.
        Status::from_value(unsafe { (*self.ptr.as_ptr()).status })
    }

    /// The operation that completed.
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode::from_raw(call_own!(self.ptr.as_ptr(), read_opcode()).unwrap_or(u32::MAX))
    }

    /// The vendor's code of a failure.
    #[inline]
    pub fn vendor_error(&self) -> u32 {
        call_own!(self.ptr.as_ptr(), read_vendor_err()).unwrap_or(0)
    }

    /// Bytes that arrived, for receives and READs.
    #[inline]
    pub fn byte_len(&self) -> Option<u32> {
        field!(self, BYTE_LEN, read_byte_len)
    }

    /// Immediate data that arrived.
    #[inline]
    pub fn imm(&self) -> Option<u32> {
        let raw = field!(self, IMM, read_imm_data);
        raw.filter(|_| self.flags() & sys::IBV_WC_WITH_IMM != 0).map(u32::from_be)
    }

    /// The key that the peer took back with its SEND.
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        let raw = field!(self, IMM, read_imm_data);
        raw.filter(|_| self.flags() & sys::IBV_WC_WITH_INV != 0)
    }

    fn flags(&self) -> u32 {
        call_own!(self.ptr.as_ptr(), read_wc_flags()).unwrap_or(0)
    }

    /// The own QP.
    #[inline]
    pub fn qpn(&self) -> Option<u32> {
        field!(self, QPN, read_qp_num)
    }

    /// The peer's QP, where datagrams tell it; on a connection the driver may leave it 0.
    #[inline]
    pub fn peer_qpn(&self) -> Option<u32> {
        field!(self, PEER_QPN, read_src_qp)
    }

    /// When it was done, in ticks of [`ExtraAttr::clock`](crate::ExtraAttr::clock).
    #[inline]
    pub fn timestamp(&self) -> Option<u64> {
        field!(self, TIMESTAMP, read_completion_ts)
    }

    /// When it was done, in nanoseconds of the host's real-time clock.
    #[inline]
    pub fn wallclock(&self) -> Option<u64> {
        field!(self, WALLCLOCK, read_completion_wallclock_ns)
    }
}

impl fmt::Debug for Polled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Polled");
        out.field("id", &self.id()).field("qpn", &self.qpn()).field("status", &self.status());
        if self.status() == Status::Success {
            out.field("opcode", &self.opcode()).field("bytes", &self.byte_len());
            out.field("imm", &self.imm()).field("invalidated", &self.invalidated_rkey());
        } else {
            out.field("vendor_error", &format_args!("{:#x}", self.vendor_error()));
        }
        out.field("timestamp", &self.timestamp()).finish()
    }
}
