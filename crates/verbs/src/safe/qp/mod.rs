//! Queue pairs of the reliable connection.

mod attrs;
mod explain;
mod refusal;
mod state;

pub use attrs::{GlobalRoute, Path, QpAttrs};
pub use refusal::{Finding, ModifyError};

use super::{
    Context, Cq, Owned, Pd, PostError, RecvList, SendList, Srq, Uses, VerbsError, error::in_range,
};
use crate::bnxt_dv::sys::BnxtApi;
use crate::call::{check, object};
use crate::{CallError, sys};
use nix::errno::Errno;
use std::ffi::c_int;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use warpverbs_rdma::{AttrMask, QpState};

/// The room in a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCaps {
    /// Sends.
    pub max_send_wr: u32,
    /// Receives; 0 with a shared queue.
    pub max_recv_wr: u32,
    /// Entries of one send.
    pub max_send_sge: u32,
    /// Entries of one receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data of one send.
    pub max_inline: u32,
}

/// How a QP is made.
#[derive(Clone, Debug)]
pub struct QpOptions {
    /// Where sends complete.
    pub send_cq: Cq,
    /// Where receives complete.
    pub recv_cq: Cq,
    /// Where receives come from, instead of an own queue.
    pub srq: Option<Srq>,
    /// The least room it must have.
    pub caps: QpCaps,
    /// Every send is reported, whatever its flags.
    pub signal_all: bool,
}

