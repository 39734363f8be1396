//! Violations: errors of a poster, which hardware would punish or silently execute.

use crate::format::{FormatViolation, RecvViolation, SendOpcode, WqeViolation};
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};
use thiserror::Error;
use warpverbs_mem::{AccessError, Kind};
pub use warpverbs_rdma::QueueKind;
use warpverbs_rdma::{QpState, Status};

/// Whose key a violation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeySide {
    /// The lkey of a send WQE's data segment.
    Local,
    /// The rkey of a send WQE, checked by the peer.
    Remote,
    /// The lkey of a receive WQE.
    Receive,
}

/// The rule that was broken, with what was found and what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Rule {
    /// The bytes are not a valid WQE.
    #[error(transparent)]
    Wqe(#[from] WqeViolation),
    /// The bytes are not a valid receive WQE.
    #[error(transparent)]
    Receive(#[from] RecvViolation),
    /// Bytes of another format than mlx5's are not valid.
    #[error(transparent)]
    Format(#[from] FormatViolation),
    /// A key, range or right was refused.
    #[error("{side:?} segment {segment}: {error}")]
    Key {
        /// Whose key.
        side: KeySide,
        /// Which data segment, from 0; 0 for an rkey.
        segment: u8,
        /// Why.
        error: AccessError,
    },
    /// The slot still holds the WQE of an earlier lap: the doorbell went ahead of the WQE.
    #[error(
        "slot holds the WQE of index {found:#06x}, {laps} lap(s) old, expected {expected:#06x}"
    )]
    StaleSlot {
        /// Index in the WQE.
        found: u16,
        /// Index of the slot now.
        expected: u16,
        /// How many times the ring went round since.
        laps: u16,
    },
    /// The slot was never written: all its bytes are equal to `fill`.
    #[error("slot was never written (all bytes {fill:#04x}), expected a WQE")]
    NeverWritten {
        /// The byte.
        fill: u8,
    },
    /// Work of a dynamic connection, for which this NIC has no packets.
    #[error("work of a dynamically connected QP is not supported")]
    DynamicConnection,
    /// The WQE reaches beyond what was announced.
    #[error("WQE of {wqebbs} WQEBBs, but {announced} were announced")]
    BeyondAnnounced {
        /// WQEBBs by its DS.
        wqebbs: u64,
        /// WQEBBs from its index to the producer index.
        announced: u64,
    },
    /// The WQE changed between its doorbell and its execution.
    #[error("word {word} of the WQEBB changed after the doorbell: {found:#018x}, was {was:#018x}")]
    Rewritten {
        /// Which 8 bytes of the WQEBB.
        word: u8,
        /// Its present value.
        found: u64,
        /// Its value at the doorbell.
        was: u64,
    },
    /// More WQEBBs are outstanding than the ring has.
    #[error("producer index {posted} is {outstanding} past the last CQE, the ring has {depth}")]
    BeyondRing {
        /// The producer index announced.
        posted: u64,
        /// WQEBBs not yet covered by a CQE.
        outstanding: u64,
        /// WQEBBs of the ring.
        depth: u64,
    },
    /// A doorbell or record went back.
    #[error("producer index {found:#06x} is before {expected:#06x}")]
    Backward {
        /// The index announced.
        found: u16,
        /// The index announced before.
        expected: u16,
    },
    /// The doorbell names another QP.
    #[error("doorbell of QP {expected:#x} rung for QP {found:#x}")]
    DoorbellQpn {
        /// QP in the value.
        found: u32,
        /// QP that the doorbell belongs to.
        expected: u32,
    },
    /// A doorbell was rung that belongs to no QP.
    #[error("doorbell {slot} rung with {value:#018x}, but no QP owns it")]
    DoorbellUnowned {
        /// Which doorbell.
        slot: u32,
        /// The value, as a little-endian word.
        value: u64,
    },
    /// A doorbell was rung in a state in which sends may not be posted.
    #[error("doorbell rung in {state}, expected RTS")]
    DoorbellState {
        /// The state.
        state: QpState,
    },
    /// The record still lags behind the doorbell.
    #[error("doorbell record says {record:#06x}, the doorbell said {doorbell:#06x}")]
    RecordBehindDoorbell {
        /// In the record.
        record: u16,
        /// In the doorbell.
        doorbell: u16,
    },
    /// More receives are outstanding than the ring has.
    #[error("receive counter {posted} is {outstanding} past what was taken, the ring has {depth}")]
    ReceivesBeyondRing {
        /// Receives posted, by the record.
        posted: u64,
        /// Posted and not taken.
        outstanding: u64,
        /// Receives in the ring.
        depth: u64,
    },
    /// An SRQ link points outside of the SRQ.
    #[error("next_wqe_index is {found}, the SRQ has {depth} WQEs")]
    SrqLink {
        /// The link.
        found: u16,
        /// WQEs in the SRQ.
        depth: u64,
    },
    /// The target of an atomic is not aligned to its size.
    #[error("atomic at {addr:#x}, expected a multiple of {size}")]
    AtomicAlignment {
        /// The target.
        addr: u64,
        /// Bytes of the atomic.
        size: u32,
    },
    /// The message is longer than a QP may send.
    #[error("message of {len} bytes, at most {max}")]
    MessageLength {
        /// Bytes.
        len: u64,
        /// Bytes at most.
        max: u64,
    },
    /// The message is longer than the receive that it met.
    #[error("message of {len} bytes met a receive of {room}")]
    ReceiveTooSmall {
        /// Bytes sent.
        len: u64,
        /// Bytes of the receive's segments.
        room: u64,
    },
    /// The peer did not allow this kind of request.
    #[error("the peer's QP does not allow this request (needs {needed:#x}, allows {granted:#x})")]
    NotAllowed {
        /// Bits of [`warpverbs_mem::Access`] that were needed.
        needed: u32,
        /// Bits that the QP grants.
        granted: u32,
    },
    /// The engine that copies to and from this memory failed, on a QP whose peer is on the network.
    #[error("the copy engine of {kind} memory failed")]
    CopyFailed {
        /// The memory.
        kind: Kind,
    },
    /// The link does not reach the address of a datagram.
    #[error("a datagram to GID {}, which the link does not reach", std::net::Ipv6Addr::from(*gid))]
    DatagramAddress {
        /// The GID.
        gid: [u8; 16],
    },
    /// A WAIT for a CQ that does not exist, or that gets no CQE any more.
    #[error("WAIT for CQ {cqn:#x}, which does not exist or has failed")]
    AwaitedCq {
        /// The CQ's number.
        cqn: u32,
    },
    /// An operation that another device cannot execute: extended atomics, LOCAL_INVAL, WAIT
    /// and DUMP, on a proxied QP.
    #[error("{opcode:?} cannot be executed by another device")]
    NotProxied {
        /// The opcode.
        opcode: SendOpcode,
    },
    /// Memory that is not registered with the device that executes the QP's work.
    #[error("key {key:#010x} is not registered with the device that executes the QP's work")]
    KeyNotProxied {
        /// The key.
        key: u32,
    },
    /// Memory with a bounce buffer, named in work that is posted to the device directly.
    #[error("key {key:#010x} names bounced memory, which only engine-posted work can use")]
    Bounced {
        /// The key.
        key: u32,
    },
    /// More than the device that executes the QP's work takes.
    #[error("{found} {what}, the device that executes the QP's work takes {max}")]
    DeviceLimit {
        /// Of what.
        what: &'static str,
        /// How many the WQE has.
        found: u64,
        /// How many there may be.
        max: u64,
    },
    /// The device that executes the QP's work refused a request that passed every check.
    #[error("the device that executes the QP's work refused it: errno {errno}")]
    DeviceRefused {
        /// From the device's library.
        errno: i32,
    },
    /// READs and atomics need a resource that was set to zero.
    #[error("READ or atomic on a QP with {attr} 0")]
    NoReadResources {
        /// The attribute: `max_rd_atomic` or `max_dest_rd_atomic`.
        attr: &'static str,
    },
}

