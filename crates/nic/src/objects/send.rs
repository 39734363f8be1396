//! The send side of a QP: how far its ring is announced, executed and completed.

use super::in_flight::{InFlight, WqeInfo};
use super::payload::CqeTarget;
use crate::format::WqeIndex;
use crate::format::{At, Completion, Done, Ended, Head, Qpn, SendFormat, SendOpcode};
use crate::qp::{Path, QpAttrs};
use crate::slots::{CqSlot, QpSlot, UarSlot};
use crate::stats::QpStats;
use crate::violation::Rule;
use std::collections::VecDeque;
use warpverbs_mem::{Block, KeyHint, QueueRecord, SendRing};
use warpverbs_rdma::{QpState, Service, Status};

/// The effect of a failed send on the QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSendError {
    /// The QP goes to ERR, as a reliable connection does.
    #[default]
    StopAll,
    /// The QP goes to SQE: sends are flushed, receives go on, the user may bring it back to RTS.
    StopSends,
}

/// Whether a QP's poster writes doorbells, but no doorbell record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoorbellOnly {
    /// It does if the record stays 0 for
    /// [`Config::record_polls`](crate::Config::record_polls) polls after its first doorbell.
    #[default]
    Detect,
    /// It does not.
    Never,
    /// It does.
    Always,
}

/// The first error of a send queue; later ones, flushes above all, follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstError {
    /// Index of the WQE's first WQEBB, not masked.
    pub index: u64,
    /// The status of the error CQE.
    pub status: Status,
    /// The rule that was broken, unless the error came from a timer or from the peer's state.
    pub rule: Option<Rule>,
}

/// A doorbell that was seen and not yet acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingDoorbell {
    None,
    /// The doorbell was dropped; the record is read after this many polls, or never.
    Dropped {
        polls: Option<u32>,
    },
    /// The record counts and lags behind this doorbell value.
    AwaitRecord {
        doorbell: WqeIndex,
        polls: u32,
    },
}

/// The doorbell that announces new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The QP's own doorbell.
    Doorbell,
    /// A register of this page.
    Uar {
        page: UarSlot,
        /// Whether there is no record: as configured, and as known since RESET.
        set: DoorbellOnly,
        now: DoorbellOnly,
    },
}

/// Which backend executes the work of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executor {
    /// The engine itself: the peer is a QP of this NIC.
    Loopback,
    /// A connection: the peer is on the network.
    Network,
    /// The link, one packet for each WQE. Fixed for the QP.
    Datagram,
    /// Another device. Fixed for the QP.
    Proxy,
    /// No backend: WQEs of dynamic connections are refused. Fixed for the QP, too.
    Dynamic,
}

impl Executor {
    /// With the path that was given at RTR.
    pub(crate) fn with_path(self, path: Option<Path>) -> Self {
        match (self, path) {
            (Self::Proxy | Self::Datagram | Self::Dynamic, _) => self,
            (_, Some(Path::Network(_))) => Self::Network,
            _ => Self::Loopback,
        }
    }

    /// Without a path.
    pub(crate) fn after_reset(self) -> Self {
        self.with_path(None)
    }

    /// WQEs are executed elsewhere, and reported when they are complete.
    #[inline]
    pub(crate) fn is_away(self) -> bool {
        matches!(self, Self::Network | Self::Proxy)
    }
}

/// The WQEs of a send queue.
#[derive(Debug)]
pub(crate) struct Ring {
    /// `None` in a QP that was made to consume only.
    pub(crate) wqes: Option<SendRing>,
    /// WQEBBs of it.
    pub(crate) depth: u64,
    /// Announced WQEs count as executed, and are not read.
    pub(crate) consume_only: bool,
    /// Copies of announced WQEBBs by slot, if rewrites are watched for.
    pub(crate) snapshot: Vec<Block>,
}

impl Ring {
    pub(crate) fn new(wqes: Option<SendRing>, depth: u64) -> Self {
        Self { consume_only: wqes.is_none(), wqes, depth, snapshot: Vec::new() }
    }
}

/// How far a send queue has come. Indexes are 64-bit counts of WQEBBs:
/// `reported ≤ retired ≤ next ≤ posted`.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Announced up to here.
    pub(crate) posted: u64,
    /// Started up to here.
    pub(crate) next: u64,
    /// Finished up to here.
    pub(crate) retired: u64,
    /// Covered by a CQE up to here: what a poster may reuse.
    pub(crate) reported: u64,
    /// WQEs that have ended.
    pub(crate) ended: u64,
    /// Started and not finished, in order.
    pub(crate) in_flight: VecDeque<InFlight>,
}

impl Progress {
    /// Announced, and not started.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.next != self.posted
    }

    /// The oldest WQE that was started has ended.
    #[inline]
    pub(crate) fn retire(&mut self, info: &WqeInfo) {
        self.retired = info.index + info.units;
        self.ended += 1;
    }

    fn reset(&mut self) {
        (self.posted, self.next, self.retired, self.reported) = (0, 0, 0, 0);
        self.ended = 0;
        self.in_flight.clear();
    }
}

/// The announcements of a send queue's work: their place, and their state.
#[derive(Debug)]
pub(crate) struct Doorbell {
    pub(crate) record: QueueRecord,
    pub(crate) source: Source,
    pub(crate) pending: PendingDoorbell,
    /// An invalid value of the polled record, which was reported.
    pub(crate) refused_record: Option<WqeIndex>,
    /// A fault: this many doorbells are still lost, each recovered after this many polls.
    pub(crate) lose: u32,
    pub(crate) lose_recovery: Option<u32>,
}

