//! The outcome of starting a WQE: it was started, it has to wait, or it is refused.

use crate::format::{DatagramSource, ReceivedKind};
use crate::slots::QpSlot;
use crate::violation::{QueueKind, Rule};
use warpverbs_mem::MemError;
use warpverbs_rdma::Status;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Refusal {
    /// No receive is posted; the code says how long to wait.
    NotReady { timer: u8 },
    /// NAK "invalid request": class A or C, the QP goes to ERR.
    Invalid(Rule),
    /// NAK "remote access error": class C, the QP goes to ERR.
    Access(Rule),
    /// NAK "remote operational error" for a fault of the receive queue: class E. The index is
    /// that of the receive, if it was one.
    Operational { rule: Rule, receive: Option<u64> },
    /// The receive is too small: "invalid request" for the sender, a length error for the
    /// receive.
    TooLong(Rule),
    /// A SEND_INVAL names a key that may not be invalidated: class J, no answer, the QP goes to
    /// ERR.
    Invalidation { rule: Rule, receive: u64 },
}

impl Refusal {
    /// The rule that was broken, with the queue in which the fault lies.
    pub(crate) fn rule(&self) -> Option<(QueueKind, Rule)> {
        match *self {
            Self::NotReady { .. } => None,
            Self::Invalid(rule) | Self::Access(rule) | Self::Invalidation { rule, .. } => {
                Some((QueueKind::Send, rule))
            }
            Self::TooLong(rule) => Some((QueueKind::Send, rule)),
            Self::Operational { rule, .. } => Some((QueueKind::Receive, rule)),
        }
    }
}

/// A WQE that was started.
pub(crate) struct Started {
    /// The backend reports its completion; otherwise it is complete.
    pub(crate) away: bool,
    /// Bytes for the requester's CQE: those of a READ or an atomic.
    pub(crate) brought: u32,
    /// The receive to complete with it, if it is complete.
    pub(crate) delivery: Option<Delivery>,
}

/// A receive that was taken and is completed when the payload is in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) slot: QpSlot,
    pub(crate) qpn: u32,
    /// [`ReceiveQueue::generation`](crate::objects::receive::ReceiveQueue) at the time.
    pub(crate) generation: u32,
    pub(crate) kind: ReceivedKind,
    pub(crate) index: u64,
    pub(crate) byte_cnt: u32,
    pub(crate) solicited: bool,
    pub(crate) from: Option<DatagramSource>,
}

/// Why a WQE was not started.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Earlier WQEs of the queue must end first.
    Drain,
    /// A CQ must have a CQE first, which wakes the queue.
    Wait,
    /// The peer refused.
    Refused { peer: QpSlot, refusal: Refusal },
    /// No QP answers.
    NoAnswer,
    /// The requester's own fault.
    Local { status: Status, rule: Rule },
    /// A copy engine failed.
    Copy(MemError),
}

impl From<MemError> for Stop {
    fn from(error: MemError) -> Self {
        Self::Copy(error)
    }
}

pub(crate) fn local(rule: Rule) -> Stop {
    Stop::Local { status: rule.status().unwrap_or(Status::LocalQpOperation), rule }
}