impl Rule {
    /// The field that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Wqe(v) => v.field(),
            Self::Receive(_) => "receive",
            Self::Format(violation) => violation.field(),
            Self::Key { side: KeySide::Remote, .. } => "raddr.rkey",
            Self::Key { .. } => "data.lkey",
            Self::StaleSlot { .. } => "ctrl.wqe_index",
            Self::NeverWritten { .. } | Self::Rewritten { .. } => "wqebb",
            Self::BeyondAnnounced { .. } => "ctrl.ds",
            Self::BeyondRing { .. } | Self::Backward { .. } => "doorbell.index",
            Self::DoorbellQpn { .. } | Self::DoorbellUnowned { .. } => "doorbell.qpn",
            Self::DoorbellState { .. } => "qp.state",
            Self::RecordBehindDoorbell { .. } => "dbr.snd",
            Self::ReceivesBeyondRing { .. } => "dbr.rcv",
            Self::SrqLink { .. } => "srq_next.next_wqe_index",
            Self::AtomicAlignment { .. } => "raddr.raddr",
            Self::MessageLength { .. } | Self::ReceiveTooSmall { .. } => "data.byte_count",
            Self::NotAllowed { .. } => "qp.access",
            Self::CopyFailed { .. } => "mr.kind",
            Self::DatagramAddress { .. } => "av.rgid",
            Self::AwaitedCq { .. } => "wait.cqn",
            Self::NotProxied { .. } | Self::DynamicConnection => "ctrl.opcode",
            Self::KeyNotProxied { .. } | Self::Bounced { .. } => "data.lkey",
            Self::DeviceLimit { .. } | Self::DeviceRefused { .. } => "proxy device",
            Self::NoReadResources { attr } => attr,
        }
    }

    /// The status that the requester gets, if this ends the QP.
    pub fn status(&self) -> Option<Status> {
        Some(match self {
            Self::Wqe(violation) => violation.syndrome().status(),
            Self::Format(violation) => return violation.status(),
            Self::Key { side: KeySide::Local, .. } => Status::LocalProtection,
            Self::Key { side: KeySide::Remote, .. } => Status::RemoteAccess,
            Self::Key { side: KeySide::Receive, .. }
            | Self::Receive(_)
            | Self::ReceivesBeyondRing { .. }
            | Self::SrqLink { .. } => Status::RemoteOperation,
            Self::StaleSlot { .. }
            | Self::NeverWritten { .. }
            | Self::DynamicConnection
            | Self::BeyondAnnounced { .. }
            | Self::BeyondRing { .. }
            | Self::DatagramAddress { .. }
            | Self::AwaitedCq { .. }
            | Self::NotProxied { .. }
            | Self::DeviceLimit { .. }
            | Self::DeviceRefused { .. }
            | Self::NoReadResources { attr: "max_rd_atomic" } => Status::LocalQpOperation,
            Self::CopyFailed { .. } | Self::KeyNotProxied { .. } | Self::Bounced { .. } => {
                Status::LocalProtection
            }
            Self::MessageLength { .. } => Status::LocalLength,
            Self::AtomicAlignment { .. }
            | Self::ReceiveTooSmall { .. }
            | Self::NotAllowed { .. }
            | Self::NoReadResources { .. } => Status::RemoteInvalidRequest,
            Self::Rewritten { .. }
            | Self::Backward { .. }
            | Self::DoorbellQpn { .. }
            | Self::DoorbellUnowned { .. }
            | Self::DoorbellState { .. }
            | Self::RecordBehindDoorbell { .. } => return None,
        })
    }
}