impl Doorbell {
    pub(crate) fn new(record: QueueRecord, source: Source) -> Self {
        let (pending, refused_record) = (PendingDoorbell::None, None);
        Self { record, source, pending, refused_record, lose: 0, lose_recovery: None }
    }

    fn reset(&mut self) {
        self.record.forget();
        (self.pending, self.refused_record, self.lose) = (PendingDoorbell::None, None, 0);
        if let Source::Uar { set, now, .. } = &mut self.source {
            *now = *set;
        }
    }

    /// The index in the record.
    #[inline]
    pub(crate) fn recorded(&self) -> WqeIndex {
        WqeIndex(self.record.send())
    }

    /// A doorbell came without a record. Whether that proves that the QP has no record; from now on
    /// doorbells count then.
    pub(crate) fn has_no_record(&mut self) -> bool {
        match &mut self.source {
            Source::Uar { now, .. } if *now == DoorbellOnly::Detect => {
                *now = DoorbellOnly::Always;
                true
            }
            _ => false,
        }
    }
}

/// When a send queue runs, and what keeps it from that.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// In the run list.
    pub(crate) queued: bool,
    /// Nothing starts before this time.
    pub(crate) wake: Option<u64>,
    /// The CQ that the next WQE waits for.
    pub(crate) waits: Option<CqSlot>,
    /// A fault: nothing starts at all.
    pub(crate) stuck: bool,
    /// The SQ_DRAINED event of this SQD was raised.
    pub(crate) drained: bool,
    /// The announcement itself was invalid: the next WQE fails with this.
    pub(crate) deferred_error: Option<Rule>,
}

impl Turn {
    fn reset(&mut self) {
        let Self { queued, stuck, .. } = *self;
        *self = Self { queued, stuck, ..Self::default() };
    }
}

/// The QP that executes requests, and how often they may still be tried again.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) qpn: u32,
    /// Where it was found last.
    pub(crate) slot: QpSlot,
    pub(crate) retries_left: u8,
    pub(crate) rnr_left: u8,
}

/// The requester's half of a QP.
#[derive(Debug)]
pub(crate) struct SendQueue {
    pub(crate) qpn: Qpn,
    pub(crate) slot: QpSlot,
    pub(crate) pd: u32,
    pub(crate) service: Service,
    pub(crate) on_error: OnSendError,
    pub(crate) state: QpState,
    pub(crate) attrs: QpAttrs,
    pub(crate) executor: Executor,
    pub(crate) format: SendFormat,
    pub(crate) ring: Ring,
    pub(crate) progress: Progress,
    pub(crate) doorbell: Doorbell,
    pub(crate) turn: Turn,
    pub(crate) peer: Peer,
    /// Of the next datagram.
    pub(crate) psn: u32,
    pub(crate) cqes: CqeTarget,
    pub(crate) local_hint: KeyHint,
    pub(crate) first_error: Option<FirstError>,
    pub(crate) stats: QpStats,
}

impl SendQueue {
    /// Forgets all work.
    pub(crate) fn reset(&mut self) {
        self.progress.reset();
        self.doorbell.reset();
        self.turn.reset();
        self.first_error = None;
        self.attrs = QpAttrs::default();
        self.executor = self.executor.after_reset();
        self.restore_retries();
        self.cqes.payload.clear();
    }

    /// For the CQE of the WQE at `index`, the last that has ended.
    #[inline]
    pub(crate) fn done(&self, index: u64, what: Ended) -> Done {
        Done { qpn: self.qpn, index, ended: self.progress.ended, what }
    }

    /// The queue's state allows the [short way](crate::engine::plain) of plain WRITEs. WQEs whose
    /// bytes were copied at their doorbell are compared with them, on the general way.
    pub(crate) fn is_plain(&self) -> bool {
        self.state == QpState::Rts
            && !self.turn.stuck
            && self.turn.wake.is_none()
            && self.turn.deferred_error.is_none()
            && self.ring.snapshot.is_empty()
            && !self.ring.consume_only
    }

    /// The NIC only consumes from now on, or no more: so does the QP once nothing is under way.
    /// Where another device or nobody executes the work, and for datagrams, nothing changes.
    #[cold]
    pub(crate) fn switch(&mut self, consume_only: bool) {
        let idle = !self.progress.is_due() && self.progress.in_flight.is_empty();
        if idle && matches!(self.executor, Executor::Loopback | Executor::Network) {
            self.ring.consume_only = consume_only || self.ring.wqes.is_none();
        }
    }

    /// The header of the WQE that is next, unless there are no bytes to be read.
    pub(crate) fn head(&self) -> Head {
        let ring = self.ring.wqes.as_ref().filter(|_| !self.ring.consume_only);
        let none = Head { units: 1, opcode: SendOpcode::Nop, completion: Completion::OnError };
        ring.map_or(none, |ring| self.format.head(ring, self.progress.next))
    }

    /// The place of the WQE at `index`, which is next.
    #[inline]
    pub(crate) fn place(&self, index: u64) -> At {
        let Progress { posted, ended, ref in_flight, .. } = self.progress;
        At { index, nth: ended + in_flight.len() as u64, announced: posted - index }
    }

    /// A request was answered: the retry counters start anew.
    #[inline]
    pub(crate) fn restore_retries(&mut self) {
        self.peer.retries_left = self.attrs.retry.unwrap_or(0);
        self.peer.rnr_left = self.attrs.rnr_retry.unwrap_or(0);
    }
}
