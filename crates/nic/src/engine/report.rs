//! Reports of the backends to the engine, which acts on them in `queues.rs`.

use super::copies::Fault;
use super::outcome::Delivery;
use super::outcome::Refusal;
use crate::AsyncEvent;
use crate::format::{DatagramSource, ReceivedKind, Syndrome};
use crate::slots::QpSlot;
use crate::violation::{Rule, Violation};

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
    /// All WQEs before that at `index` are complete, which failed.
    SendFailed { slot: QpSlot, index: u64, syndrome: Syndrome, vendor: u8 },
    /// A message is in its receive; `from` is the sender of a datagram.
    Received {
        slot: QpSlot,
        index: u64,
        kind: ReceivedKind,
        byte_cnt: u32,
        solicited: bool,
        from: Option<DatagramSource>,
    },
    /// A receive failed: its syndrome and the vendor's.
    ReceiveFailed { slot: QpSlot, index: u64, syndrome: (Syndrome, u8) },
    /// WQEs that waited may start.
    Ready { slot: QpSlot },
    /// A request of the peer was refused, which ended the connection.
    Refused { slot: QpSlot, refusal: Option<Refusal> },
    /// A device refused the request of the WQE at `index`, which ends the QP.
    Rejected { slot: QpSlot, index: u64, rule: Rule },
    /// The QP failed; the event is raised if a `syndrome` is given.
    Ended { slot: QpSlot, syndrome: Option<Syndrome> },
    /// The QP is in ERR, and nothing of it will come back from the backend. `broken` is a receive
    /// that failed with a syndrome of its own.
    Flushed { slot: QpSlot, broken: Option<(u64, Syndrome)> },
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