/// One broken rule and where it was broken. Its text says what was found and what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The QP (0 for a doorbell that none owns).
    pub qpn: u32,
    /// The queue of that QP.
    pub queue: QueueKind,
    /// The index, not masked.
    pub index: u64,
    /// The rule.
    pub rule: Rule,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { qpn, queue, index, rule } = self;
        write!(f, "QP {qpn:#x} {queue:?} index {index}: {}: {rule}", rule.field())
    }
}

/// Violations of one field that are logged in a second: a faulty poster may cause any number.
const LOGGED_PER_SECOND: u32 = 5;
const SECOND: Duration = Duration::from_secs(1);

/// Violations of one field: how many, and how many of them may still be logged.
#[derive(Debug, Default)]
struct Count {
    total: u64,
    /// When the current second began, since the log was made.
    second: Duration,
    logged: u32,
    left_out: u64,
}

impl Count {
    /// Counts one more. `Some` if it may be logged: how many were left out before it.
    fn admit(&mut self, now: Duration) -> Option<u64> {
        if self.total == 0 || now.saturating_sub(self.second) >= SECOND {
            (self.second, self.logged) = (now, 0);
        }
        self.total += 1;
        if self.logged == LOGGED_PER_SECOND {
            self.left_out += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Violations found: the newest ones, how many of each field, and the subscribers. Counts and
/// subscribers see all of them, the log at most [`LOGGED_PER_SECOND`] of each field in a second.
#[derive(Debug)]
pub(crate) struct Log {
    recent: VecDeque<Violation>,
    kept: usize,
    pub(crate) total: u64,
    by_field: BTreeMap<&'static str, Count>,
    subscribers: Vec<Sender<Violation>>,
    origin: Instant,
}

impl Log {
    pub(crate) fn new(kept: usize) -> Self {
        let (recent, by_field) = (VecDeque::new(), BTreeMap::new());
        let origin = Instant::now();
        Self { recent, kept, total: 0, by_field, subscribers: Vec::new(), origin }
    }

    #[cold]
    pub(crate) fn push(&mut self, violation: Violation) {
        self.push_at(self.origin.elapsed(), violation);
    }

    fn push_at(&mut self, now: Duration, violation: Violation) {
        let field = violation.rule.field();
        match self.by_field.entry(field).or_default().admit(now) {
            Some(0) => tracing::warn!(%violation, "violation"),
            Some(left_out) => tracing::warn!(%violation, field, left_out, "violation"),
            None => {}
        }
        self.total += 1;
        if self.recent.len() == self.kept {
            self.recent.pop_front();
        }
        if self.kept > 0 {
            self.recent.push_back(violation);
        }
        // A slow subscriber loses violations rather than holding up the NIC.
        self.subscribers
            .retain(|to| !matches!(to.try_send(violation), Err(TrySendError::Disconnected(_))));
    }

    pub(crate) fn take(&mut self) -> Vec<Violation> {
        self.recent.drain(..).collect()
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.by_field.iter().map(|(field, count)| (*field, count.total)).collect()
    }

    pub(crate) fn subscribe(&mut self, capacity: usize) -> Receiver<Violation> {
        let (to, from) = bounded(capacity.max(1));
        self.subscribers.push(to);
        from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Keeps `left_out` of each event, 0 without.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u64>>>);

    #[derive(Default)]
    struct LeftOut(u64);

    impl Visit for LeftOut {
        fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}

        fn record_u64(&mut self, field: &Field, value: u64) {
            if field.name() == "left_out" {
                self.0 = value;
            }
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut left_out = LeftOut::default();
            event.record(&mut left_out);
            self.0.lock().unwrap().push(left_out.0);
        }
    }

    fn violation(rule: Rule) -> Violation {
        Violation { qpn: 1, queue: QueueKind::Send, index: 0, rule }
    }

    #[test]
    fn a_flood_is_counted_and_hardly_logged() {
        let backward = violation(Rule::Backward { found: 1, expected: 2 });
        let other = violation(Rule::DoorbellQpn { found: 1, expected: 2 });
        let (lines, mut log) = (Lines::default(), Log::new(4));
        tracing::subscriber::with_default(lines.clone(), || {
            // A thousand a millisecond for 2.5 s, and one of another field in between.
            for at in 0..2_500_000 {
                log.push_at(Duration::from_micros(at), backward);
            }
            log.push_at(SECOND, other);
        });
        let dropped = 1_000_000 - u64::from(LOGGED_PER_SECOND);
        let expected = [[0; 5], [dropped, 0, 0, 0, 0], [dropped, 0, 0, 0, 0]];
        assert_eq!(*lines.0.lock().unwrap(), [expected.as_flattened(), &[0]].concat());
        let counts = BTreeMap::from([("doorbell.index", 2_500_000), ("doorbell.qpn", 1)]);
        assert_eq!((log.counts(), log.total, log.take().len()), (counts, 2_500_001, 4));
    }
}