impl QpOptions {
    /// Both queues complete in `cq`; 128 sends and receives of one entry, no inline data.
    pub fn new(cq: &Cq) -> Self {
        let caps = QpCaps {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let (send_cq, recv_cq) = (cq.clone(), cq.clone());
        Self { send_cq, recv_cq, srq: None, caps, signal_all: false }
    }
}

/// An RC queue pair, destroyed on drop: what is in flight then is given up.
pub struct Qp {
    // Before the queues that it uses.
    qp: Owned<sys::ibv_qp, Pd, Uses>,
    options: QpOptions,
    qpn: u32,
    maker: Maker,
}

/// The library that makes, changes and destroys a QP.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Maker {
    Verbs,
    /// libibverbs, in memory of the program, which posts there itself and not by calls.
    Placed,
    /// Its queues are posted to by whoever knows their memory, and not by calls.
    Bnxt(&'static BnxtApi),
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({:#x} of {})", self.qpn, self.context().device().name())
    }
}

impl Qp {
    /// A QP in the state RESET.
    pub fn new(pd: &Pd, options: &QpOptions) -> Result<Self, VerbsError> {
        Self::make(pd, options, (Maker::Verbs, None), |attr| {
            let create = pd.context().api().ibv_create_qp;
            // libbnxt_re leaves it as it is where it refuses what was asked for.
            Errno::EINVAL.set();
            // SAFETY: live objects of one context.
            object("ibv_create_qp", unsafe { create(pd.ptr().as_ptr(), attr) })
        })
    }

    /// A QP that `create` makes by another call of the library's, with attributes that then tell
    /// what it has room for.
    ///
    /// # Safety
    /// `create` makes an RC QP of `pd` from these attributes, whose objects are live, and leaves it
    /// to this object.
    pub unsafe fn made_by(
        pd: &Pd,
        options: &QpOptions,
        create: impl FnOnce(&mut sys::ibv_qp_init_attr) -> Result<NonNull<sys::ibv_qp>, CallError>,
    ) -> Result<Self, VerbsError> {
        Self::make(pd, options, (Maker::Verbs, None), create)
    }

    /// A QP that a vendor's library makes, changes and destroys, over what it uses.
    ///
    /// # Safety
    /// As for [`made_by`](Self::made_by), by that library.
    pub(crate) unsafe fn of_vendor(
        pd: &Pd,
        options: &QpOptions,
        by: (Maker, Uses),
        create: impl FnOnce(&mut sys::ibv_qp_init_attr) -> Result<NonNull<sys::ibv_qp>, CallError>,
    ) -> Result<Self, VerbsError> {
        Self::make(pd, options, by, create)
    }

    fn make(
        pd: &Pd,
        options: &QpOptions,
        (maker, uses): (Maker, Uses),
        create: impl FnOnce(&mut sys::ibv_qp_init_attr) -> Result<NonNull<sys::ibv_qp>, CallError>,
    ) -> Result<Self, VerbsError> {
        pd.check_context("send CQ", options.send_cq.context())?;
        pd.check_context("receive CQ", options.recv_cq.context())?;
        if let Some(srq) = &options.srq {
            pd.check_context("SRQ", srq.context())?;
        }
        let mut attr: sys::ibv_qp_init_attr = sys::zeroed();
        attr.send_cq = options.send_cq.ptr().as_ptr();
        attr.recv_cq = options.recv_cq.ptr().as_ptr();
        attr.srq = options.srq.as_ref().map_or(null_mut(), |srq| srq.ptr().as_ptr());
        attr.qp_type = sys::IBV_QPT_RC;
        attr.sq_sig_all = options.signal_all.into();
        attr.cap.max_send_wr = options.caps.max_send_wr;
        attr.cap.max_recv_wr = options.caps.max_recv_wr;
        attr.cap.max_send_sge = options.caps.max_send_sge;
        attr.cap.max_recv_sge = options.caps.max_recv_sge;
        attr.cap.max_inline_data = options.caps.max_inline;
        let ptr = create(&mut attr).map_err(|error| too_much(pd, &options.caps, error))?;
        let caps = QpCaps {
            max_send_wr: attr.cap.max_send_wr,
            max_recv_wr: attr.cap.max_recv_wr,
            max_send_sge: attr.cap.max_send_sge,
            max_recv_sge: attr.cap.max_recv_sge,
            max_inline: attr.cap.max_inline_data,
        };
        // SAFETY: a live QP, whose number does not change.
        let qpn = unsafe { (*ptr.as_ptr()).qp_num };
        let destroy = match maker {
            Maker::Verbs | Maker::Placed => ("ibv_destroy_qp", pd.context().api().ibv_destroy_qp),
            Maker::Bnxt(api) => ("bnxt_re_dv_destroy_qp", api.bnxt_re_dv_destroy_qp),
        };
        // SAFETY: made above, for this object.
        let qp = unsafe { Owned::new(ptr, destroy, pd.clone(), uses) };
        Ok(Self { qp, options: QpOptions { caps, ..options.clone() }, qpn, maker })
    }

    /// Its number, 24 bits.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The room it has.
    pub fn caps(&self) -> QpCaps {
        self.options.caps
    }

    /// Where sends complete.
    pub fn send_cq(&self) -> &Cq {
        &self.options.send_cq
    }

    /// Where receives complete.
    pub fn recv_cq(&self) -> &Cq {
        &self.options.recv_cq
    }

    /// Where receives come from, if not from an own queue.
    pub fn srq(&self) -> Option<&Srq> {
        self.options.srq.as_ref()
    }

    /// The library's object, which lives as long as this one.
    pub fn ptr(&self) -> NonNull<sys::ibv_qp> {
        self.qp.ptr()
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        self.qp.parent()
    }

    fn context(&self) -> &Context {
        self.pd().context()
    }

    /// Moves it to `state` with the attributes that are given. A refusal names those that the
    /// transition lacks or does not allow, and those beyond what the device has.
    pub fn modify(&self, state: QpState, attrs: &QpAttrs) -> Result<(), VerbsError> {
        self.modify_with(state, attrs, |_| AttrMask::empty())
    }

    /// As [`modify`](Self::modify), with attributes besides, which `more` writes and names.
    pub fn modify_with(
        &self,
        state: QpState,
        attrs: &QpAttrs,
        more: impl FnOnce(&mut sys::ibv_qp_attr) -> AttrMask,
    ) -> Result<(), VerbsError> {
        let (mut raw, mut given) = attrs.to_raw();
        given |= more(&mut raw);
        raw.qp_state = state as u32;
        let mask = (given.bits() | sys::IBV_QP_STATE) as c_int;
        let qp = self.ptr().as_ptr();
        let done = match self.maker {
            Maker::Verbs | Maker::Placed => {
                let modify = self.context().api().ibv_modify_qp;
                // SAFETY: a live QP.
                check("ibv_modify_qp", unsafe { modify(qp, &mut raw, mask) })
            }
            Maker::Bnxt(api) => {
                let modify = api.bnxt_re_dv_modify_qp;
                // SAFETY: a live QP of that library.
                check("bnxt_re_dv_modify_qp", unsafe { modify(qp, &mut raw, mask, 0, 0) })
            }
        };
        done.map_err(|source| {
            let from = self.query(AttrMask::empty()).map(|(state, _)| state).ok();
            explain::explain(self.context(), self.qpn, from, state, attrs, given, source).into()
        })
    }

    /// Its state, as the device has it.
    pub fn state(&self) -> Result<QpState, VerbsError> {
        Ok(self.query(AttrMask::empty())?.0)
    }

    /// Its state and the attributes named by `mask`.
    pub fn query(&self, mask: AttrMask) -> Result<(QpState, QpAttrs), VerbsError> {
        let raw = self.raw_attr(mask)?;
        Ok((state::from_raw(raw.qp_state)?, QpAttrs::from_raw(&raw, mask)))
    }

    /// Its state and the attributes named by `mask`, as the library has them.
    pub fn raw_attr(&self, mask: AttrMask) -> Result<sys::ibv_qp_attr, CallError> {
        let (mut attr, mut init) = (sys::zeroed(), sys::zeroed());
        let mask = (mask.bits() | sys::IBV_QP_STATE) as c_int;
        let (query, qp) = (self.context().api().ibv_query_qp, self.ptr().as_ptr());
        // SAFETY: a live QP and two live locals.
        let code = unsafe { query(qp, &mut attr, mask, &mut init) };
        check("ibv_query_qp", code).map(|()| attr)
    }

    /// A QP in the program's memory has none that a provider could post to.
    #[inline]
    fn check_calls(&self, call: &'static str, total: usize) -> Result<(), PostError> {
        match self.maker {
            Maker::Verbs => Ok(()),
            Maker::Placed | Maker::Bnxt(_) => {
                let source = CallError { call, errno: Errno::EINVAL };
                Err(PostError { source, posted: 0, total })
            }
        }
    }

    /// Posts all sends of `list`, which may then be used again.
    #[inline]
    pub fn post_send(&self, list: &mut SendList) -> Result<(), PostError> {
        self.check_calls("ibv_post_send", list.len())?;
        let qp = self.ptr().as_ptr();
        // SAFETY: a live QP, and a chain of the list's own; inline data are copied now.
        list.post("ibv_post_send", |first, bad| unsafe { sys::ibv_post_send(qp, first, bad) })
    }

    /// Posts all receives of `list`, which may then be used again.
    #[inline]
    pub fn post_recv(&self, list: &mut RecvList) -> Result<(), PostError> {
        self.check_calls("ibv_post_recv", list.len())?;
        if self.options.srq.is_some() {
            // Providers do not all look.
            let source = CallError { call: "ibv_post_recv", errno: Errno::EINVAL };
            return Err(PostError { source, posted: 0, total: list.len() });
        }
        let qp = self.ptr().as_ptr();
        // SAFETY: a live QP, and a chain of the list's own.
        list.post("ibv_post_recv", |first, bad| unsafe { sys::ibv_post_recv(qp, first, bad) })
    }
}

/// A QP that was not made, because it should have had more than the device has, as far as it tells.
fn too_much(pd: &Pd, caps: &QpCaps, error: CallError) -> VerbsError {
    let Ok(attr) = pd.context().attr() else { return error.into() };
    let rows = [
        ("max_send_wr", caps.max_send_wr, attr.max_qp_wr),
        ("max_recv_wr", caps.max_recv_wr, attr.max_qp_wr),
        ("max_send_sge", caps.max_send_sge, attr.max_sge),
        ("max_recv_sge", caps.max_recv_sge, attr.max_sge),
    ];
    let beyond = rows.iter().map(|&(what, value, max)| in_range(what, value.into(), 0, max.into()));
    beyond.filter_map(Result::err).next().unwrap_or_else(|| error.into())
}
