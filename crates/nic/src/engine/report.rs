//! Reports of the backends to the engine, which acts on them in `queues.rs`.

use super::copies::Fault;
use super::outcome::Delivery;
use super::outcome::Refusal;
use crate::AsyncEvent;
use crate::format::{DatagramSource, ReceivedKind};
use crate::slots::QpSlot;
use crate::violation::{Rule, Violation};
use warpverbs_rdma::Status;

/// One thing that happened to a QP.
#[derive(Debug)]
pub(crate) enum Report {
    /// The next `count` WQEs, plain WRITEs of `bytes` bytes together, are complete; the last of
    /// them asks for a CQE if `signaled`. None is in flight.
    Executed { slot: QpSlot, count: u32, bytes: u64, signaled: bool },
    /// The payload of the WQE at `index`, the oldest in flight, is in place, or cannot be moved.
    Moved { slot: QpSlot, index: u64, delivery: Option<Box<Delivery>>, result: Result<(), Fault> },
    /// The WQE at `index` is complete, and so are all before it.
    Sent { slot: QpSlot, index: u64 },
    /// All WQEs before that at `index` are complete, which failed. `vendor` is what a device below told
    /// beside the status.
    SendFailed { slot: QpSlot, index: u64, status: Status, vendor: Option<u8> },
    /// A message is in its receive; `from` is the sender of a datagram.
    Received {
        slot: QpSlot,
        index: u64,
        kind: ReceivedKind,
        byte_cnt: u32,
        solicited: bool,
        from: Option<DatagramSource>,
    },
    /// A receive failed.
    ReceiveFailed { slot: QpSlot, index: u64, status: Status, vendor: Option<u8> },
    /// WQEs that waited may start.
    Ready { slot: QpSlot },
    /// A request of the peer was refused, which ended the connection.
    Refused { slot: QpSlot, refusal: Option<Refusal> },
    /// A device refused the request of the WQE at `index`, which ends the QP.
    Rejected { slot: QpSlot, index: u64, rule: Rule },
    /// The QP failed; the event is raised if a `status` is given.
    Ended { slot: QpSlot, status: Option<Status> },
    /// The QP is in ERR, and nothing of it will come back from the backend. `broken` is a receive
    /// that failed with a status of its own.
    Flushed { slot: QpSlot, broken: Option<(u64, Status)> },
    /// A rule was broken.
    Violation(Violation),
    /// An event that ends nothing.
    Event(AsyncEvent),
}

impl Report {
    /// The QP whose WQEs are retired by this.
    pub(crate) fn sender(&self) -> Option<QpSlot> {
        match *self {
            Self::Sent { slot, .. } | Self::SendFailed { slot, .. } => Some(slot),
            _ => None,
        }
    }
}
